// What peers are told of the planes of a card that went down or came up, until each has answered; and what they said of theirs.
// Pure. Port status updates of OCP MRC 1.0, as read by docs/mrc.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "multipath/path_states.h"

namespace etloop {

class PlaneReports {
 public:
  // Told again so often and so many times; a peer that heard none of it finds out by what it loses.
  static constexpr Nanos kRepeatNs = 50'000;
  static constexpr uint8_t kMostTimes = 16;

  struct Due {
    uint32_t peer = 0;
    uint16_t id = 0;
    uint32_t planes_up = 0;  // of this end
  };

  // Another card that queue pairs lead to, whose paths outlive this. Returns its number.
  uint32_t add(multipath::PathStates& paths) {
    peers_.push_back({.paths = &paths});
    return static_cast<uint32_t>(peers_.size() - 1);
  }

  // Other planes of this end are up than before: they alone are used from now on, and every peer is told.
  void changed(uint32_t planes_up, Nanos now) {
    own_ = planes_up;
    if (++id_ == 0) ++id_;
    for (Peer& peer : peers_) {
      peer.left = kMostTimes;
      peer.due_ns = now;
      use(peer);
    }
    due_ns_ = now;
  }
  // A peer told which of its planes are up. False: something newer was known.
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

  // When a peer is to be told next; kNever: nobody is.
  Nanos due_ns() const { return due_ns_; }
  // One of those that are to be told now. False: nobody is, and `due_ns` says when.
  bool next_due(Nanos now, Due& due) {
    if (due_ns_ > now) return false;
    due_ns_ = kNever;
    for (uint32_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].due_ns <= now) {
        due = {i, id_, own_};
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
    uint32_t planes_up = multipath::kAllPlanes;  // as it said last
    uint16_t id = 0;                             // of what it said last
    bool heard = false;
    uint8_t left = 0;
    Nanos due_ns = kNever;
  };

  void use(Peer& peer) const { peer.paths->set_planes(own_ & peer.planes_up); }

  std::vector<Peer> peers_;
  uint32_t own_ = multipath::kAllPlanes;
  uint16_t id_ = 0;  // of what is told
  Nanos due_ns_ = kNever;
};

}  // namespace etloop
