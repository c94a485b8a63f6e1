// The receiver of a multipath queue pair, independent of headers: stores packets in any order, and delivers messages in posting
// order, each once it and all before it are complete. Immediate data are delivered in that order, and a poller of grants reads
// memory in that order, slot by slot. Keeps the state for answers. Rules: OCP MRC 1.0, chapter 7, and UET 1.0, 3.5, as
// interpreted in docs/mrc.md and docs/uet.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/records.h"
#include "qp/work.h"
#include "wire/wire.h"

namespace etloop::multipath {

// Cause of an answer: a packet, which arrived with entropy value `value`, or a probe.
struct Cause {
  uint32_t psn = 0;
  uint16_t value = 0;
  bool marked = false;
  bool resent = false;
  bool of_probe = false;  // a probe; `psn` is its id
  uint32_t bitmap_end_psn = 0;  // newest packet that the answer reports; not for probes
};

// Arrivals for an answer: all packets up to `cumulative_psn`, and those of the bitmap beyond.
struct Arrivals {
  uint32_t cumulative_psn = 0;
  int32_t cause_offset = 0;   // causing packet, relative to `cumulative_psn`; 1 for a probe
  int32_t bitmap_offset = 1;  // lowest bit, relative to `cumulative_psn`
  uint64_t bitmap = 0;
  uint32_t ahead = 0;         // packets that arrived ahead of a missing one
  uint32_t received_256bytes = 0;
};

// The end of a message.
struct Ending {
  uint32_t psn = 0;         // its last packet
  uint16_t message_id = 0;  // if the transport numbers messages
};

// Which packet of a message describes it: if both the first and the last do, they must agree.
enum class MessagePart : uint8_t { first = 1, last = 2, all = 3 };

enum class Placement : uint8_t { placed, duplicate, beyond_window };

class Receiver {
 public:
  Receiver(const TransportSettings& params, FlowRecord& counters);

  // Place an arrived packet; `cause` if it is to be answered. The caller rejects packets beyond the window, and answers
  // duplicates. Every packet is reported by the next answer, or by one that becomes due here: a bitmap has 64 packets, and if
  // path delays differ by more, earlier arrivals and this packet would not fit one bitmap.
  Placement place(const Cause& cause, uint32_t payload_bytes);
  // Whether the packet has arrived.
  bool was_placed(uint32_t psn) const;
  bool lies_beyond(uint32_t psn) const { return wire::psn_distance(psn, expected_psn_) >= static_cast<int32_t>(window_); }
  // Note the end of a message, described by the packet that `part` names. `content`: of a grant; other contents are not kept.
  void keep_message(const Ending& ending, const Delivered& message, std::span<const uint8_t> content,
                    MessagePart part = MessagePart::all);
  // Advance the cumulative PSN after `place` and `keep_message`; `asks`: the packet requests an answer. True: an answer must
  // be sent, for this packet or for an earlier one that waited for missing packets. So the answer covers all packets before the
  // request (MRC, Table 7-5: prev_ar; uet-htsim).
  bool advance(bool asks);
  // Return the next complete message in order; false: none. A payload is valid until the next call.
  bool next_delivered(Delivered& delivered, Ending& ending);

  // Whether so many bytes arrived since the last answer that one must be sent.
  bool answer_due_by_bytes() const { return unanswered_bytes_ >= sack_bytes_; }
  void cause_answer(const Cause& cause);
  // Return the cause with the end of a bitmap that reports all arrivals since the last answer.
  Cause with_bitmap(Cause cause);
  bool has_cause() const { return !causes_.empty(); }
  const Cause& cause() const { return causes_.front(); }
  void cause_answered() { causes_.erase(causes_.begin()); }
  // Packets contradict each other about a message: a peer that follows the protocol never does that.
  bool is_broken() const { return is_broken_; }

  Arrivals arrivals(const Cause& cause) const;
  uint32_t expected_psn() const { return expected_psn_; }
  uint32_t ahead() const { return ahead_; }
  uint32_t messages() const { return messages_; }  // messages delivered in order

 private:
  static constexpr uint32_t kWindowWords = kMostSprayedWindow / 64;
  // Answers waiting for the port. More are useless: each includes the previous ones.
  static constexpr size_t kMostWaiting = 64;

  struct Known {
    Ending ending;
    uint8_t parts = 0;  // bits of MessagePart that arrived
    bool has_content = false;
    std::array<uint8_t, kClearToSendBytes> content{};
    Delivered delivered;
  };

  void note_unreported(const Cause& cause);
  bool has(uint32_t psn) const { return (bits_[psn / 64 % kWindowWords] >> (psn % 64) & 1) != 0; }
  void set(uint32_t psn) { bits_[psn / 64 % kWindowWords] |= uint64_t{1} << (psn % 64); }
  void clear(uint32_t psn) { bits_[psn / 64 % kWindowWords] &= ~(uint64_t{1} << (psn % 64)); }

  FlowRecord& counters_;
  uint32_t expected_psn_;
  uint32_t message_psn_;  // first PSN of the next message to deliver
  uint32_t path_mtu_;
  uint32_t sack_bytes_;
  uint32_t window_;
  uint32_t unanswered_bytes_ = 0;
  bool asked_ahead_ = false;  // requested by a packet ahead of missing ones
  // Packets since the last answer: whether there are any, their range, and the last one.
  bool has_unreported_ = false;
  uint32_t unreported_low_ = 0;
  uint32_t unreported_high_ = 0;
  Cause latest_;
  uint32_t ahead_ = 0;
  uint32_t messages_ = 0;
  bool is_broken_ = false;
  uint64_t received_bytes_ = 0;
  uint64_t bits_[kWindowWords] = {};
  std::vector<Known> known_;  // by PSN; those before `expected_psn_` are complete
  std::array<uint8_t, kClearToSendBytes> content_{};  // of the last delivered message
  std::vector<Cause> causes_;
};

}  // namespace etloop::multipath
