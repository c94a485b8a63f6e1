// Common window of the queue pairs to one address. The receiver offers each of them a share of its buffers; active queue pairs
// use the shares of idle ones, and take turns where that is not enough. Pure: notified of sends and acknowledgements, decides
// which queue pair may send.
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
  // Limit per address, whatever it offers: the receive ring of a NIC while its host is busy, and half of Linux's per-CPU backlog
  // (net.core.netdev_max_backlog).
  static constexpr uint32_t kMostPackets = 512;

  // For ports where acknowledgements and sends cost system calls: queue pairs keep their turns longer, even without competition
  // for room, and request one acknowledgement per turn.
  void keep_turns() {
    keeps_turns_ = true;
    turn_packets_ = kKeptTurnPackets;
  }
  // Add a queue pair with a bounded window, before anything else; other queue pairs are not limited.
  void add(uint32_t qp, const IpAddress& peer);
  // Set the share offered to this queue pair, in 1/256 packets; 0: not shared. The latest offer counts.
  void offer(uint32_t qp, uint32_t share);

  // Most packets in flight from all queue pairs to the address; 0: no common limit.
  uint32_t limit_packets(uint32_t qp) const;
  // Number of `packets` new packets that may leave now. 0: the queue pair waits until `take_awake` returns it.
  uint32_t allowed(uint32_t qp, uint32_t packets);
  // Whether a queue pair that has just sent continues its turn: under competition, or where turns are kept, a turn has a number
  // of packets that one acknowledgement releases together.
  bool goes_on(uint32_t qp) const;
  // Whether a queue pair waits for room at the same address.
  bool anyone_waits(uint32_t qp) const;
  // The queue pair gives up its turn, or needs none.
  void pass(uint32_t qp);
  // Request an acknowledgement with the last packet of a run if others wait and the turn ends, or if too many packets in flight
  // have none requested: these would occupy the common room, and their timer would expire before the next turn. `is_cut`: the
  // queue pair cannot continue at once in any case. `others`: other queue pairs have data; where turns are kept, then only the
  // end of a turn requests one.
  void ask(uint32_t qp, PacketRun& run, bool is_cut = false, bool others = false) const;
  void sent(uint32_t qp, const PacketRun& run, uint32_t in_flight_packets);
  // Packets were acknowledged, or are no longer in flight.
  void settle(uint32_t qp, uint32_t in_flight_packets);
  // Prefetch the queue pair's entry, and one turn later its pool.
  void expect(uint32_t qp) const {
    if (qp < members_.size()) prefetch(&members_[qp]);
  }
  void expect_pool(uint32_t qp) const {
    if (const Pool* pool = pool_of(qp); pool != nullptr) prefetch(pool);
  }
  // Return a queue pair to the same address that waited and may send now.
  bool take_awake(uint32_t qp, uint32_t& awake);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kLeastRun = 8;  // fewer free packets: the queue pair waits
  // Packets per turn under competition. An acknowledgement costs both hosts about as much as ten packets of a run.
  static constexpr uint32_t kTurnPackets = 60;
  // Packets per kept turn: half of NCCL's usual message of 512 KiB. Other queue pairs wait for it.
  static constexpr uint32_t kKeptTurnPackets = 64;

  struct Member {
    uint32_t pool = kNone;
    uint32_t share = 0;
    uint32_t under_way = 0;
    uint32_t unrequested = 0;  // packets after the last that requested an acknowledgement
    uint32_t turn_packets = 0;  // packets sent in this turn
    uint32_t next = kNone;
    bool waits = false;
    bool awake = false;
  };
  struct Pool {
    uint64_t shares = 0;
    uint32_t under_way = 0;
    uint32_t unrequested = 0;
    uint32_t awake = 0;
    uint32_t first = kNone;  // first waiting queue pair
    uint32_t last = kNone;
  };
  Pool* pool_of(uint32_t qp);
  const Pool* pool_of(uint32_t qp) const;
  static uint32_t limit(const Pool& pool);
  static uint32_t room(const Pool& pool);
  static uint32_t least_run(const Pool& pool);
  static uint32_t turn_room(const Pool& pool);
  void enqueue_waiting(Pool& pool, uint32_t qp);

  bool keeps_turns_ = false;
  uint32_t turn_packets_ = kTurnPackets;  // packets per turn
  std::vector<Member> members_;
  std::vector<Pool> pools_;
  std::map<IpAddress, uint32_t> pool_by_peer_;
};

}  // namespace etloop
