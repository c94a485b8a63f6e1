// The half of an MRC queue pair that is asked: what it takes and refuses, and what SACKs, NACKs and acknowledgements say of it,
// each SACK naming the packet and the entropy value that caused it.
// Rules: OCP MRC 1.0, chapter 7, as read by docs/mrc.md.
#pragma once

#include <cstdint>
#include <vector>

#include "mrc/outgoing.h"
#include "multipath/receiver.h"

namespace etloop::mrc {

class Responder {
 public:
  Responder(uint32_t remote_qpn, const TransportSettings& params, uint32_t pattern_rkey, FlowRecord& counters)
      : counters_(counters),
        receiver_(params, counters),
        remote_qpn_(remote_qpn),
        pattern_rkey_(pattern_rkey),
        path_mtu_(params.path_mtu_bytes),
        trim_answer_(params.recovery.trimming.answer) {}

  // A write of this queue pair, by the entropy value `value`; `marked`: with Congestion Experienced.
  void on_write(const wire::mrc::Bth& bth, const wire::mrc::Write& write, uint16_t value, bool marked);
  // A packet of which a switch left only the beginning; `last_hop`: the one before this host.
  void on_trimmed(const wire::mrc::CutPacket& packet, uint16_t value, bool last_hop);
  void on_probe(const wire::mrc::Peth& probe, uint16_t value, bool marked);
  // What is whole now, in order; false: nothing more. A payload is valid until the next call.
  bool next_delivered(Delivered& delivered);

  bool answer_due() const {
    return receiver_.has_cause() || !nacks_.empty() || acknowledge_due_ || syndrome_ != kNoSyndrome;
  }
  // The next answer; requires answer_due(). Changes nothing until `answer_sent`. Its entropy value is the owner's to choose.
  Outgoing answer() const;
  void answer_sent();

  uint32_t expected_psn() const { return receiver_.expected_psn(); }
  uint32_t msn() const { return receiver_.messages(); }
  QpFault fault() const { return fault_; }

 private:
  static constexpr uint32_t kNoSyndrome = 0;
  // As many as wait of SACKs.
  static constexpr size_t kMostWaiting = 64;

  struct Refused {
    uint32_t psn = 0;
    uint16_t value = 0;
    wire::mrc::NackReason reason{};
  };

  void refuse_message(uint8_t syndrome, QpFault fault);
  void refuse(uint32_t psn, uint16_t value, wire::mrc::NackReason reason);
  bool fills_its_place(const wire::mrc::Bth& bth, const wire::mrc::Write& write) const;
  void keep_end(const wire::mrc::Bth& bth, const wire::mrc::Write& write);
  wire::mrc::Sack sack(const multipath::Cause& cause) const;
  wire::mrc::Neth nack(const Refused& refused) const;

  FlowRecord& counters_;
  multipath::Receiver receiver_;
  uint32_t remote_qpn_;
  uint32_t pattern_rkey_;
  uint32_t path_mtu_;
  uint32_t syndrome_ = kNoSyndrome;
  bool acknowledge_due_ = false;
  TrimAnswer trim_answer_;
  QpFault fault_ = QpFault::none;
  std::vector<Refused> nacks_;
};

}  // namespace etloop::mrc
