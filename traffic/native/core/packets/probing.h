// The probes of a port before any load: its requests to peers, and its replies to theirs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/card_ends.h"
#include "core/packets/queue_pairs.h"
#include "core/port.h"
#include "core/packets/probe.h"
#include "plan/plan.h"
#include "wire/wire.h"

namespace etloop {

class Probing {
 public:
  Probing(const EnginePlan& plan, const QueuePairs& queue_pairs, const CardEnds& cards)
      : plan_(plan), queue_pairs_(queue_pairs), cards_(cards) {}

  // Call after the queue pairs are open: every sending end becomes a target.
  void load();
  void start(ProbeRounds rounds = ProbeRounds::one) { prober_.start(rounds); }
  const Prober& prober() const { return prober_; }
  // Minimum round trip of a queue pair; -1: not measured.
  Nanos round_trip_ns(uint32_t qp) const;
  bool under_way() const { return prober_.running() && !prober_.over(); }

  // Whether peers wait for a reply.
  bool replies_due() const { return !replies_.empty(); }
  // Send the replies; sent: all of them.
  TxResult send_replies(TxPort& port);
  // Send due probes; peers that can be probed only through their queue pairs get a write: `post(queue pair, request)`. False: no
  // more can leave now.
  template <typename Post>
  bool send_requests(TxPort& port, Nanos now, Post&& post) {
    for (int64_t next = prober_.next(now); next >= 0; next = prober_.next(now)) {
      const auto target = static_cast<size_t>(next);
      if (cards_.probed_by_write(prober_.qp(target))) {
        send_write(target, now, post);
        continue;
      }
      switch (port.send(request(target))) {
        case TxResult::sent: prober_.sent(target, now); break;
        case TxResult::would_block: return false;
        case TxResult::held: return true;
        case TxResult::failed: prober_.too_large(target); break;
      }
    }
    return true;
  }
  // Send due probes over a card, which supports writes only.
  template <typename Post>
  void send_writes(Nanos now, Post&& post) {
    for (int64_t next = prober_.next(now); next >= 0; next = prober_.next(now)) {
      send_write(static_cast<size_t>(next), now, post);
    }
  }

  // Queue the reply to a peer's probe; if too many are queued, drop it: the peer probes again.
  void on_request(uint32_t qp, const wire::Packet& packet, uint8_t traffic_class);
  // Handle a peer's reply; returns the peer's offer. False: it has none: it answers a short probe, or none of this queue pair.
  struct Offer {
    uint32_t window_packets = 0;
    uint32_t share = 0;
    Nanos round_trip_ns = 0;
  };
  bool on_reply(uint32_t qp, const wire::Packet& packet, Nanos now, Offer& offer);
  // The write of a probe completed, or its queue pair cannot reach the peer.
  void on_written(uint32_t qp, Nanos now);
  void on_unreachable(uint32_t qp);

 private:
  struct Reply {
    uint32_t qp;
    uint32_t target;
    uint8_t traffic_class;
  };

  PacketRun request(size_t target) const;
  // Marks of probes and replies.
  ClassMarks marks() const {
    return plan_.transport.own_packets_apart ? marks_of(plan_.transport.clear_to_send) : ClassMarks{};
  }
  // Post one write; the transport retransmits it.
  template <typename Post>
  void send_write(size_t target, Nanos now, Post&& post) {
    const bool fresh = prober_.fresh(target);
    prober_.sent(target, now, kWriteProbeTimeoutNs);
    if (fresh) post(prober_.qp(target), cards_.probe_request(prober_.qp(target)));
  }

  const EnginePlan& plan_;
  const QueuePairs& queue_pairs_;
  const CardEnds& cards_;
  Prober prober_;
  std::vector<Reply> replies_;
};

}  // namespace etloop
