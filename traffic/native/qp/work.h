// What a queue pair is asked to do, what it says of what came, and how it can fail. Values shared by its two halves
// and its owner.
#pragma once

#include <cstdint>

#include "base/prefetch.h"
#include "base/time.h"

namespace etloop {

// `data` and `clear_to_send` are the engine's own messages; the others are the operations of a reliable connection.
enum class WorkKind : uint8_t {
  data,           // WRITE_WITH_IMM of pattern, its length as the immediate
  clear_to_send,  // a 64-byte WRITE made from `grant_*` and `index`
  probe,          // a WRITE of pattern that asks whether it gets through; no payload of the run
  write,
  write_imm,
  send,
  send_imm,
  send_invalidate,  // `rkey` is the key that the peer shall invalidate
  read,
  fetch_add,
  compare_swap,
};

// One posted request. The content of a clear-to-send (NVIDIA/nccl:src/transport/net_ib, struct ncclIbSendFifo) is made
// from `grant_va`, `grant_rkey`, `grant_bytes`, `grant_tag` and `index`.
struct alignas(kLineBytes) WorkRequest {
  // What every packet of it looks at is in one cache line, the first.
  WorkKind kind = WorkKind::data;
  bool flushed = false;     // of a completion: not carried out, the queue pair failed before
  uint32_t bytes = 0;       // atomics: set by post()
  uint64_t va = 0;          // at the peer
  uint32_t rkey = 0;
  uint32_t first_psn = 0;   // set by post()
  uint32_t packets = 0;     // set by post(): sequence numbers it takes; a READ takes those of its responses
  uint32_t imm = 0;
  const uint8_t* source = nullptr;  // `bytes` bytes to send; nullptr: the pattern
  uint32_t lane = 0;        // the owner's own mark, returned on completion
  uint32_t grant_tag = 0;
  uint64_t index = 0;
  Nanos trigger_ns = 0;     // when what released this message arrived; 0: nothing did

  uint64_t grant_va = 0;
  uint32_t grant_rkey = 0;
  uint32_t grant_bytes = 0;
  uint8_t* into = nullptr;          // room for what a READ returns; nullptr: it is counted and forgotten
  uint64_t swap_add = 0;    // FETCH_ADD: addend; CMP_SWAP: what to put in place of `compare`
  uint64_t compare = 0;
  uint64_t original = 0;    // of a completed atomic: what stood there before
  uint32_t op = 0;          // the owner's second mark, for `Qp::run_sent`
  uint16_t msn = 0;         // of MRC, set by its requester: of the message, and of the receive that it takes
  uint16_t rqmsn = 0;
};
static_assert(sizeof(WorkRequest) == 2 * kLineBytes);

inline constexpr uint32_t kClearToSendBytes = 64;
inline constexpr uint32_t kAtomicOperandBytes = 8;
// So that no two sequence numbers in use are half the number space apart.
inline constexpr uint32_t kMostPacketsPerRequest = 1U << 21;

// How far a packet may overtake another and be kept; also what a selective NAK can speak of.
inline constexpr uint32_t kReorderWindow = 256;

// Whether it moves data of the engine's lanes, not grants or operands.
constexpr bool carries_data(WorkKind kind) {
  return kind == WorkKind::data || kind == WorkKind::write || kind == WorkKind::write_imm;
}

constexpr bool waits_for_response(WorkKind kind) {
  return kind == WorkKind::read || kind == WorkKind::fetch_add || kind == WorkKind::compare_swap;
}

// A message that arrived whole and in order.
struct Delivered {
  uint64_t va = 0;
  uint32_t bytes = 0;
  bool has_imm = false;
  bool is_send = false;
  bool is_atomic = false;            // on the pattern key: nothing is kept of it but that it came
  bool invalidates = false;
  uint32_t imm = 0;
  uint32_t invalidated_rkey = 0;
  uint64_t receive = 0;              // mark of the receive it took, if it took one
  const uint8_t* payload = nullptr;  // of a one-packet message; valid during the call only
};

enum class QpFault : uint8_t {
  none,
  retries_exceeded,
  rnr_retries_exceeded,
  remote_access,
  remote_invalid_request,
  remote_operational,
  unexpected_syndrome,
  bad_response,
  refused_access,   // this end refused what the peer asked for
  refused_request,
};
const char* describe(QpFault fault);

// The receiver-not-ready timer that a five-bit code stands for (InfiniBand Architecture Specification vol. 1, table 45).
Nanos rnr_timer_ns(uint8_t code);

}  // namespace etloop
