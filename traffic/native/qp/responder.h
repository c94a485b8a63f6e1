// The half of a queue pair that is asked: requests in, messages and answers out.
// Rules: InfiniBand Architecture Specification vol. 1, 9.7.4 (what is checked), 9.7.5 (what is answered), 9.7.7 (what
// can go wrong). Packets that overtake others are dropped, or kept until their turn when the ends agreed to.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "plan/records.h"
#include "qp/early_packets.h"
#include "qp/memory.h"
#include "qp/work.h"
#include "wire/packet_run.h"

namespace etloop {

// What a peer may reach through a queue pair.
struct QpResources {
  uint32_t pattern_rkey = 0;         // writes are forgotten, READs return the pattern
  MemoryRegion* memory = nullptr;    // under its own key; nullptr: none
  ReceiveQueue* receives = nullptr;  // nullptr: there is always one, and SENDs are forgotten
};

class Responder {
 public:
  Responder(uint32_t remote_qpn, FlowId flow, const TransportSettings& params, const QpResources& resources,
            FlowRecord& counters);

  // True: `delivered` holds a whole message, and `next_delivered` may have more that were waiting for this packet.
  bool on_request(const wire::Packet& packet, Delivered& delivered);
  bool next_delivered(Delivered& delivered);
  // A packet of which a switch left only the beginning.
  void on_trimmed(const wire::CutPacket& packet);
  // The packet just handed in had Congestion Experienced; the next acknowledgement tells the peer.
  void note_congestion() { echo_congestion_ = true; }

  // Selective repeat: something is missing before what came ahead, and not only late.
  bool reports_gaps() const { return selective_ && !early_.empty() && !early_.missing_may_be_late(); }
  bool answer_due() const {
    return acknowledge_due_ || nak_due_ || (replies_ != nullptr && replies_->any());
  }
  bool nak_due() const { return nak_due_; }
  // The next answer in order; requires answer_due(). Changes nothing until `answer_sent`.
  PacketRun answer();
  void answer_sent(const PacketRun& run);

  uint32_t expected_psn() const { return expected_psn_; }
  uint32_t msn() const { return msn_; }
  QpFault fault() const { return fault_; }
  void fail(QpFault fault) { fault_ = fault; }
  void set_remote_qpn(uint32_t qpn) { remote_qpn_ = qpn; }

 private:
  enum class Step : uint8_t { refused, taken, whole };
  enum class Open : uint8_t { nothing, write, send };

  // A READ being answered or an atomic's result.
  struct Reply {
    bool is_read = false;
    uint32_t psn = 0;
    uint32_t packets = 1;
    uint32_t sent = 0;
    uint32_t bytes = 0;
    uint32_t msn = 0;
    const uint8_t* source = nullptr;  // nullptr: the pattern
    uint64_t original = 0;
  };
  struct Replies {
    std::vector<Reply> queue;     // ring; [head, head + pending) wait
    size_t head = 0;
    size_t pending = 0;
    std::vector<Reply> atomics;   // the last results, for duplicates
    size_t next_atomic = 0;
    std::vector<uint32_t> trimmed;  // came cut, to be asked for each by itself

    bool any() const { return pending > 0 || !trimmed.empty(); }
  };
  // A message of which more packets are to come.
  struct OpenMessage {
    uint32_t bytes = 0;
    uint32_t received = 0;
    uint8_t* into = nullptr;
  };

  // What came cut.
  struct Trims {
    TrimAnswer answer;
    bool ahead = false;  // without selective repeat: `ahead_psn` did, before its turn
    uint32_t ahead_psn = 0;
  };

  Step accept(const wire::Packet& packet, Delivered& delivered);
  Step accept_carrier(const wire::Packet& packet, const wire::Shape& shape, Delivered& delivered);
  bool begin_message(const wire::Packet& packet, const wire::Shape& shape);
  bool take_receive();
  Step accept_read(const wire::Packet& packet);
  Step accept_atomic(const wire::Packet& packet, Delivered& delivered);
  void store(const wire::Packet& packet);
  void ask_for_trimmed(uint32_t psn);
  void reach_trimmed();
  PacketRun trimmed_answer() const;
  void trimmed_answer_sent();
  void on_duplicate(const wire::Packet& packet);
  void on_early(const wire::Packet& packet, uint32_t ahead);
  bool reply(const Reply& reply);
  bool find_read(const wire::Packet& packet, Reply& reply);
  Replies& replies();
  uint32_t path_mtu() const { return 1U << mtu_shift_; }
  PacketRun reply_packet(const Reply& reply) const;
  Step refuse(uint8_t syndrome, QpFault fault);
  Step advance_by(uint32_t packets);

  // What every packet looks at is in one cache line, the first.
  FlowRecord& counters_;
  uint32_t expected_psn_;
  uint32_t msn_ = 0;
  uint8_t mtu_shift_;
  QpFault fault_ = QpFault::none;
  Open open_ = Open::nothing;
  bool selective_;
  bool acknowledge_due_ = false;
  bool nak_due_ = false;
  bool nak_sent_ = false;
  bool echo_congestion_ = false;
  Trims trims_;
  OpenMessage message_;
  std::unique_ptr<Replies> replies_;
  EarlyPackets early_;

  uint64_t message_va_ = 0;
  QpResources resources_;
  Receive receive_;
  uint32_t remote_qpn_;
  FlowId flow_;
  uint32_t reply_limit_;
  uint8_t rnr_timer_;
  uint8_t nak_syndrome_ = 0;
  uint8_t bitmap_[wire::kSelectiveBitmapBytes] = {};
};

}  // namespace etloop
