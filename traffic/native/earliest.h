// Which of a fixed number of parts has something to do first: a tree of matches, of which one path changes with a part.
#pragma once

#include <cstddef>
#include <vector>

#include "port.h"

namespace etloop {

class Earliest {
 public:
  explicit Earliest(size_t parts) {
    while (leaves_ < parts) leaves_ *= 2;
    times_.assign(2 * leaves_, kNever);
  }

  Nanos next_ns() const { return times_[1]; }
  // The first of the parts that are due at `next_ns`; requires one.
  size_t next() const {
    size_t node = 1;
    while (node < leaves_) node = times_[2 * node] == times_[1] ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }
  // The part that is next after `next()`, or is it itself where there is one only.
  size_t second() const {
    size_t node = 1;
    size_t best = next() + leaves_;
    Nanos best_ns = kNever;
    while (node < leaves_) {
      const size_t winner = times_[2 * node] == times_[1] ? 2 * node : 2 * node + 1;
      if (times_[winner ^ 1] < best_ns) best_ns = times_[best = winner ^ 1];
      node = winner;
    }
    while (best < leaves_) best = times_[2 * best] == best_ns ? 2 * best : 2 * best + 1;
    return best - leaves_;
  }
  void set(size_t part, Nanos due_ns) {
    size_t node = leaves_ + part;
    times_[node] = due_ns;
    while (node > 1) {
      node /= 2;
      const Nanos least_ns = times_[2 * node] < times_[2 * node + 1] ? times_[2 * node] : times_[2 * node + 1];
      if (times_[node] == least_ns) return;
      times_[node] = least_ns;
    }
  }

 private:
  size_t leaves_ = 1;
  std::vector<Nanos> times_;  // a parent has the earlier of its two children's
};

}  // namespace etloop
