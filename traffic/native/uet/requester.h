// The half of a queue pair that asks, over UET's reliable delivery, unordered (RUD) or ordered (ROD): its messages and the life
// of the packet delivery context (PDC) that carries them, and what ACKs and NACKs say as the multipath layer takes it.
// Rules: UET 1.0, 3.5, as read by docs/uet.md.
#pragma once

#include <cstdint>
#include <memory_resource>

#include "cc/credit_account.h"
#include "multipath/sender.h"
#include "uet/outgoing.h"
#include "uet/pdc_ids.h"
#include "uet/wide_psn.h"

namespace etloop::uet {

// A PDC at its initiator.
enum class PdcState : uint8_t {
  closed,   // there is none
  opening,  // packets carry SYN, until an answer tells the target's number
  open,
  closing,  // a close command is under way
};
enum class PdcEvent : uint8_t {
  sends,     // the first packet leaves
  answered,  // the target told its number
  rests,     // nothing is under way, for as long as was waited
  ended,     // the target acknowledged the close command
};
// The one table of how a PDC's state changes.
PdcState after(PdcState state, PdcEvent event);

// What a requester has of its receiver's credit, and when it asks for more.
struct Credit {
  CreditAccount account;
  uint32_t link_bytes = 0;  // what a packet occupies beside its datagram
  uint32_t full_packet_bytes = 0;
  Nanos heard_ns = 0;  // when something of credit happened
  uint32_t asked = 0;  // so often in vain
  bool request_due = false;
};

class Requester {
 public:
  // What is posted is kept in `memory`, which outlives this.
  Requester(uint32_t remote_qpn, multipath::PathStates& paths, const TransportSettings& params, FlowRecord& counters,
            std::pmr::memory_resource& memory);
  // Before the first packet: where the numbers of its PDCs come from. Outlives this.
  void attach(PdcIds& ids, uint32_t end);

  void post(const WorkRequest& request);
  bool has_run() const { return state_ != PdcState::closing && may_send() && sender_.has_run(); }
  // The next packet of a message, by one of these planes; requires has_run(). Nothing changes until `sent` but whose turn of the
  // entropy values it is, and that a PDC which there was none of has a number.
  Outgoing next(uint32_t planes = multipath::kAllPlanes);
  // The port took it. Returns the request that it begins, if it begins one, else nullptr.
  const WorkRequest* sent(const Outgoing& outgoing, Nanos now);

  // Whether a packet about this end's requests can carry this number.
  bool counts_near(uint32_t psn) const { return psns_.is_near(psn); }
  // For the PDC of this end; others are not its business.
  bool is_own(uint16_t id) const { return state_ != PdcState::closed && id == id_; }
  AckOutcome on_ack(const wire::uet::Ack& ack, const wire::uet::Response* response, Nanos now);
  AckOutcome on_nack(const wire::uet::Nack& nack, Nanos now);
  bool pop_completed(WorkRequest& done) { return sender_.pop_completed(done); }

  // From now on packets need credit, at first so much, which also is the most that is kept. `link_bytes`: what a packet occupies
  // beside its datagram.
  void use_credit(uint64_t window_bytes, uint32_t link_bytes);
  // The peer has granted so much in all. True: that is news.
  bool on_credit(uint32_t total, Nanos now);

  // A probe, a close command, or a request for credit.
  bool control_due(Nanos now);
  Outgoing control();
  void control_sent(const Outgoing& control, Nanos now);

  Nanos deadline() const;
  void on_timer(Nanos now);
  // From now on it is not closed because it rests.
  void stay_open() { close_after_ns_ = 0; }
  // Something is under way to the peer that it answers.
  bool awaits_answer() const { return state_ == PdcState::closing || sender_.last_probe().is_open(); }

  PdcState state() const { return state_; }
  uint16_t pdc() const { return id_; }
  multipath::Sender& sender() { return sender_; }
  const multipath::Sender& sender() const { return sender_; }

 private:
  // Before the context is open, nobody grants credit: one packet at a time asks for it.
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
  // Whether this end had failed before what came, which is counted then.
  bool came_after_failure();
  void answered(uint16_t target_id);
  bool told_close(const wire::uet::Ack& ack) const;
  void fail_by(wire::uet::ReturnCode code);
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
  WidePsn psns_;             // about the oldest packet that is not acknowledged
  uint32_t start_psn_ = 0;   // of the PDC, narrow
  PdcState state_ = PdcState::closed;
  uint16_t id_ = 0;
  uint16_t target_id_ = 0;
  uint16_t next_message_ = 0;
  Nanos close_after_ns_;
  Nanos rested_ns_ = 0;      // since when nothing is under way
  Nanos close_repeats_ns_ = 0;
  uint32_t closes_sent_ = 0;
  uint16_t asked_by_ = 0;    // the value of the last close command or request for credit
  uint32_t openings_ = 0;    // so often was a first packet repeated
  bool close_due_ = false;
  Nanos opening_spread_ns_ = 0;
  bool probe_owed_ = false;  // it could not be sent before the context is open
};

}  // namespace etloop::uet
