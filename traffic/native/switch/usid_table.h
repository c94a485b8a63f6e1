// A switch's micro segments: its own, those of its ports, and the ways to those of other switches. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wire/usid.h"

namespace etloop {

struct UsidEntry {
  uint16_t usid = 0;
  // Removed when it is first: the switch's own (uN; no ports: look up what follows) or a port's (uA). Otherwise it names another
  // switch, and stays.
  bool is_own = false;
  std::vector<uint16_t> ports;
};

struct UsidTable {
  uint32_t block = 0;
  std::vector<UsidEntry> entries;  // ascending by `usid`; empty: the switch has no segments

  bool is_in_block(const usid::Head& head) const { return !entries.empty() && head.block == block; }

  const UsidEntry* find(const usid::Head& head) const {
    if (!is_in_block(head)) return nullptr;
    size_t from = 0;
    size_t to = entries.size();
    while (from < to) {
      const size_t middle = (from + to) / 2;
      if (entries[middle].usid < head.usid) from = middle + 1;
      else to = middle;
    }
    return from < entries.size() && entries[from].usid == head.usid ? &entries[from] : nullptr;
  }

  // Return the ports for a packet with front `head`; `shift` removes the first segment and returns the new front. Empty: the
  // packet is dropped.
  template <typename Shift>
  std::span<const uint16_t> follow(usid::Head head, Shift shift) const {
    for (size_t taken = 0; taken <= usid::kMostUsids; ++taken) {
      const UsidEntry* entry = find(head);
      if (entry == nullptr) return {};
      if (entry->is_own) head = shift();
      if (!entry->ports.empty()) return entry->ports;
      if (!entry->is_own) return {};
    }
    return {};
  }
};

}  // namespace etloop
