// Which of a fixed number of parts has something to do first: a tree of matches, of which one path changes with a part. Which
// part wins cannot be foretold, so a path is played without branches.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "port.h"

namespace etloop {

class Earliest {
 public:
  static constexpr unsigned kPartBits = 20;
  static constexpr size_t kMostParts = size_t{1} << kPartBits;

  explicit Earliest(size_t parts) {
    assert(parts <= kMostParts);
    while (leaves_ < parts) leaves_ *= 2;
    matches_.assign(2 * leaves_, kNothing);
  }

  bool empty() const { return matches_[1] == kNothing; }
  Nanos next_ns() const { return static_cast<Nanos>(matches_[1] >> 64); }
  // The part that is due at `next_ns`; of several that with the least order, then the first. Requires one.
  size_t next() const { return part_of(matches_[1]); }
  // The part that is next after it, or is it itself where no other has anything to do.
  size_t second() const {
    Key best = kNothing;
    for (size_t at = leaves_ + next(); at > 1; at /= 2) best = earlier(best, matches_[at ^ 1]);
    return best == kNothing ? next() : part_of(best);
  }

  // `due_ns` is not below 0; `order` has 44 bits, which are months of events.
  void set(size_t part, Nanos due_ns, uint64_t order = 0) {
    play(part, Key{static_cast<uint64_t>(due_ns)} << 64 | order << kPartBits | part);
  }
  void clear(size_t part) { play(part, kNothing); }
  // The same as `set` for a part that had nothing to do: it can only win.
  void add(size_t part, Nanos due_ns, uint64_t order) {
    const Key key = Key{static_cast<uint64_t>(due_ns)} << 64 | order << kPartBits | part;
    for (size_t at = leaves_ + part; at > 0 && key < matches_[at]; at /= 2) matches_[at] = key;
  }

 private:
  // Time, order and part in one number: the earlier is the less, and the winner is known by it.
  using Key = unsigned __int128;
  static constexpr Key kNothing = Key{static_cast<uint64_t>(kNever)} << 64 | UINT64_MAX;

  static size_t part_of(Key key) { return static_cast<uint64_t>(key) & (kMostParts - 1); }
  static Key earlier(Key a, Key b) { return b < a ? b : a; }

  void play(size_t part, Key key) {
    size_t at = leaves_ + part;
    if (matches_[at] == key) return;
    matches_[at] = key;
    while (at > 1) {
      key = earlier(key, matches_[at ^ 1]);
      at /= 2;
      matches_[at] = key;
    }
  }

  size_t leaves_ = 1;
  std::vector<Key> matches_;  // a parent has the earlier of its two children's
};

}  // namespace etloop
