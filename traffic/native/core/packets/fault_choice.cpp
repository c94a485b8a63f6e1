#include "core/packets/fault_choice.h"

namespace etloop {

namespace {

// SplitMix64's finalizer: one well mixed number per packet.
uint64_t mixed(uint64_t z) {
  z += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

bool concerns(const FaultRule& rule, const FaultEnd& end) {
  return (rule.src_rank < 0 || rule.src_rank == end.src_rank) && (rule.dst_rank < 0 || rule.dst_rank == end.dst_rank) &&
         (rule.queue_pair < 0 || rule.queue_pair == end.queue_pair) &&
         (rule.communicator == kAnyCommunicator || rule.communicator == end.communicator) &&
         (rule.channel < 0 || rule.channel == end.channel);
}

bool is_drawn(const FaultRule& rule, uint32_t rule_index, uint32_t end, uint64_t number) {
  if (rule.chance_per_million >= 1'000'000) return true;
  const uint64_t drawn = mixed(mixed(mixed(rule.seed + rule_index) ^ end) + number);
  return drawn % 1'000'000 < rule.chance_per_million;
}

}  // namespace etloop
