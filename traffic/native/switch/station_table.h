// The MAC table of a switch: static entries, and learning from source addresses, as in a bridge (IEEE 802.1Q, 8.7). Bounded;
// entries do not age: a station that sends on another port has moved, one that is gone keeps its entry.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "wire/ethernet.h"

namespace etloop {

class StationTable {
 public:
  static constexpr size_t kMostLearned = 4096;
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // Group addresses are never sources.
  static bool is_group(const ethernet::Mac& mac) { return (mac[0] & 1) != 0; }

  // 01-80-C2-00-00-00 to -0F are not forwarded (IEEE 802.1Q, table 8-1): pauses, LLDP, LACP, spanning tree.
  static bool ends_here(const ethernet::Mac& mac) {
    return key_of(mac) >> 4 == 0x0180C200000ULL;
  }

  // Add a static entry, which learning does not change.
  void fix(const ethernet::Mac& mac, uint32_t port) { places_[key_of(mac)] = {port, true}; }

  // `mac` was the source of a frame on that port. Beyond kMostLearned, new stations stay unknown.
  void learn(const ethernet::Mac& mac, uint32_t port) {
    if (is_group(mac)) return;
    const uint64_t key = key_of(mac);
    if (const auto entry = places_.find(key); entry != places_.end()) {
      if (!entry->second.fixed) entry->second.port = port;
    } else if (learned_ < kMostLearned) {
      places_.emplace(key, Place{port, false});
      ++learned_;
    }
  }

  // Return the port of a station; kNowhere: unknown.
  uint32_t find(const ethernet::Mac& mac) const {
    const auto entry = places_.find(key_of(mac));
    return entry == places_.end() ? kNowhere : entry->second.port;
  }

 private:
  struct Place {
    uint32_t port;
    bool fixed;
  };

  static uint64_t key_of(const ethernet::Mac& mac) {
    uint64_t key = 0;
    for (const uint8_t byte : mac) key = key << 8 | byte;
    return key;
  }

  std::unordered_map<uint64_t, Place> places_;
  size_t learned_ = 0;
};

}  // namespace etloop
