// Values shared by the two halves of a queue pair and its owner: requests, deliveries and faults.
#pragma once

#include <cstdint>

#include "base/prefetch.h"
#include "base/time.h"

namespace etloop {

// `data` and `clear_to_send` are the engine's own messages; the others are the operations of a reliable connection.
enum class WorkKind : uint8_t {
  data,           // WRITE_WITH_IMM of the pattern, its length as the immediate
  clear_to_send,  // a 64-byte WRITE with `grant_*` and `index`
  probe,          // a WRITE of the pattern that tests the path; not counted as payload
  write,
  write_imm,
  send,
  send_imm,
  send_invalidate,  // `rkey` is invalidated at the peer
  read,
  fetch_add,
  compare_swap,
};

// One posted request. The content of a clear-to-send (NVIDIA/nccl:src/transport/net_ib, struct ncclIbSendFifo) is made
// from `grant_va`, `grant_rkey`, `grant_bytes`, `grant_tag` and `index`.
struct alignas(kLineBytes) WorkRequest {
  // Members used for every packet are in the first cache line.
  WorkKind kind = WorkKind::data;
  bool flushed = false;     // of a completion: not executed, the queue pair failed before
  bool reports_departure = false;  // its owner waits for the departure of its last packet
  uint32_t bytes = 0;       // atomics: set by post()
  uint64_t va = 0;          // at the peer
  uint32_t rkey = 0;
  uint32_t first_psn = 0;   // set by post()
  uint32_t packets = 0;     // set by post(): its PSNs; a READ takes those of its responses
  uint32_t imm = 0;
  const uint8_t* source = nullptr;  // `bytes` bytes to send; nullptr: the pattern
  uint32_t lane = 0;        // the owner's tag, returned on completion
  uint32_t grant_tag = 0;
  uint64_t index = 0;
  Nanos trigger_ns = 0;     // arrival time of the message that released this one; 0: none

  uint64_t grant_va = 0;
  uint32_t grant_rkey = 0;
  uint32_t grant_bytes = 0;
  uint8_t* into = nullptr;          // destination of a READ; nullptr: counted and discarded
  uint64_t swap_add = 0;    // FETCH_ADD: addend; CMP_SWAP: replacement of `compare`
  uint64_t compare = 0;
  uint64_t original = 0;    // of a completed atomic: the previous value
  uint32_t op = 0;          // the owner's second tag, for `Qp::run_sent`
  uint16_t msn = 0;         // set by the MRC requester: sequence numbers of the message and of its receive
  uint16_t rqmsn = 0;
  uint32_t queued_ns = 0;   // from `trigger_ns` until that message was read from the port
  uint32_t turn = 0;        // of its port to send, the first one after it was posted
};
static_assert(sizeof(WorkRequest) == 2 * kLineBytes);

inline constexpr uint32_t kClearToSendBytes = 64;
inline constexpr uint32_t kAtomicOperandBytes = 8;
// Keeps PSNs in use less than half the PSN space apart.
inline constexpr uint32_t kMostPacketsPerRequest = 1U << 21;

// Most PSNs that a kept packet may be early; also the range of a selective NAK.
inline constexpr uint32_t kReorderWindow = 256;

// The request of a sent run: `begun` if the run began its first transmission, `left` if it ended it.
struct SentRequest {
  const WorkRequest* begun = nullptr;
  const WorkRequest* left = nullptr;
};

// Whether the request moves data of the engine's lanes, not grants or operands.
constexpr bool carries_data(WorkKind kind) {
  return kind == WorkKind::data || kind == WorkKind::write || kind == WorkKind::write_imm || kind == WorkKind::send_imm;
}

constexpr bool waits_for_response(WorkKind kind) {
  return kind == WorkKind::read || kind == WorkKind::fetch_add || kind == WorkKind::compare_swap;
}

// A message that arrived completely and in order.
struct Delivered {
  uint64_t va = 0;
  uint32_t bytes = 0;
  bool has_imm = false;
  bool is_send = false;
  bool is_atomic = false;            // with the pattern key: only the arrival is reported
  bool invalidates = false;
  uint32_t imm = 0;
  uint32_t invalidated_rkey = 0;
  uint64_t receive = 0;              // tag of the consumed receive, if any
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
  refused_access,   // this end refused the peer's request
  refused_request,
};
const char* describe(QpFault fault);

// Return the receiver-not-ready timer of a five-bit code (InfiniBand Architecture Specification vol. 1, table 45).
Nanos rnr_timer_ns(uint8_t code);

}  // namespace etloop
