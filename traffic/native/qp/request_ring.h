// The requests that a queue pair was given, in order: those that are over and not yet told, those that wait for answers, and
// those that are still to be sent. Knows which sequence numbers each takes; sends nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "base/prefetch.h"
#include "cc/ack_outcome.h"
#include "qp/work.h"
#include "wire/wire.h"

namespace etloop {

class RequestRing {
 public:
  // The first request takes sequence numbers from `first_psn` on; full packets have 2^mtu_shift bytes. What is posted is kept in
  // `memory`, which outlives this.
  RequestRing(uint32_t first_psn, uint32_t mtu_shift, std::pmr::memory_resource& memory)
      : ring_(&memory), post_psn_(first_psn), mtu_shift_(mtu_shift) {}

  void post(const WorkRequest& request);
  // Whether any is under way or still to be sent.
  bool empty() const { return head_ == tail_; }

  // The request to send from next, if any is left, and whether it may be begun: of READs and atomics at most `limit` wait for
  // their responses at a time.
  bool any_to_send() const { return sending_ != tail_; }
  // Behind the last that was posted.
  uint32_t end_psn() const { return post_psn_; }
  bool may_begin(uint32_t limit) const {
    return waiting_ == 0 || outstanding_ < limit || !waits_for_response(entry(sending_).kind);
  }
  WorkRequest& next() { return entry(sending_); }
  const WorkRequest& next() const { return entry(sending_); }
  // All of it is sent.
  void advance() {
    if (waits_for_response(entry(sending_).kind)) ++outstanding_;
    ++sending_;
  }
  // Sends again from `psn` on.
  void rewind(uint32_t psn);
  void expect_next() const {
    if (!ring_.empty()) prefetch(&entry(sending_));
  }

  // The first that is not over; nullptr: all are.
  const WorkRequest* oldest() const { return empty() ? nullptr : &entry(head_); }

  // Whether any READ or atomic is not over.
  bool any_responses() const { return waiting_ != 0; }
  // The request that a sequence number belongs to; requires one that is not over.
  WorkRequest& at_psn(uint32_t psn);
  // An acknowledgement of everything before `end` stands for all of it but READs and atomics: those complete by their responses
  // alone. Returns how far it reaches, from `oldest` on.
  uint32_t acknowledgeable_to(uint32_t end, uint32_t oldest) const {
    return waiting_ == 0 ? end : first_response_before(end, oldest);
  }
  // Everything before `oldest` is acknowledged: tells what of it was not told yet.
  void complete_before(uint32_t oldest, AckOutcome& outcome);
  // A fault overtook all that is not over.
  void flush();
  // The next of those that are over; false: none is left.
  bool pop_completed(WorkRequest& done) {
    if (completed_ == head_) return false;
    done = entry(completed_++);
    return true;
  }

 private:
  WorkRequest& entry(uint64_t position) { return ring_[position & (ring_.size() - 1)]; }
  const WorkRequest& entry(uint64_t position) const { return ring_[position & (ring_.size() - 1)]; }
  static uint32_t end_of(const WorkRequest& request) { return (request.first_psn + request.packets) & wire::kPsnMask; }
  uint32_t first_response_before(uint32_t end, uint32_t oldest) const;

  // Requests [head_, tail_) are posted, [head_, sending_) fully sent, [completed_, head_) over.
  uint64_t sending_ = 0;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;
  uint32_t waiting_ = 0;      // READs and atomics in [head_, tail_)
  uint32_t outstanding_ = 0;  // of those, in [head_, sending_)
  std::pmr::vector<WorkRequest> ring_;  // power of two, empty until something is posted
  uint64_t completed_ = 0;
  uint32_t post_psn_;
  uint32_t head_bytes_counted_ = 0;  // payload of entry(head_) that an AckOutcome already told
  uint32_t mtu_shift_;
};

// Asked for every acknowledgement: here, to be inlined.

inline void RequestRing::complete_before(uint32_t oldest, AckOutcome& outcome) {
  while (head_ != tail_) {
    const WorkRequest& first = entry(head_);
    const bool carries = !waits_for_response(first.kind);
    if (wire::psn_distance(end_of(first), oldest) > 0) {
      if (!carries || wire::psn_distance(oldest, first.first_psn) <= 0) break;
      const auto bytes = static_cast<uint32_t>(wire::psn_distance(oldest, first.first_psn)) << mtu_shift_;
      outcome.bytes += bytes - head_bytes_counted_;
      head_bytes_counted_ = bytes;
      break;
    }
    if (carries) {
      outcome.bytes += first.bytes - head_bytes_counted_;
    } else {
      --waiting_;
      if (head_ < sending_) --outstanding_;
    }
    head_bytes_counted_ = 0;
    ++head_;
  }
  if (sending_ < head_) sending_ = head_;
}

}  // namespace etloop
