// The half of a multipath queue pair that is asked, whatever its headers: packets are placed as they come, in any order; messages
// are handed over in the order in which they were posted, each when it and all before it are whole. So immediate data are
// delivered, and so does who polls memory for grants look at them, slot by slot. Keeps what answers are to say.
// Rules: OCP MRC 1.0, chapter 7, and UET 1.0, 3.5, as read by docs/mrc.md and docs/uet.md.
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

// Why an answer is due: a packet, which came by the entropy value `value`, or a probe.
struct Cause {
  uint32_t psn = 0;
  uint16_t value = 0;
  bool marked = false;
  bool resent = false;
  bool of_probe = false;  // then `psn` is the probe's number
  uint32_t bitmap_end_psn = 0;  // the newest packet that its answer reports, unless `of_probe`
};

// What has arrived, for an answer: everything up to `cumulative_psn`, and beyond it what the bitmap has.
struct Arrivals {
  uint32_t cumulative_psn = 0;
  int32_t cause_offset = 0;   // of the packet that caused it, from `cumulative_psn`; 1 of a probe
  int32_t bitmap_offset = 1;  // of the lowest bit, from `cumulative_psn`
  uint64_t bitmap = 0;
  uint32_t ahead = 0;         // packets that arrived before one that is missing
  uint32_t received_256bytes = 0;
};

// How a message ends.
struct Ending {
  uint32_t psn = 0;         // of its last packet
  uint16_t message_id = 0;  // where a transport numbers them
};

// Which packet of a message tells of it: where its first and its last both do, they are to agree.
enum class MessagePart : uint8_t { first = 1, last = 2, all = 3 };

enum class Placement : uint8_t { placed, duplicate, beyond_window };

class Receiver {
 public:
  Receiver(const TransportSettings& params, FlowRecord& counters);

  // A packet of the queue pair came: `cause`, if it is to be answered. The caller refuses what lies beyond the window, and
  // answers duplicates. Every packet is reported by the next answer, or by one that falls due here: its bitmap has 64 packets,
  // and where paths differ by more, what came before this packet would not fit into one bitmap with it.
  Placement place(const Cause& cause, uint32_t payload_bytes);
  // Whether it was placed, or is of those that all were.
  bool was_placed(uint32_t psn) const;
  bool lies_beyond(uint32_t psn) const { return wire::psn_distance(psn, expected_psn_) >= static_cast<int32_t>(window_); }
  // A message that is known to end so, by the packet that `part` names. `content`: of a grant; no other is kept.
  void keep_message(const Ending& ending, const Delivered& message, std::span<const uint8_t> content,
                    MessagePart part = MessagePart::all);
  // Once what came is placed and kept; `asks`: it asks for an answer. True: it does, or one that came before did, ahead of
  // packets that were missing and no longer are. So who asks learns of all before it (MRC, Table 7-5: prev_ar; uet-htsim).
  bool advance(bool asks);
  // What is whole now, in order; false: nothing more. A payload is valid until the next call.
  bool next_delivered(Delivered& delivered, Ending& ending);

  // So many bytes since the last answer that one is due.
  bool answer_due_by_bytes() const { return unanswered_bytes_ >= sack_bytes_; }
  void cause_answer(const Cause& cause);
  // The same cause with the end of a bitmap that reports all that came since the last answer.
  Cause with_bitmap(Cause cause);
  bool has_cause() const { return !causes_.empty(); }
  const Cause& cause() const { return causes_.front(); }
  void cause_answered() { causes_.erase(causes_.begin()); }
  // What came says two things of one message: of a peer that keeps to the protocol it never does.
  bool is_broken() const { return is_broken_; }

  Arrivals arrivals(const Cause& cause) const;
  uint32_t expected_psn() const { return expected_psn_; }
  uint32_t ahead() const { return ahead_; }
  uint32_t messages() const { return messages_; }  // taken, in order

 private:
  static constexpr uint32_t kWindowWords = kMostSprayedWindow / 64;
  // Answers that wait for the port: more are not worth keeping, as each tells all that the ones before it did.
  static constexpr size_t kMostWaiting = 64;

  struct Known {
    Ending ending;
    uint8_t parts = 0;  // of MessagePart: which were there
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
  uint32_t message_psn_;  // the first of the message that is handed over next
  uint32_t path_mtu_;
  uint32_t sack_bytes_;
  uint32_t window_;
  uint32_t unanswered_bytes_ = 0;
  bool asked_ahead_ = false;  // by a packet ahead of others that are missing
  // Packets since the last answer: whether there are any, their lowest and highest number, and the last of them.
  bool has_unreported_ = false;
  uint32_t unreported_low_ = 0;
  uint32_t unreported_high_ = 0;
  Cause latest_;
  uint32_t ahead_ = 0;
  uint32_t messages_ = 0;
  bool is_broken_ = false;
  uint64_t received_bytes_ = 0;
  uint64_t bits_[kWindowWords] = {};
  std::vector<Known> known_;  // by sequence number; those before `expected_psn_` are whole
  std::array<uint8_t, kClearToSendBytes> content_{};  // of the message handed over last
  std::vector<Cause> causes_;
};

}  // namespace etloop::multipath
