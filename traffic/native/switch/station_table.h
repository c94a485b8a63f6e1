// At which port of a switch a station is found: given, or learned from what it sends, as a bridge learns (IEEE 802.1Q, 8.7).
// Bounded, and nothing is forgotten: a station that spoke elsewhere has moved, one that is gone keeps its place.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "wire/ethernet.h"

namespace etloop {

class StationTable {
 public:
  static constexpr size_t kMostLearned = 4096;
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // Group addresses: a frame for one is for several, and nobody sends from one.
  static bool is_group(const ethernet::Mac& mac) { return (mac[0] & 1) != 0; }

  // 01-80-C2-00-00-00 to -0F end at the switch itself (IEEE 802.1Q, table 8-1): pauses, LLDP, LACP, spanning tree.
  static bool ends_here(const ethernet::Mac& mac) {
    return key_of(mac) >> 4 == 0x0180C200000ULL;
  }

  // A station that stays where it is, whatever is sent in its name.
  void fix(const ethernet::Mac& mac, uint32_t port) { places_[key_of(mac)] = {port, true}; }

  // `mac` was the source of a frame from that port. Beyond kMostLearned, new ones stay unknown.
  void learn(const ethernet::Mac& mac, uint32_t port) {
    if (is_group(mac)) return;
    const uint64_t key = key_of(mac);
    if (const auto found = places_.find(key); found != places_.end()) {
      if (!found->second.fixed) found->second.port = port;
    } else if (learned_ < kMostLearned) {
      places_.emplace(key, Place{port, false});
      ++learned_;
    }
  }

  // kNowhere: nobody knows it.
  uint32_t find(const ethernet::Mac& mac) const {
    const auto found = places_.find(key_of(mac));
    return found == places_.end() ? kNowhere : found->second.port;
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
