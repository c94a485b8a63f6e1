#include "message.h"

#include <algorithm>
#include <cassert>

namespace etloop {

void seek(LaneCursor& cursor, uint8_t flag) {
  while (!cursor.done() && (cursor.step().kind & flag) == 0) cursor.advance();
}

void LaneRun::execute() {
  const LaneStep step = execution.step();
  if ((step.kind & kEntryRecv) != 0) {
    arrived >>= 1;
    ++consumed;
  }
  if ((step.kind & kEntrySend) != 0) ++handed;
  execution.advance();
}

uint32_t LaneRun::grant(int64_t& bytes) {
  bytes = granting.step().bytes;
  expected_bytes[granted % 64] = bytes;
  granting.advance();
  seek(granting, kEntryRecv);
  return granted++;
}

uint32_t LaneRun::post(int64_t& bytes) {
  bytes = posting.step().bytes;
  posting.advance();
  seek(posting, kEntrySend);
  return posted++;
}

LaneRun::Arrival LaneRun::arrive(uint32_t index, int64_t bytes) {
  if (index >= granted) return Arrival::not_granted;
  if (index < consumed) return Arrival::repeated;
  const uint64_t bit = uint64_t{1} << (index - consumed);
  if ((arrived & bit) != 0) return Arrival::repeated;
  if (expected_bytes[index % 64] != bytes) return Arrival::wrong_size;
  arrived |= bit;
  return Arrival::accepted;
}

uint32_t LanePool::open() {
  uint32_t lane;
  if (free_.empty()) {
    lane = static_cast<uint32_t>(lanes_.size());
    lanes_.emplace_back();
  } else {
    lane = free_.back();
    free_.pop_back();
    lanes_[lane] = LaneRun{};
  }
  lanes_[lane].in_use = true;
  return lane;
}

void LanePool::close(uint32_t lane) {
  assert(lanes_[lane].in_use);
  lanes_[lane].in_use = false;
  free_.push_back(lane);
}

void ActiveLanes::remove(uint32_t tag) {
  for (Item& item : active_) {
    if (item.tag != tag) continue;
    item = active_.back();
    active_.pop_back();
    return;
  }
  assert(false);
}

uint32_t ActiveLanes::find(uint32_t tag) const {
  for (const Item& item : active_) {
    if (item.tag == tag) return item.lane;
  }
  return kNone;
}

bool EarlyGrants::add(uint32_t tag, const GrantedPlace& place) {
  if (early_.size() >= kLimit) return false;
  early_.push_back({tag, place});
  return true;
}

bool EarlyGrants::take(uint32_t tag, LaneRun& lane) {
  bool fits = true;
  const auto taken = std::remove_if(early_.begin(), early_.end(), [&](const Item& item) {
    if (item.tag != tag) return false;
    fits = lane.credit(item.place) && fits;
    return true;
  });
  early_.erase(taken, early_.end());
  return fits;
}

}  // namespace etloop
