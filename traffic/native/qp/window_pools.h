// What the queue pairs to one address may have under way together. Its receiver offers each of them a share of its buffers;
// those that have something to send use the shares of those that rest, and wait for each other in turn where that is not
// enough. Pure: told what is sent and acknowledged, tells who may go on.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ip_address.h"
#include "base/prefetch.h"
#include "wire/packet_run.h"

namespace etloop {

class WindowPools {
 public:
  static constexpr uint32_t kSharesPerPacket = 256;  // a share may be less than a packet
  static constexpr uint32_t kMostShare = (1U << 24) - 1;
  // To one address, whatever it offers: what the receive ring of a network card takes while the host looks elsewhere, and
  // half of what Linux keeps for a processor (net.core.netdev_max_backlog).
  static constexpr uint32_t kMostPackets = 512;

  // Where acknowledgements and sends cost system calls: a queue pair keeps its turn for longer, also where nobody waits for
  // room, and asks for one acknowledgement at its end.
  void keep_turns() {
    keeps_turns_ = true;
    turn_packets_ = kKeptTurnPackets;
  }
  // Before anything else, for every queue pair that is bounded; of others everything may leave.
  void add(uint32_t qp, const IpAddress& peer);
  // What the peer offered this queue pair, in 1/256 packets; 0: it does not share. The latest counts.
  void offer(uint32_t qp, uint32_t share);

  // Packets that all queue pairs to the address may have under way; 0: not bounded together.
  uint32_t limit_packets(uint32_t qp) const;
  // How many of `packets` fresh ones may leave now. 0: the queue pair waits, and `take_awake` names it when it is its turn.
  uint32_t allowed(uint32_t qp, uint32_t packets);
  // Whether a queue pair that has just sent goes on before others: where some wait for room, or turns are kept, each in turn
  // sends so many packets that one acknowledgement gives back as many.
  bool goes_on(uint32_t qp) const;
  // Whether a queue pair waits for room at the same address.
  bool anyone_waits(uint32_t qp) const;
  // It does not use its turn after all, or needs none.
  void pass(uint32_t qp);
  // Makes the last packet of a run ask for an acknowledgement where others wait and the turn ends with it, or too much is under
  // way that nobody asked for: it would hold the room of all, and its timer would run out before its queue pair's next turn.
  // `is_cut`: its queue pair may not go on at once, turn or not. `others`: it is not alone in having something to send; where
  // turns are kept, only the end of its turn asks then.
  void ask(uint32_t qp, PacketRun& run, bool is_cut = false, bool others = false) const;
  void sent(uint32_t qp, const PacketRun& run, uint32_t in_flight_packets);
  // Something was acknowledged, or is no longer under way.
  void settle(uint32_t qp, uint32_t in_flight_packets);
  // It is soon asked: first for the queue pair, then, a turn later, for its pool.
  void expect(uint32_t qp) const {
    if (qp < members_.size()) prefetch(&members_[qp]);
  }
  void expect_pool(uint32_t qp) const {
    if (const Pool* pool = pool_of(qp); pool != nullptr) prefetch(pool);
  }
  // A queue pair to the same address that waited and may go on.
  bool take_awake(uint32_t qp, uint32_t& awake);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kLeastRun = 8;  // rather than sending fewer, a queue pair waits
  // Of one queue pair while others wait. An acknowledgement costs both hosts about as much as ten packets of a run.
  static constexpr uint32_t kTurnPackets = 60;
  // Of a kept one: half a message of NCCL's usual 512 KiB. What others send meanwhile waits for it.
  static constexpr uint32_t kKeptTurnPackets = 64;

  struct Member {
    uint32_t pool = kNone;
    uint32_t share = 0;
    uint32_t under_way = 0;
    uint32_t unasked = 0;  // of those, behind the last that asked for an acknowledgement
    uint32_t turn_packets = 0;  // sent since its turn began
    uint32_t next = kNone;
    bool waits = false;
    bool awake = false;
  };
  struct Pool {
    uint64_t shares = 0;
    uint32_t under_way = 0;
    uint32_t unasked = 0;
    uint32_t awake = 0;
    uint32_t first = kNone;  // of those that wait
    uint32_t last = kNone;
  };
  Pool* pool_of(uint32_t qp);
  const Pool* pool_of(uint32_t qp) const;
  static uint32_t limit(const Pool& pool);
  static uint32_t room(const Pool& pool);
  static uint32_t least_run(const Pool& pool);
  static uint32_t turn_room(const Pool& pool);
  void wait(Pool& pool, uint32_t qp);

  bool keeps_turns_ = false;
  uint32_t turn_packets_ = kTurnPackets;  // of a queue pair before others have theirs
  std::vector<Member> members_;
  std::vector<Pool> pools_;
  std::map<IpAddress, uint32_t> pool_by_peer_;
};

}  // namespace etloop
