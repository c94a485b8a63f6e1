// The requester over UET's reliable delivery, unordered (RUD) or ordered (ROD): its messages, the life cycle of the packet
// delivery context (PDC) that carries them, and the translation of ACKs and NACKs for the multipath layer. Rules: UET 1.0, 3.5,
// as interpreted in docs/uet.md.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "cc/credit_account.h"
#include "multipath/sender.h"
#include "uet/outgoing.h"
#include "uet/pdc_ids.h"
#include "uet/wide_psn.h"

namespace etloop::uet {

// State of a PDC at its initiator.
enum class PdcState : uint8_t {
  closed,   // no PDC
  opening,  // packets carry SYN until an answer has the target's id
  open,
  closing,  // a close command is in flight
};
enum class PdcEvent : uint8_t {
  sends,     // the first packet leaves
  answered,  // an answer has the target's id
  rests,     // idle for the configured time
  ended,     // the target acknowledged the close command
};
// The state transition table of a PDC.
PdcState after(PdcState state, PdcEvent event);

// A requester's credit state, and when it requests more.
struct Credit {
  CreditAccount account;
  uint32_t link_bytes = 0;  // link bytes per packet in addition to the datagram
  uint32_t full_packet_bytes = 0;
  Nanos heard_ns = 0;  // last credit event
  uint32_t asked = 0;  // unanswered requests
  bool request_due = false;
};

class Requester {
 public:
  // Requests are stored in `memory`, which outlives this.
  Requester(uint32_t remote_qpn, multipath::PathStates& paths, const TransportSettings& params, FlowRecord& counters,
            std::pmr::memory_resource& memory);
  // Set the allocator of PDC ids before the first packet; outlives this.
  void attach(PdcIds& ids, uint32_t end);

  void post(const WorkRequest& request);
  bool has_run() const { return state_ != PdcState::closing && may_send() && sender_.has_run(); }
  // Return the next packet, on one of these planes; requires has_run(). No state changes until `sent`, except the turn of the
  // entropy values and the allocation of a PDC id.
  Outgoing next(uint32_t planes = multipath::kAllPlanes);
  // The port accepted the packet. Returns the request that it begins, if any, else nullptr.
  SentRequest sent(const Outgoing& outgoing, Nanos now);

  // Whether a packet for this end's requests can have this PSN.
  bool counts_near(uint32_t psn) const { return psns_.is_near(psn); }
  // Handle an ACK for this end's PDC.
  bool is_own(uint16_t id) const { return state_ != PdcState::closed && id == id_; }
  AckOutcome on_ack(const wire::uet::Ack& ack, const wire::uet::Response* response, Nanos now);
  AckOutcome on_nack(const wire::uet::Nack& nack, Nanos now);
  bool pop_completed(WorkRequest& done) { return sender_.pop_completed(done); }

  // Require credit from now on, with an initial credit that also bounds the credit kept. `link_bytes`: bytes of a packet on its
  // link in addition to the datagram.
  void use_credit(uint64_t window_bytes, uint32_t link_bytes);
  // The peer granted a total of credit. True: it is new.
  bool on_credit(uint32_t total, Nanos now);

  // Return a probe, a close command, or a credit request.
  bool control_due(Nanos now);
  Outgoing control();
  void control_sent(const Outgoing& control, Nanos now);

  Nanos deadline() const;
  void on_timer(Nanos now);
  // From now on an idle PDC is not closed.
  void stay_open() { close_after_ns_ = 0; }
  // Whether something in flight will be answered.
  bool awaits_answer() const { return state_ == PdcState::closing || sender_.last_probe().is_open(); }

  PdcState state() const { return state_; }
  uint16_t pdc() const { return id_; }
  multipath::Sender& sender() { return sender_; }
  const multipath::Sender& sender() const { return sender_; }

 private:
  // Before the PDC is open no credit is granted: single packets request it.
  bool may_send() const {
    const bool is_before = state_ == PdcState::closed || state_ == PdcState::opening;
    return credit_.account.may_send() || (is_before && sender_.packets().under_way() == 0);
  }
  bool starves() const { return state_ == PdcState::open && !credit_.account.may_send() && sender_.has_run(); }
  Nanos credit_due_ns() const;
  uint16_t value_to_ask_by(uint32_t times);
  wire::uet::PdsType type_of_requests() const;
  uint32_t link_bytes_of(uint32_t payload_bytes) const;
  void open_pdc();
  void change(PdcEvent event) { state_ = after(state_, event); }
  wire::uet::StandardRequest message_of(const multipath::Departure& departure) const;
  Nanos spread(uint32_t tries) const;
  // Whether this end had failed before an arrival, which is counted then.
  bool came_after_failure();
  void answered(uint16_t target_id);
  bool is_close_answer(const wire::uet::Ack& ack) const;
  void note_error(wire::uet::ReturnCode code, Nanos now);
  bool rests() const { return state_ == PdcState::open && sender_.idle(); }

  FlowRecord& counters_;
  multipath::Sender sender_;
  PdcIds* ids_ = nullptr;
  uint32_t end_ = 0;
  Credit credit_;
  bool ordered_;
  bool sends_;
  uint32_t path_mtu_;
  uint32_t remote_qpn_;
  uint32_t job_id_;
  WidePsn psns_;             // near the oldest unacknowledged packet
  uint32_t start_psn_ = 0;   // first PSN of the PDC, 24 bits
  PdcState state_ = PdcState::closed;
  uint16_t id_ = 0;
  uint16_t target_id_ = 0;
  uint16_t next_message_ = 0;
  Nanos close_after_ns_;
  Nanos rested_ns_ = 0;      // idle since
  Nanos close_repeats_ns_ = 0;
  uint32_t closes_sent_ = 0;
  uint16_t asked_by_ = 0;    // entropy value of the last close command or credit request
  uint32_t openings_ = 0;    // repetitions of the first packet
  bool close_due_ = false;
  Nanos opening_spread_ns_ = 0;
  bool probe_owed_ = false;  // a probe waits for the context to open
};

}  // namespace etloop::uet
