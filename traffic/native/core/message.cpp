#include "core/message.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace etloop {

void seek(LaneCursor& cursor, uint8_t flag) {
  while (!cursor.done() && (cursor.step().kind & flag) == 0) cursor.advance();
}

void LaneRun::execute() {
  const LaneStep step = execution.step();
  if ((step.kind & kEntryRecv) != 0) {
    receiving.arrived >>= 1;
    ++receiving.consumed;
  }
  if ((step.kind & kEntrySend) != 0) ++sending.handed;
  execution.advance();
}

MessagePart message_part(int64_t message_bytes, uint32_t part, uint32_t parts) {
  constexpr int64_t kUnit = 128;
  const int64_t share = ((message_bytes + parts - 1) / parts + kUnit - 1) / kUnit * kUnit;
  const int64_t offset = std::min(part * share, message_bytes);
  return {static_cast<uint32_t>(offset), static_cast<uint32_t>(std::min(share, message_bytes - offset))};
}

uint32_t LaneRun::grant(int64_t& bytes) {
  bytes = granting.step().wire_bytes;
  receiving.expected_bytes[receiving.granted % kMaxSlots] = static_cast<uint32_t>(bytes);
  receiving.missing_parts[receiving.granted % kMaxSlots] = receiving.parts;
  granting.advance();
  seek(granting, kEntryRecv);
  return receiving.granted++;
}

uint32_t LaneRun::post(int64_t& bytes, uint32_t parts) {
  bytes = posting.step().wire_bytes;
  sending.unacknowledged_parts[sending.posted % kMaxSlots] = static_cast<uint8_t>(parts);
  sending.done_ahead &= ~(uint64_t{1} << (sending.posted % kMaxSlots));
  posting.advance();
  seek(posting, kEntrySend);
  return sending.posted++;
}

bool LaneRun::acknowledge(uint32_t index) {
  assert(index >= sending.acknowledged && index < sending.posted);
  if (--sending.unacknowledged_parts[index % kMaxSlots] != 0) return false;
  note_done(index);
  sending.acknowledged_ahead |= uint64_t{1} << (index - sending.acknowledged);
  // Free slots in order: NCCL's proxy tests its requests in order.
  const auto in_order = static_cast<uint32_t>(std::countr_one(sending.acknowledged_ahead));
  sending.acknowledged_ahead = in_order == kMaxSlots ? 0 : sending.acknowledged_ahead >> in_order;
  sending.acknowledged += in_order;
  return true;
}

void LaneRun::leave(uint32_t index) {
  assert(sending.leaving > 0);
  --sending.leaving;
  if (index == kClosingIndex) {
    if (sending.closing == LaneSender::Closing::posted) sending.closing = LaneSender::Closing::left;
  } else if (--sending.staying_parts[index % kMaxSlots] == 0) {
    note_done(index);
  }
}

void LaneRun::note_done(uint32_t index) {
  const uint64_t bit = uint64_t{1} << (index % kMaxSlots);
  if ((sending.done_ahead & bit) != 0) return;
  sending.done_ahead |= bit;
  ++sending.done;
}

LaneRun::Arrival LaneRun::arrive(uint32_t index, int64_t bytes) {
  if (one_sided || index >= receiving.granted) return Arrival::not_granted;
  if (index < receiving.consumed) return Arrival::repeated;
  const uint64_t bit = uint64_t{1} << (index - receiving.consumed);
  if ((receiving.arrived & bit) != 0) return Arrival::repeated;
  if (receiving.expected_bytes[index % kMaxSlots] != bytes) return Arrival::wrong_size;
  if (--receiving.missing_parts[index % kMaxSlots] == 0) receiving.arrived |= bit;
  return Arrival::accepted;
}

LaneRun::Arrival LaneRun::arrive_next(int64_t bytes) {
  if (!one_sided || receiving.closed) return Arrival::not_granted;
  for (; !granting.done() && granting.step().wire_bytes == 0; ++receiving.granted) {
    granting.advance();
    seek(granting, kEntryRecv);
  }
  if (granting.done()) return Arrival::not_granted;
  if (granting.step().wire_bytes != bytes) return Arrival::wrong_size;
  granting.advance();
  seek(granting, kEntryRecv);
  ++receiving.granted;
  return Arrival::accepted;
}

LaneRun::Arrival LaneRun::close() {
  if (!one_sided || receiving.closed) return Arrival::not_granted;
  for (; !granting.done(); ++receiving.granted) {
    if (granting.step().wire_bytes != 0) return Arrival::not_granted;
    granting.advance();
    seek(granting, kEntryRecv);
  }
  receiving.closed = true;
  return Arrival::accepted;
}

