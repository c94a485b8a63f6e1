// Reports to peers which planes of a card are up, repeated until acknowledged, and the peers' reports about theirs. Pure. Port
// status updates of OCP MRC 1.0, as interpreted in docs/mrc.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "multipath/path_states.h"

namespace etloop {

class PlaneReports {
 public:
  // Repetition interval and limit; a peer that received no report detects the change by its losses.
  static constexpr Nanos kRepeatNs = 50'000;
  static constexpr uint8_t kMostTimes = 16;

  struct Due {
    uint32_t peer = 0;
    uint16_t id = 0;
    uint32_t planes_up = 0;  // planes of this end
  };

  // Add a peer card, whose paths outlive this. Returns its index.
  uint32_t add(multipath::PathStates& paths) {
    peers_.push_back({.paths = &paths});
    return static_cast<uint32_t>(peers_.size() - 1);
  }

  // The planes of this end that are up changed: use only these from now on, and report to every peer.
  void changed(uint32_t planes_up, Nanos now) {
    planes_up_ = planes_up;
    if (++id_ == 0) ++id_;
    for (Peer& peer : peers_) {
      peer.left = kMostTimes;
      peer.due_ns = now;
      use(peer);
    }
    due_ns_ = now;
  }
  // A peer reported which of its planes are up. False: a newer report is known.
  bool heard(uint32_t number, uint16_t id, uint32_t planes_up) {
    Peer& peer = peers_[number];
    if (peer.heard && static_cast<int16_t>(id - peer.id) < 0) return false;
    peer.heard = true;
    peer.id = id;
    peer.planes_up = planes_up;
    use(peer);
    return true;
  }
  void answered(uint32_t number, uint16_t id) {
    if (id == id_) peers_[number].due_ns = kNever;
  }

  // Time of the next report; kNever: none is pending.
  Nanos due_ns() const { return due_ns_; }
  // Get a report to send now. False: none, and `due_ns` is the next time.
  bool next_due(Nanos now, Due& due) {
    if (due_ns_ > now) return false;
    due_ns_ = kNever;
    for (uint32_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].due_ns <= now) {
        due = {i, id_, planes_up_};
        due_ns_ = now;
        return true;
      }
      due_ns_ = std::min(due_ns_, peers_[i].due_ns);
    }
    return false;
  }
  void sent(const Due& due, Nanos now) {
    Peer& peer = peers_[due.peer];
    peer.due_ns = --peer.left == 0 ? kNever : now + kRepeatNs;
  }

 private:
  struct Peer {
    multipath::PathStates* paths = nullptr;
    uint32_t planes_up = multipath::kAllPlanes;  // as last reported
    uint16_t id = 0;                             // of its last report
    bool heard = false;
    uint8_t left = 0;
    Nanos due_ns = kNever;
  };

  void use(Peer& peer) const { peer.paths->set_planes(planes_up_ & peer.planes_up); }

  std::vector<Peer> peers_;
  uint32_t planes_up_ = multipath::kAllPlanes;
  uint16_t id_ = 0;  // of the current report
  Nanos due_ns_ = kNever;
};

}  // namespace etloop
