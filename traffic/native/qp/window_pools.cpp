#include "qp/window_pools.h"

#include <algorithm>
#include <utility>

namespace etloop {

void WindowPools::add(uint32_t qp, const IpAddress& peer) {
  const auto [at, is_new] = pool_by_peer_.try_emplace(peer, static_cast<uint32_t>(pools_.size()));
  if (is_new) pools_.emplace_back();
  if (members_.size() <= qp) members_.resize(qp + 1);
  members_[qp].pool = at->second;
}

void WindowPools::offer(uint32_t qp, uint32_t share) {
  if (Pool* pool = pool_of(qp); pool != nullptr) {
    pool->shares += share;
    pool->shares -= members_[qp].share;
    members_[qp].share = share;
  }
}

const WindowPools::Pool* WindowPools::pool_of(uint32_t qp) const {
  return qp < members_.size() && members_[qp].pool != kNone ? &pools_[members_[qp].pool] : nullptr;
}

WindowPools::Pool* WindowPools::pool_of(uint32_t qp) { return const_cast<Pool*>(std::as_const(*this).pool_of(qp)); }

uint32_t WindowPools::limit(const Pool& pool) {
  constexpr uint64_t kLeast = 2;
  return static_cast<uint32_t>(std::clamp<uint64_t>(pool.shares / kSharesPerPacket, kLeast, kMostPackets));
}

uint32_t WindowPools::room(const Pool& pool) { return limit(pool) - std::min(limit(pool), pool.under_way); }

uint32_t WindowPools::least_run(const Pool& pool) { return std::clamp(limit(pool) / 4, 1U, kLeastRun); }

// Room required before another queue pair's turn begins.
uint32_t WindowPools::turn_room(const Pool& pool) { return std::clamp(limit(pool) / 4, 1U, kTurnPackets); }

uint32_t WindowPools::limit_packets(uint32_t qp) const {
  const Pool* pool = pool_of(qp);
  return pool == nullptr || pool->shares == 0 ? 0 : limit(*pool);
}

bool WindowPools::goes_on(uint32_t qp) const {
  const Pool* pool = pool_of(qp);
  if (pool == nullptr || (pool->first == kNone && !keeps_turns_)) return false;
  const uint32_t sent = members_[qp].turn_packets;
  return sent > 0 && sent < turn_packets_ && room(*pool) >= least_run(*pool);
}

bool WindowPools::anyone_waits(uint32_t qp) const {
  const Pool* pool = pool_of(qp);
  return pool != nullptr && pool->first != kNone;
}

void WindowPools::enqueue_waiting(Pool& pool, uint32_t qp) {
  Member& member = members_[qp];
  if (member.waits) return;
  member.waits = true;
  member.turn_packets = 0;
  // It has unrequested packets in flight: its timer would expire before its turn comes.
  if (member.unrequested > 0) {
    member.next = pool.first;
    if (pool.first == kNone) pool.last = qp;
    pool.first = qp;
    return;
  }
  member.next = kNone;
  (pool.first == kNone ? pool.first : members_[pool.last].next) = qp;
  pool.last = qp;
}

void WindowPools::pass(uint32_t qp) {
  Pool* pool = pool_of(qp);
  if (pool == nullptr) return;
  if (keeps_turns_) members_[qp].turn_packets = 0;
  if (!members_[qp].awake) return;
  members_[qp].awake = false;
  --pool->awake;
}

uint32_t WindowPools::allowed(uint32_t qp, uint32_t packets) {
  Pool* pool = pool_of(qp);
  if (pool == nullptr || pool->shares == 0) return packets;
  const bool goes_on_now = goes_on(qp);
  const bool in_turn = members_[qp].awake || pool->first == kNone || goes_on_now;
  const uint32_t turn_packets = goes_on_now ? members_[qp].turn_packets : 0;
  pass(qp);
  if (keeps_turns_) members_[qp].turn_packets = turn_packets;
  const uint32_t free = room(*pool);
  if (in_turn && free >= std::min(packets, least_run(*pool))) return std::min(packets, free);
  enqueue_waiting(*pool, qp);
  return 0;
}

void WindowPools::ask(uint32_t qp, PacketRun& run, bool is_cut, bool others) const {
  const Pool* pool = pool_of(qp);
  if (pool == nullptr || pool->shares == 0) return;
  const bool turn_goes_on = !is_cut && members_[qp].turn_packets + run.count < turn_packets_ &&
                            room(*pool) >= run.count + least_run(*pool);
  const bool in_company = pool->first != kNone || (keeps_turns_ && others);
  if ((in_company && !turn_goes_on) || pool->unrequested + run.count > limit(*pool) / 2) {
    ask_at_end(run);
  } else if (in_company && keeps_turns_ && run.count > 1) {
    run.ack_every = 0;
  }
}

void WindowPools::sent(uint32_t qp, const PacketRun& run, uint32_t in_flight_packets) {
  Pool* pool = pool_of(qp);
  if (pool == nullptr) return;
  Member& member = members_[qp];
  const uint32_t asked = last_asked(run);
  const uint32_t behind = asked == kNoPacket ? member.unrequested + run.count : run.head.psn + run.count - 1 - asked;
  pool->unrequested += behind - member.unrequested;
  member.unrequested = behind;
  member.turn_packets = pool->first == kNone && !keeps_turns_ ? 0 : member.turn_packets + run.count;
  settle(qp, in_flight_packets);
}

void WindowPools::settle(uint32_t qp, uint32_t in_flight_packets) {
  Pool* pool = pool_of(qp);
  if (pool == nullptr) return;
  Member& member = members_[qp];
  const uint32_t unrequested = std::min(member.unrequested, in_flight_packets);
  pool->unrequested += unrequested - member.unrequested;
  member.unrequested = unrequested;
  pool->under_way += in_flight_packets - member.under_way;
  member.under_way = in_flight_packets;
}

bool WindowPools::take_awake(uint32_t qp, uint32_t& awake) {
  Pool* pool = pool_of(qp);
  if (pool == nullptr || pool->first == kNone) return false;
  if (room(*pool) < uint64_t{turn_room(*pool)} * (pool->awake + 1)) return false;
  awake = pool->first;
  Member& member = members_[awake];
  pool->first = member.next;
  member.waits = false;
  member.awake = true;
  ++pool->awake;
  return true;
}

}  // namespace etloop
