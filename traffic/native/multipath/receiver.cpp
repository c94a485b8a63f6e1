#include "multipath/receiver.h"

#include <algorithm>

namespace etloop::multipath {

using wire::psn_distance;

namespace {

constexpr uint32_t kBitmapPackets = 64;
constexpr uint32_t kLeastCountedBytes = 1024;  // counted at least per packet towards the next answer
constexpr uint64_t kReceivedUnit = 256;

constexpr uint32_t after(uint32_t psn) { return (psn + 1) & wire::kPsnMask; }
constexpr uint32_t before(uint32_t psn) { return (psn - 1) & wire::kPsnMask; }

}  // namespace

Receiver::Receiver(const TransportSettings& params, FlowRecord& counters)
    : counters_(counters),
      expected_psn_(params.recovery.initial_psn & wire::kPsnMask),
      message_psn_(expected_psn_),
      path_mtu_(params.path_mtu_bytes),
      sack_bytes_(params.multipath.sack_bytes),
      window_(params.window_packets == 0 ? kMostSprayedWindow : std::min(params.window_packets, kMostSprayedWindow)) {}

void Receiver::cause_answer(const Cause& cause) {
  unanswered_bytes_ = 0;
  if (causes_.size() == kMostWaiting) causes_.erase(causes_.begin());
  causes_.push_back(cause.of_probe ? cause : with_bitmap(cause));
}

Cause Receiver::with_bitmap(Cause cause) {
  cause.bitmap_end_psn = has_unreported_ ? unreported_high_ : cause.psn;
  has_unreported_ = false;
  return cause;
}

void Receiver::note_unreported(const Cause& cause) {
  constexpr auto kBits = static_cast<int32_t>(kBitmapPackets);
  const bool fits = psn_distance(cause.psn, unreported_low_) < kBits && psn_distance(unreported_high_, cause.psn) < kBits;
  if (has_unreported_ && !fits) cause_answer(latest_);
  if (!has_unreported_) unreported_low_ = unreported_high_ = cause.psn;
  if (psn_distance(cause.psn, unreported_low_) < 0) unreported_low_ = cause.psn;
  if (psn_distance(cause.psn, unreported_high_) > 0) unreported_high_ = cause.psn;
  has_unreported_ = true;
  latest_ = cause;
}

bool Receiver::was_placed(uint32_t psn) const {
  const int32_t ahead = psn_distance(psn, expected_psn_);
  return ahead < 0 || (ahead < static_cast<int32_t>(window_) && has(psn));
}

Placement Receiver::place(const Cause& cause, uint32_t payload_bytes) {
  const uint32_t psn = cause.psn;
  const int32_t ahead = psn_distance(psn, expected_psn_);
  if (lies_beyond(psn)) {
    ++counters_.out_of_sequence;
    return Placement::beyond_window;
  }
  if (ahead >= 0) note_unreported(cause);
  if (was_placed(psn)) {
    ++counters_.duplicate_request;
    return Placement::duplicate;
  }
  set(psn);
  received_bytes_ += payload_bytes;
  if (ahead > 0) ++counters_.out_of_sequence;
  ++ahead_;
  unanswered_bytes_ += std::max(payload_bytes, kLeastCountedBytes);
  return Placement::placed;
}

void Receiver::keep_message(const Ending& ending, const Delivered& message, std::span<const uint8_t> content,
                            MessagePart part) {
  // A correct peer has at most one message per packet of the window.
  if (known_.size() == kMostSprayedWindow) is_broken_ = true;
  if (is_broken_) return;
  Known known{.ending = ending,
              .parts = static_cast<uint8_t>(part),
              .has_content = content.size() == kClearToSendBytes && !message.has_imm,
              .content = {},
              .delivered = message};
  if (known.has_content) std::copy(content.begin(), content.end(), known.content.begin());
  const auto at = std::partition_point(known_.begin(), known_.end(),
                                       [&](const Known& earlier) { return psn_distance(earlier.ending.psn, ending.psn) < 0; });
  if (at == known_.end() || at->ending.psn != ending.psn) {
    known_.insert(at, known);
    return;
  }
  if (at->delivered.bytes != message.bytes || (at->parts & known.parts) != 0) is_broken_ = true;
  known.parts |= at->parts;
  if (part == MessagePart::first) *at = known;
  at->parts = known.parts;
}

bool Receiver::advance(bool asks) {
  while (has(expected_psn_)) {
    clear(expected_psn_);
    expected_psn_ = after(expected_psn_);
    --ahead_;
  }
  const bool is_due = asks || (asked_ahead_ && ahead_ == 0);
  asked_ahead_ = (asked_ahead_ || asks) && ahead_ > 0;
  return is_due;
}

bool Receiver::next_delivered(Delivered& delivered, Ending& ending) {
  if (known_.empty() || psn_distance(known_.front().ending.psn, expected_psn_) >= 0) return false;
  ending = known_.front().ending;
  delivered = known_.front().delivered;
  // A message's length must match the packets since the previous message; otherwise packets are missing.
  const uint32_t packets = std::max(1U, delivered.bytes / path_mtu_ + (delivered.bytes % path_mtu_ != 0 ? 1U : 0U));
  is_broken_ = is_broken_ || known_.front().parts != static_cast<uint8_t>(MessagePart::all) ||
               ((message_psn_ + packets - 1) & wire::kPsnMask) != ending.psn;
  if (is_broken_) return false;
  message_psn_ = after(ending.psn);
  content_ = known_.front().content;
  if (known_.front().has_content) delivered.payload = content_.data();
  known_.erase(known_.begin());
  ++messages_;
  ++counters_.rx_write_requests;
  if (delivered.has_imm) {
    ++counters_.rx_messages;
    counters_.rx_payload_bytes += delivered.bytes;
  }
  return true;
}

// If the window is longer than the bitmap, the bitmap ends with the newest packet since the previous answer.
Arrivals Receiver::arrivals(const Cause& cause) const {
  Arrivals arrivals;
  const uint32_t cumulative = before(expected_psn_);
  arrivals.cumulative_psn = cumulative;
  arrivals.cause_offset = cause.of_probe ? 1 : psn_distance(cause.psn, cumulative);
  const int32_t end = cause.of_probe ? 1 : psn_distance(cause.bitmap_end_psn, cumulative);
  arrivals.bitmap_offset = std::max(1, end - static_cast<int32_t>(kBitmapPackets) + 1);
  for (uint32_t i = 0; ahead_ > 0 && i < kBitmapPackets; ++i) {
    const uint32_t psn = (cumulative + static_cast<uint32_t>(arrivals.bitmap_offset) + i) & wire::kPsnMask;
    const bool inside = psn_distance(psn, expected_psn_) < static_cast<int32_t>(window_);
    if (inside && has(psn)) arrivals.bitmap |= uint64_t{1} << i;
  }
  arrivals.ahead = ahead_;
  arrivals.received_256bytes =
      static_cast<uint32_t>((received_bytes_ + kReceivedUnit - 1) / kReceivedUnit) & wire::kPsnMask;
  return arrivals;
}

}  // namespace etloop::multipath