bool LaneRun::arrive_unseen(uint64_t messages, int64_t& bytes) {
  if (!one_sided || receiving.closed) return false;
  bytes = 0;
  uint64_t counted = 0;
  for (; !granting.done(); ++receiving.granted) {
    const int64_t next = granting.step().wire_bytes;
    bytes += next;
    if (next != 0) ++counted;
    granting.advance();
    seek(granting, kEntryRecv);
  }
  receiving.closed = true;
  return counted == messages;
}

bool LaneRun::arrive_early(uint32_t messages, int64_t bytes) {
  for (; messages > 0 && !granting.done(); ++receiving.granted) {
    const int64_t next = granting.step().wire_bytes;
    bytes -= next;
    if (next != 0) --messages;
    granting.advance();
    seek(granting, kEntryRecv);
  }
  return messages == 0 && bytes == 0;
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

void ActiveLanes::add(uint32_t tag, uint32_t lane) {
  if (active_.empty() || active_.back().tag < tag) {
    active_.push_back({tag, lane});
    return;
  }
  active_.insert(std::ranges::lower_bound(active_, tag, {}, &Item::tag), {tag, lane});
}

void ActiveLanes::remove(uint32_t tag) {
  const auto item = std::ranges::lower_bound(active_, tag, {}, &Item::tag);
  assert(item != active_.end() && item->tag == tag);
  active_.erase(item);
}

uint32_t ActiveLanes::find(uint32_t tag) const {
  const auto item = std::ranges::lower_bound(active_, tag, {}, &Item::tag);
  return item == active_.end() || item->tag != tag ? kNone : item->lane;
}

void SlotQueue::add(LanePool& lanes, uint32_t lane) {
  LaneRun& waiting = lanes[lane];
  if (waiting.waits_for_slot) return;
  uint32_t before = last_;
  uint32_t after = kNoLane;
  if (last_ != kNoLane && lanes[last_].tag > waiting.tag) {
    // One that had a slot before: near the first.
    after = first_;
    while (lanes[after].tag < waiting.tag) after = lanes[after].waits_before;
    before = lanes[after].waits_after;
  }
  waiting.waits_for_slot = true;
  waiting.waits_after = before;
  waiting.waits_before = after;
  (before == kNoLane ? first_ : lanes[before].waits_before) = lane;
  (after == kNoLane ? last_ : lanes[after].waits_after) = lane;
}

void SlotQueue::remove(LanePool& lanes, uint32_t lane) {
  LaneRun& waiting = lanes[lane];
  if (!waiting.waits_for_slot) return;
  waiting.waits_for_slot = false;
  (waiting.waits_after == kNoLane ? first_ : lanes[waiting.waits_after].waits_before) = waiting.waits_before;
  (waiting.waits_before == kNoLane ? last_ : lanes[waiting.waits_before].waits_after) = waiting.waits_after;
}

bool EarlyGrants::add(uint32_t tag, const Grant& grant) {
  if (early_.size() >= kLimit) return false;
  early_.push_back({tag, grant});
  return true;
}

bool EarlyGrants::take(LaneRun& lane) {
  const auto has_tag = [&](const Item& item) { return item.tag == lane.tag; };
  for (const Item& item : early_) {
    if (!has_tag(item)) continue;
    if (lane.sending.credits >= kMaxSlots) return false;
    lane.credit(item.grant);
  }
  early_.erase(std::remove_if(early_.begin(), early_.end(), has_tag), early_.end());
  return true;
}

bool EarlyArrivals::add(uint32_t tag, int64_t bytes, bool closing) {
  auto item = std::find_if(early_.begin(), early_.end(), [&](const Item& candidate) { return candidate.tag == tag; });
  if (item == early_.end()) {
    if (early_.size() >= kLimit) return false;
    item = early_.insert(early_.end(), Item{tag, 0, 0, false});
  }
  if (item->closed) return false;
  item->closed = closing;
  if (!closing) {
    ++item->messages;
    item->bytes += bytes;
  }
  return true;
}

EarlyArrivals::Item EarlyArrivals::take(uint32_t tag) {
  const auto item = std::find_if(early_.begin(), early_.end(), [&](const Item& candidate) { return candidate.tag == tag; });
  if (item == early_.end()) return Item{tag, 0, 0, false};
  const Item taken = *item;
  *item = early_.back();
  early_.pop_back();
  return taken;
}

}  // namespace etloop
