// The numbers of a port's packet delivery contexts: whose each is. A number that is given back is taken again as late as
// possible, so that packets that come late find nobody rather than somebody else. 0 is nobody's.
#pragma once

#include <cassert>
#include <cstdint>
#include <vector>

namespace etloop::uet {

enum class PdcRole : uint8_t { initiator, target };

class PdcIds {
 public:
  static constexpr uint32_t kMost = 65'535;
  struct Owner {
    uint32_t end = 0;
    PdcRole role = PdcRole::initiator;
    bool taken = false;
  };

  // Numbers 1 to `count`, at most kMost.
  explicit PdcIds(uint32_t count) : owners_(count + 1), free_(count) {
    for (uint32_t i = 0; i < count; ++i) free_[i] = static_cast<uint16_t>(i + 1);
    left_ = count;
  }

  // Requires one that is free: an end has at most two in each role, one of them closed.
  uint16_t take(uint32_t end, PdcRole role) {
    assert(left_ > 0);
    const uint16_t id = free_[head_];
    head_ = (head_ + 1) % free_.size();
    --left_;
    owners_[id] = {end, role, true};
    return id;
  }
  void give_back(uint16_t id) {
    if (id == 0) return;
    owners_[id].taken = false;
    free_[(head_ + left_) % free_.size()] = id;
    ++left_;
  }
  // nullptr: nobody's.
  const Owner* find(uint16_t id) const {
    return id < owners_.size() && owners_[id].taken ? &owners_[id] : nullptr;
  }

 private:
  std::vector<Owner> owners_;
  std::vector<uint16_t> free_;
  size_t head_ = 0;
  size_t left_ = 0;
};

}  // namespace etloop::uet
