// Two queue pair ends, both requester and responder, joined by a link that a test or a seed can spoil. Virtual time.
#pragma once

#include <deque>
#include <vector>

#include "qp/qp.h"

namespace etloop::test {

inline constexpr uint32_t kPatternKey = 0x1201;
inline constexpr uint32_t kMemoryKey = 0x77;
inline constexpr uint64_t kMemoryBase = 0x10000;
inline constexpr size_t kMemoryBytes = 1 << 16;

inline TransportSettings link_params(uint32_t psn = 0, uint32_t window = 64, uint32_t ack_every = 8) {
  TransportSettings p;
  p.path_mtu_bytes = 1024;
  p.window_packets = window;
  p.ack_every_packets = ack_every;
  p.timeout_ns = 8000;
  p.recovery.timeout_floor_ns = 1000;
  p.retry_limit = 3;
  p.recovery.initial_psn = psn;
  return p;
}

// The packets of a run one by one, as a port puts them on the wire.
inline std::vector<wire::Packet> unrolled(const PacketRun& run) {
  std::vector<wire::Packet> packets;
  for (uint32_t i = 0; i < run.count; ++i) {
    wire::Packet packet = run.head;
    packet.psn = (run.head.psn + i) & wire::kPsnMask;
    if (run.count > 1) packet.ack_req = (packet.psn + 1) % run.ack_every == 0;
    packets.push_back(packet);
  }
  return packets;
}

inline std::vector<wire::Packet> send_all(Qp& qp, Nanos now, uint32_t max_run = 4) {
  std::vector<wire::Packet> packets;
  while (qp.has_run()) {
    const PacketRun run = qp.next_run(max_run);
    qp.run_sent(run, now);
    for (const auto& packet : unrolled(run)) packets.push_back(packet);
  }
  return packets;
}

inline std::vector<wire::Packet> answers(Qp& qp) {
  std::vector<wire::Packet> packets;
  while (qp.answer_due()) {
    const PacketRun run = qp.answer();
    packets.push_back(run.head);
    qp.answer_sent(run);
  }
  return packets;
}

struct End {
  End(uint32_t local, uint32_t remote, const TransportSettings& params, bool counts_receives)
      : memory(kMemoryBase, kMemoryKey, kMemoryBytes),
        qp(local, remote, 0, params, {kPatternKey, &memory, counts_receives ? &receives : nullptr}) {}

  void hear(const wire::Packet& packet, Nanos now) {
    if (!wire::is_request(packet.opcode)) {
      last_outcome = qp.on_answer(packet, now);
      WorkRequest done;
      while (qp.pop_completed(done)) completed.push_back(done);
      return;
    }
    Delivered message;
    for (bool whole = qp.on_request(packet, message); whole; whole = qp.next_delivered(message)) {
      message.payload = nullptr;
      delivered.push_back(message);
    }
  }

  MemoryRegion memory;
  ReceiveQueue receives;
  Qp qp;
  std::vector<Delivered> delivered;
  std::vector<WorkRequest> completed;
  AckOutcome last_outcome;
};

struct Link {
  explicit Link(const TransportSettings& params, bool counts_receives = false)
      : a(0x11, 0x12, params, counts_receives), b(0x12, 0x11, params, counts_receives) {}

  // Everything there is to send and to answer, without loss, until both are quiet.
  void settle(Nanos now) {
    for (int turn = 0; turn < 1000; ++turn) {
      const auto there = send_all(a.qp, now);
      for (const auto& packet : there) b.hear(packet, now);
      const auto back = answers(b.qp);
      for (const auto& packet : back) a.hear(packet, now);
      if (there.empty() && back.empty()) return;
    }
  }

  End a;
  End b;
};

}  // namespace etloop::test
