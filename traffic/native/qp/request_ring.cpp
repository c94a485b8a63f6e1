#include "qp/request_ring.h"

#include <cassert>
#include <utility>

#include "wire/wire.h"

namespace etloop {

using wire::psn_distance;

namespace {

constexpr size_t kFirstRing = 4;

constexpr bool is_atomic(WorkKind kind) { return kind == WorkKind::fetch_add || kind == WorkKind::compare_swap; }

}  // namespace

void RequestRing::post(const WorkRequest& request) {
  if (ring_.empty()) ring_.resize(kFirstRing);
  if (tail_ - completed_ == ring_.size()) {
    std::pmr::vector<WorkRequest> larger(ring_.size() * 2, ring_.get_allocator());
    for (uint64_t i = completed_; i < tail_; ++i) larger[i & (larger.size() - 1)] = entry(i);
    ring_ = std::move(larger);
  }
  WorkRequest& slot = entry(tail_);
  slot = request;
  if (is_atomic(request.kind)) slot.bytes = kAtomicOperandBytes;
  slot.first_psn = post_psn_;
  slot.packets = slot.bytes == 0 ? 1 : (slot.bytes + (1U << mtu_shift_) - 1) >> mtu_shift_;
  assert(slot.packets <= kMostPacketsPerRequest);
  post_psn_ = (post_psn_ + slot.packets) & wire::kPsnMask;
  if (waits_for_response(request.kind)) ++waiting_;
  ++tail_;
}

WorkRequest& RequestRing::at_psn(uint32_t psn) {
  uint64_t position = head_;
  while (psn_distance(end_of(entry(position)), psn) <= 0) ++position;
  return entry(position);
}

uint32_t RequestRing::first_response_before(uint32_t end, uint32_t oldest) const {
  for (uint64_t position = head_; position != tail_; ++position) {
    const WorkRequest& request = entry(position);
    if (psn_distance(request.first_psn, end) >= 0) return end;
    if (waits_for_response(request.kind)) return psn_distance(request.first_psn, oldest) > 0 ? request.first_psn : oldest;
  }
  return end;
}

void RequestRing::rewind(uint32_t psn) {
  sending_ = head_;
  outstanding_ = 0;
  while (sending_ != tail_) {
    const WorkRequest& candidate = entry(sending_);
    if (psn_distance(end_of(candidate), psn) > 0) break;
    ++sending_;
  }
  if (waiting_ == 0) return;
  for (uint64_t position = head_; position != sending_; ++position) {
    if (waits_for_response(entry(position).kind)) ++outstanding_;
  }
}

void RequestRing::flush() {
  for (; head_ != tail_; ++head_) entry(head_).flushed = true;
  sending_ = head_;
  waiting_ = 0;
  outstanding_ = 0;
}

}  // namespace etloop
