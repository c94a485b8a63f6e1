// A timer wheel for events that are mostly close in time, as those of links: a slot per short interval, and a bit per non-empty
// slot. Same order as TimeHeap: by time, then by insertion. Events far ahead, or in the past, go through a heap.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "base/time_heap.h"

namespace etloop {

// `Event` has `at_ns`, at least 0, and `order`: its owner (below 2^16), to which the wheel adds the insertion number.
template <typename Event>
class TimeWheel {
 public:
  static constexpr size_t kSlots = 4096;
  static constexpr unsigned kOwnerBits = 16;

  // `spacing_ns`: approximate slot length. Affects only speed.
  explicit TimeWheel(Nanos spacing_ns)
      : shift_(static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(std::max<Nanos>(spacing_ns, 1)))) - 1),
        slots_(kSlots) {}

  static uint16_t owner_of(const Event& event) { return static_cast<uint16_t>(event.order); }

  bool empty() const { return next_ns_ == kNever; }
  Nanos next_ns() const { return next_ns_; }
  // Requires a non-empty wheel.
  const Event& front() const {
    assert(!empty());
    return far_is_first() ? far_.front() : nodes_[first_].event;
  }

  // Always inlined: copying an event right after assembling it in memory would stall on store forwarding.
  [[gnu::always_inline]] void push(Event event) {
    event.order |= sequence_++ << kOwnerBits;
    next_ns_ = std::min(next_ns_, event.at_ns);
    put(event);
  }

  Event pop() {
    assert(!empty());
    const Event event = far_is_first() ? pop_far() : pop_slot();
    turn_ = std::max(turn_, turn_of(event));
    next_ns_ = std::min(first_ns_, far_ns_);
    return event;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kWordBits = 64;
  static_assert(kSlots == kWordBits * kWordBits, "one word of bits marks the words with non-empty slots");

  struct Node {
    Event event;
    uint32_t next = kNone;  // next in its slot, or in the free list
  };
  struct Slot {
    uint32_t head = kNone;
    uint32_t tail = kNone;
  };

  static bool before(const Event& a, const Event& b) { return is_before(a, b); }
  uint64_t turn_of(const Event& event) const { return static_cast<uint64_t>(event.at_ns) >> shift_; }
  bool far_is_first() const {
    return far_ns_ < first_ns_ || (far_ns_ == first_ns_ && before(far_.front(), nodes_[first_].event));
  }

  // Rare cases are calls in tail position, so that the common one saves no registers.
  [[gnu::always_inline]] void put(const Event& event) {
    const uint64_t turn = turn_of(event);
    if (turn - turn_ >= kSlots) [[unlikely]] return put_far(event);  // also for the past
    if (free_ == kNone) [[unlikely]] return put_in_new_node(event);
    const uint32_t added = free_;
    free_ = nodes_[added].next;
    nodes_[added] = {event, kNone};
    Slot& slot = slots_[turn % kSlots];
    if (slot.head == kNone) {
      slot.head = slot.tail = added;
      const size_t word = turn % kSlots / kWordBits;
      filled_[word] |= uint64_t{1} << turn % kWordBits;
      filled_words_ |= uint64_t{1} << word;
    } else {
      link(slot, added);
    }
    if (event.at_ns < first_ns_) {
      first_ = added;
      first_ns_ = event.at_ns;
    }
  }

  [[gnu::noinline]] void put_far(Event event) {
    far_.put(event);
    far_ns_ = far_.next_ns();
  }

  [[gnu::noinline]] void put_in_new_node(Event event) {
    free_ = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back();
    put(event);
  }

  // Insert in order into a slot with events, mostly at the end. Of events at one time, the inserted one is the last.
  void link(Slot& slot, uint32_t added) {
    const Event& event = nodes_[added].event;
    if (event.at_ns >= nodes_[slot.tail].event.at_ns) {
      nodes_[slot.tail].next = added;
      slot.tail = added;
    } else {
      uint32_t* at = &slot.head;
      while (event.at_ns >= nodes_[*at].event.at_ns) at = &nodes_[*at].next;
      nodes_[added].next = *at;
      *at = added;
    }
  }

  [[gnu::noinline]] Event pop_far() {
    const Event event = far_.pop();
    far_ns_ = far_.next_ns();
    return event;
  }

  Event pop_slot() {
    const uint32_t popped = first_;
    Node& node = nodes_[popped];
    const uint64_t turn = turn_of(node.event);
    Slot& slot = slots_[turn % kSlots];
    assert(slot.head == popped);
    slot.head = node.next;
    node.next = free_;
    free_ = popped;
    if (slot.head == kNone) {
      slot.tail = kNone;
      const size_t word = turn % kSlots / kWordBits;
      filled_[word] &= ~(uint64_t{1} << turn % kWordBits);
      if (filled_[word] == 0) filled_words_ &= ~(uint64_t{1} << word);
      first_ = first_from(turn % kSlots);
    } else {
      first_ = slot.head;
    }
    first_ns_ = first_ == kNone ? kNever : nodes_[first_].event.at_ns;
    return node.event;
  }

  // Return the head of the first non-empty slot, from `slot` on with wrap-around.
  uint32_t first_from(size_t slot) const {
    if (filled_words_ == 0) return kNone;
    const size_t word = slot / kWordBits;
    if (const uint64_t rest = filled_[word] >> slot % kWordBits; rest != 0) {
      return slots_[slot + static_cast<size_t>(std::countr_zero(rest))].head;
    }
    // First the words after this one, then from the first word, then this word's slots before `slot`.
    const uint64_t behind = word + 1 == kWordBits ? 0 : filled_words_ >> (word + 1) << (word + 1);
    const auto next = static_cast<size_t>(std::countr_zero(behind != 0 ? behind : filled_words_));
    return slots_[next * kWordBits + static_cast<size_t>(std::countr_zero(filled_[next]))].head;
  }

  unsigned shift_;
  Nanos next_ns_ = kNever;  // cached: read far more often than it changes
  Nanos first_ns_ = kNever;  // of the first event in the slots
  Nanos far_ns_ = kNever;    // of the first event in `far_`
  uint32_t first_ = kNone;   // first event in the slots
  uint32_t free_ = kNone;
  uint64_t turn_ = 0;  // turn of the last event popped: slots cover the kSlots turns from there
  uint64_t filled_words_ = 0;
  std::array<uint64_t, kWordBits> filled_{};
  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  TimeHeap<Event> far_;
  uint64_t sequence_ = 0;
};

}  // namespace etloop
