// One end of a reliable-connected queue pair: requester and responder, without I/O.
// Rules: InfiniBand Architecture Specification vol. 1, 9.7; checked against what
// Linux does (torvalds/linux:drivers/infiniband/sw/rxe, rxe_req.c and rxe_resp.c).
//
// The owner posts writes, asks for runs of packets while there are any, hands in what arrives, and pops completed
// writes. Recovery is go-back-N: one NAK per gap, cumulative acknowledgement, a timeout that doubles while nothing moves.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.h"
#include "port.h"
#include "records.h"

namespace etloop {

// Closing stands for the fetch-and-add behind the last write of a one-sided lane: for now a write of 4 bytes.
enum class WorkKind : uint8_t { data, clear_to_send, one_sided, closing };
constexpr bool carries_data(WorkKind kind) { return kind == WorkKind::data || kind == WorkKind::one_sided; }

// One posted RDMA write. Data goes out as WRITE_WITH_IMM of `bytes`, one-sided data and the closing as plain WRITE; a
// clear-to-send as a 64-byte WRITE_ONLY whose content (NVIDIA/nccl:src/transport/net_ib, struct ncclIbSendFifo) is made
// from `grant_va`, `grant_rkey`, `grant_bytes`, `grant_tag` and `index`.
struct WorkRequest {
  WorkKind kind = WorkKind::data;
  uint32_t bytes = 0;
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t lane = 0;        // the owner's own mark, returned on completion
  uint64_t grant_va = 0;
  uint32_t grant_rkey = 0;
  uint32_t grant_bytes = 0;
  uint32_t grant_tag = 0;
  uint32_t imm = 0;
  uint64_t index = 0;
  Nanos trigger_ns = 0;     // when what released this message arrived; 0: nothing did
  uint32_t first_psn = 0;   // set by post()
  uint32_t packets = 0;     // set by post()
};

inline constexpr uint32_t kClearToSendBytes = 64;

// A message that arrived whole and in order.
struct Delivered {
  uint64_t va = 0;
  uint32_t bytes = 0;
  bool has_imm = false;
  uint32_t imm = 0;
  const uint8_t* payload = nullptr;  // of a one-packet message; valid during the call only
};

enum class QpFault : uint8_t { none, retries_exceeded, remote_access, remote_invalid_request, unexpected_syndrome };
const char* describe(QpFault fault);

class Qp {
 public:
  Qp(uint32_t local_qpn, uint32_t remote_qpn, FlowId flow, const TransportParams& params, uint32_t accepted_rkey);

  // Requester.
  void post(const WorkRequest& request);
  bool has_run() const;
  // The next packets to send; requires has_run(). Changes nothing until `run_sent`.
  PacketRun next_run(uint32_t max_run);
  // The port took the run. Returns the request it belongs to if the run was its first transmission's start, else nullptr.
  const WorkRequest* run_sent(const PacketRun& run, Nanos now);
  void on_acknowledge(const wire::Packet& packet, Nanos now);
  bool pop_completed(WorkRequest& done);

  // Responder. True: `delivered` holds a whole message.
  bool on_request(const wire::Packet& packet, Delivered& delivered);
  bool acknowledge_due() const { return acknowledge_due_ || nak_due_; }
  PacketRun acknowledgement() const;
  void acknowledgement_sent();

  // kNever while nothing is unacknowledged.
  Nanos deadline() const;
  void on_timeout(Nanos now);

  QpFault fault() const { return fault_; }
  uint32_t oldest_unacknowledged() const { return una_; }
  bool idle() const { return head_ == tail_; }
  uint32_t local_qpn() const { return local_qpn_; }
  uint32_t remote_qpn() const { return remote_qpn_; }
  FlowId flow() const { return flow_; }
  void set_window(uint32_t packets);

  FlowRecord counters{};
  bool queued = false;      // in its owner's transmit queue
  bool ack_queued = false;  // in its owner's acknowledgement queue
  bool timer_queued = false;

 private:
  WorkRequest& entry(uint64_t position) { return ring_[position & (ring_.size() - 1)]; }
  const WorkRequest& entry(uint64_t position) const { return ring_[position & (ring_.size() - 1)]; }
  void acknowledge_through(uint32_t psn, Nanos now);
  void rewind(uint32_t psn);
  void start_timer(Nanos now) { timer_base_ = now; }
  void reject(uint8_t syndrome);

  // identity
  uint32_t local_qpn_;
  uint32_t remote_qpn_;
  FlowId flow_;
  uint32_t path_mtu_;
  uint32_t mtu_shift_;
  uint32_t accepted_rkey_;
  uint32_t window_;
  uint32_t ack_every_;
  uint32_t ack_every_limit_;
  Nanos timeout_ns_;
  uint32_t retry_limit_;
  QpFault fault_ = QpFault::none;

  // requester: requests [head_, tail_) are posted, [head_, sending_) fully sent at least up to next_psn_
  std::vector<WorkRequest> ring_;  // power of two
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  uint64_t sending_ = 0;
  uint64_t completed_ = 0;  // requests [completed_, head_) await pop_completed
  uint32_t una_;
  uint32_t next_psn_;
  uint32_t sent_end_;  // first PSN never sent
  uint32_t post_psn_;
  uint32_t retries_ = 0;
  Nanos timer_base_ = 0;

  // responder
  uint32_t expected_psn_;
  uint32_t msn_ = 0;
  bool acknowledge_due_ = false;
  bool nak_due_ = false;
  bool nak_sent_ = false;
  uint8_t nak_syndrome_ = 0;
  bool in_message_ = false;
  uint64_t message_va_ = 0;
  uint32_t message_bytes_ = 0;
  uint32_t message_received_ = 0;

  uint8_t inline_[kClearToSendBytes] = {};
};

}  // namespace etloop
