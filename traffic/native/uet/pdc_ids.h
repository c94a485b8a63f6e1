// Allocates the PDC ids of a port, with their current and former owners. A released id is reused as late as possible, so that
// late packets do not match another context. Id 0 is not used.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <vector>

namespace etloop::uet {

enum class PdcRole : uint8_t { initiator, target };

class PdcIds {
 public:
  static constexpr uint32_t kMost = 65'535;
  static constexpr uint32_t kNoEnd = UINT32_MAX;
  struct Owner {
    uint32_t end = kNoEnd;
    PdcRole role = PdcRole::initiator;
    bool in_use = false;
  };

  // Ids 1 to `count`, at most kMost.
  explicit PdcIds(uint32_t count) : owners_(count + 1), former_(count + 1), free_(count) {
    for (uint32_t i = 0; i < count; ++i) free_[i] = static_cast<uint16_t>(i + 1);
    left_ = count;
  }

  // Requires a free id: an end has at most two per role, one of them closed.
  uint16_t take(uint32_t end, PdcRole role) {
    assert(left_ > 0);
    const uint16_t id = free_[head_];
    head_ = (head_ + 1) % free_.size();
    --left_;
    if (owners_[id].end != kNoEnd) former_[id] = owners_[id];
    owners_[id] = {end, role, true};
    return id;
  }
  void give_back(uint16_t id) {
    if (id == 0) return;
    owners_[id].in_use = false;
    free_[(head_ + left_) % free_.size()] = id;
    ++left_;
  }
  // Return the owner of an id; nullptr: none.
  const Owner* find(uint16_t id) const {
    return id < owners_.size() && owners_[id].in_use ? &owners_[id] : nullptr;
  }
  // Return the last two owners of an id, current or not; kNoEnd where there were fewer.
  std::array<Owner, 2> last_owners(uint16_t id) const {
    return id < owners_.size() ? std::array{owners_[id], former_[id]} : std::array<Owner, 2>{};
  }

 private:
  std::vector<Owner> owners_;
  std::vector<Owner> former_;  // by id: owner before the current one
  std::vector<uint16_t> free_;
  size_t head_ = 0;
  size_t left_ = 0;
};

}  // namespace etloop::uet
