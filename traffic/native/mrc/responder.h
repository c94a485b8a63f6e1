// The half of an MRC queue pair that is asked: packets are placed as they come, in any order; messages are handed over in the
// order in which they were posted, each when it and all before it are whole. So immediate data are delivered, and so does who
// polls memory for grants look at them, slot by slot. Says what arrived by SACKs,
// which each name the packet and the entropy value that caused them.
// Rules: OCP MRC 1.0, chapter 7, as read by docs/mrc.md.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "mrc/outgoing.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/work.h"

namespace etloop::mrc {

class Responder {
 public:
  Responder(uint32_t remote_qpn, const TransportParams& params, uint32_t pattern_rkey, FlowRecord& counters);

  // A write of this queue pair, by the entropy value `value`; `marked`: with Congestion Experienced.
  void on_write(const wire::mrc::Bth& bth, const wire::mrc::Write& write, uint16_t value, bool marked);
  // A packet of which a switch left only the beginning.
  void on_trimmed(const wire::mrc::CutPacket& packet, uint16_t value);
  void on_probe(const wire::mrc::Peth& probe, uint16_t value, bool marked);
  // What is whole now, in order; false: nothing more. A payload is valid until the next call.
  bool next_delivered(Delivered& delivered);

  bool answer_due() const { return !sacks_.empty() || !nacks_.empty() || acknowledge_due_ || syndrome_ != kNoSyndrome; }
  // The next answer; requires answer_due(). Changes nothing until `answer_sent`.
  Outgoing answer() const;
  void answer_sent();

  uint32_t expected_psn() const { return expected_psn_; }
  uint32_t msn() const { return messages_; }
  QpFault fault() const { return fault_; }

 private:
  static constexpr uint32_t kNoSyndrome = 0;
  static constexpr uint32_t kWindowWords = kMostMrcWindow / 64;
  // Answers that wait for the port: more are not worth keeping, as each tells all that the ones before it did.
  static constexpr size_t kMostWaiting = 64;

  // Why a SACK is due.
  struct Cause {
    uint32_t psn = 0;
    uint16_t value = 0;
    bool marked = false;
    bool of_probe = false;  // then `psn` is the probe's number
  };
  struct Refused {
    uint32_t psn = 0;
    uint16_t value = 0;
    wire::mrc::NackReason reason{};
  };
  // The end of a message that came before its turn, or in it.
  struct Whole {
    uint32_t psn = 0;
    bool has_content = false;
    std::array<uint8_t, kClearToSendBytes> content{};  // of a grant; no other content is kept
    Delivered delivered;
  };

  bool has(uint32_t psn) const { return (bits_[psn / 64 % kWindowWords] >> (psn % 64) & 1) != 0; }
  void set(uint32_t psn) { bits_[psn / 64 % kWindowWords] |= uint64_t{1} << (psn % 64); }
  void clear(uint32_t psn) { bits_[psn / 64 % kWindowWords] &= ~(uint64_t{1} << (psn % 64)); }
  void cause_sack(const Cause& cause);
  void refuse(uint32_t psn, uint16_t value, wire::mrc::NackReason reason);
  void keep_end(const wire::mrc::Bth& bth, const wire::mrc::Write& write);
  void advance();
  wire::mrc::Sack sack(const Cause& cause) const;

  FlowRecord& counters_;
  uint32_t expected_psn_;
  uint32_t newest_psn_;          // the highest that arrived, or the one before the first
  uint32_t remote_qpn_;
  uint32_t pattern_rkey_;
  uint32_t sack_bytes_;
  uint32_t window_;
  uint32_t unsacked_bytes_ = 0;  // since the last SACK
  uint32_t ahead_ = 0;           // packets that arrived before one that is missing
  uint32_t messages_ = 0;        // taken, in order
  uint64_t received_bytes_ = 0;
  uint32_t syndrome_ = kNoSyndrome;
  bool acknowledge_due_ = false;
  TrimAnswer trim_answer_;
  QpFault fault_ = QpFault::none;
  uint64_t bits_[kWindowWords] = {};
  std::vector<Whole> whole_;     // by sequence number; those before `expected_psn_` are ready
  std::array<uint8_t, kClearToSendBytes> content_{};  // of the message handed over last
  std::vector<Cause> sacks_;
  std::vector<Refused> nacks_;
};

}  // namespace etloop::mrc
