// The responder of a queue pair: receives requests, delivers messages, and sends answers. Rules: InfiniBand Architecture
// Specification vol. 1, 9.7.4 (checks), 9.7.5 (answers), 9.7.7 (errors). Out-of-order packets are dropped, or kept until their
// turn if the ends agreed to that.
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

// Memory and receives that a peer can use through a queue pair.
struct QpResources {
  uint32_t pattern_rkey = 0;         // writes are discarded, READs return the pattern
  MemoryRegion* memory = nullptr;    // with its own key; nullptr: none
  ReceiveQueue* receives = nullptr;  // nullptr: a receive is always available, and SENDs are discarded
};

class Responder {
 public:
  Responder(uint32_t remote_qpn, FlowId flow, const TransportSettings& params, const QpResources& resources,
            FlowRecord& counters);

  // True: `delivered` has a complete message; `next_delivered` may have more that waited for this packet.
  bool on_request(const wire::Packet& packet, Delivered& delivered);
  bool next_delivered(Delivered& delivered);
  // Handle a packet trimmed by a switch.
  void on_trimmed(const wire::CutPacket& packet);
  // The last packet was marked Congestion Experienced: the next acknowledgement reports it.
  void note_congestion() { echo_congestion_ = true; }

  // Selective repeat: packets before an early one are missing, and count as lost.
  bool reports_gaps() const { return selective_ && !early_.empty() && !early_.missing_may_be_late(); }
  bool answer_due() const {
    return acknowledge_due_ || nak_due_ || (replies_ != nullptr && replies_->any());
  }
  bool nak_due() const { return nak_due_; }
  // Return the next answer in order; requires answer_due(). No state changes until `answer_sent`.
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

  // A READ in progress, or the result of an atomic.
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
    std::vector<Reply> queue;     // ring; [head, head + pending) are pending
    size_t head = 0;
    size_t pending = 0;
    std::vector<Reply> atomics;   // the last results, for duplicates
    size_t next_atomic = 0;
    std::vector<uint32_t> trimmed;  // PSNs that arrived trimmed, each to be requested

    bool any() const { return pending > 0 || !trimmed.empty(); }
  };
  // A message with more packets to come.
  struct OpenMessage {
    uint32_t bytes = 0;
    uint32_t received = 0;
    uint8_t* into = nullptr;
  };

  // State of trimmed packets.
  struct Trims {
    TrimAnswer answer;
    bool ahead = false;  // without selective repeat: `ahead_psn` arrived trimmed, ahead of its turn
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

  // Members used for every packet are in the first cache line.
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
