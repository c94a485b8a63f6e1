// The declarations of verbs_abi.h against the header of the library, where that is installed: every member that we read
// or write stands where the library has it, and what we hand in is no smaller than what it reads.
#include <cstdio>

#include "port/verbs/verbs_abi.h"
#include "support/check.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>

namespace v = etloop::verbs;

#define SAME_PLACE(ours, our_member, theirs, their_member)                                  \
  static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) &&             \
                sizeof(ours::our_member) == sizeof(theirs::their_member))

SAME_PLACE(v::Context, device, ibv_context, device);
SAME_PLACE(v::Context, operations, ibv_context, ops);
SAME_PLACE(v::Context, async_fd, ibv_context, async_fd);
SAME_PLACE(v::ContextOperations, poll_cq, ibv_context_ops, poll_cq);
SAME_PLACE(v::ContextOperations, req_notify_cq, ibv_context_ops, req_notify_cq);
SAME_PLACE(v::ContextOperations, post_send, ibv_context_ops, post_send);
SAME_PLACE(v::ContextOperations, post_recv, ibv_context_ops, post_recv);
SAME_PLACE(v::MemoryRegion, lkey, ibv_mr, lkey);
SAME_PLACE(v::MemoryRegion, rkey, ibv_mr, rkey);
SAME_PLACE(v::CompletionChannel, fd, ibv_comp_channel, fd);
SAME_PLACE(v::CompletionQueue, context, ibv_cq, context);
SAME_PLACE(v::CompletionQueue, entries, ibv_cq, cqe);
SAME_PLACE(v::QueuePair, context, ibv_qp, context);
SAME_PLACE(v::QueuePair, number, ibv_qp, qp_num);

SAME_PLACE(v::Completion, mark, ibv_wc, wr_id);
SAME_PLACE(v::Completion, status, ibv_wc, status);
SAME_PLACE(v::Completion, opcode, ibv_wc, opcode);
SAME_PLACE(v::Completion, bytes, ibv_wc, byte_len);
SAME_PLACE(v::Completion, immediate, ibv_wc, imm_data);
SAME_PLACE(v::Completion, pair_number, ibv_wc, qp_num);
SAME_PLACE(v::Completion, flags, ibv_wc, wc_flags);
static_assert(sizeof(v::Completion) == sizeof(ibv_wc));

SAME_PLACE(v::Piece, address, ibv_sge, addr);
SAME_PLACE(v::Piece, bytes, ibv_sge, length);
SAME_PLACE(v::Piece, lkey, ibv_sge, lkey);
static_assert(sizeof(v::Piece) == sizeof(ibv_sge));

SAME_PLACE(v::SendRequest, mark, ibv_send_wr, wr_id);
SAME_PLACE(v::SendRequest, next, ibv_send_wr, next);
SAME_PLACE(v::SendRequest, pieces, ibv_send_wr, sg_list);
SAME_PLACE(v::SendRequest, piece_count, ibv_send_wr, num_sge);
SAME_PLACE(v::SendRequest, opcode, ibv_send_wr, opcode);
SAME_PLACE(v::SendRequest, flags, ibv_send_wr, send_flags);
SAME_PLACE(v::SendRequest, immediate, ibv_send_wr, imm_data);
SAME_PLACE(v::SendRequest, remote_address, ibv_send_wr, wr.rdma.remote_addr);
SAME_PLACE(v::SendRequest, remote_rkey, ibv_send_wr, wr.rdma.rkey);
SAME_PLACE(v::SendRequest, remote_address, ibv_send_wr, wr.atomic.remote_addr);
SAME_PLACE(v::SendRequest, atomic.add, ibv_send_wr, wr.atomic.compare_add);
SAME_PLACE(v::SendRequest, atomic.remote_rkey, ibv_send_wr, wr.atomic.rkey);
static_assert(sizeof(v::SendRequest) >= sizeof(ibv_send_wr));

SAME_PLACE(v::ReceiveRequest, pieces, ibv_recv_wr, sg_list);
SAME_PLACE(v::ReceiveRequest, piece_count, ibv_recv_wr, num_sge);
static_assert(sizeof(v::ReceiveRequest) == sizeof(ibv_recv_wr));

SAME_PLACE(v::PairRequest, capacities, ibv_qp_init_attr, cap);
SAME_PLACE(v::PairRequest, type, ibv_qp_init_attr, qp_type);
SAME_PLACE(v::PairRequest, signal_all, ibv_qp_init_attr, sq_sig_all);
static_assert(sizeof(v::PairRequest) == sizeof(ibv_qp_init_attr));

SAME_PLACE(v::PairAttributes, path_mtu, ibv_qp_attr, path_mtu);
SAME_PLACE(v::PairAttributes, receive_psn, ibv_qp_attr, rq_psn);
SAME_PLACE(v::PairAttributes, destination_pair, ibv_qp_attr, dest_qp_num);
SAME_PLACE(v::PairAttributes, access, ibv_qp_attr, qp_access_flags);
SAME_PLACE(v::PairAttributes, address, ibv_qp_attr, ah_attr);
SAME_PLACE(v::PairAttributes, pkey_index, ibv_qp_attr, pkey_index);
SAME_PLACE(v::PairAttributes, reads_in, ibv_qp_attr, max_dest_rd_atomic);
SAME_PLACE(v::PairAttributes, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
SAME_PLACE(v::PairAttributes, port, ibv_qp_attr, port_num);
SAME_PLACE(v::PairAttributes, timeout, ibv_qp_attr, timeout);
SAME_PLACE(v::PairAttributes, rnr_retries, ibv_qp_attr, rnr_retry);
static_assert(sizeof(v::PairAttributes) == sizeof(ibv_qp_attr));
SAME_PLACE(v::AddressVector, is_global, ibv_ah_attr, is_global);
SAME_PLACE(v::AddressVector, port, ibv_ah_attr, port_num);
SAME_PLACE(v::GlobalRoute, flow_label, ibv_global_route, flow_label);
SAME_PLACE(v::GlobalRoute, traffic_class, ibv_global_route, traffic_class);

SAME_PLACE(v::DeviceAttributes, most_pairs, ibv_device_attr, max_qp);
SAME_PLACE(v::DeviceAttributes, most_requests, ibv_device_attr, max_qp_wr);
SAME_PLACE(v::DeviceAttributes, most_completions, ibv_device_attr, max_cqe);
SAME_PLACE(v::DeviceAttributes, most_reads_in, ibv_device_attr, max_qp_rd_atom);
SAME_PLACE(v::DeviceAttributes, most_reads_out, ibv_device_attr, max_qp_init_rd_atom);
SAME_PLACE(v::DeviceAttributes, atomics, ibv_device_attr, atomic_cap);
static_assert(sizeof(v::DeviceAttributes) >= sizeof(ibv_device_attr));
SAME_PLACE(v::PortAttributes, state, ibv_port_attr, state);
SAME_PLACE(v::PortAttributes, active_mtu, ibv_port_attr, active_mtu);
SAME_PLACE(v::PortAttributes, gid_entries, ibv_port_attr, gid_tbl_len);
static_assert(sizeof(v::PortAttributes) >= sizeof(ibv_port_attr));
SAME_PLACE(v::GidEntry, type, ibv_gid_entry, gid_type);
static_assert(sizeof(v::GidEntry) == sizeof(ibv_gid_entry) && alignof(v::GidEntry) == alignof(ibv_gid_entry));

#define SAME_VALUE(ours, theirs) static_assert(static_cast<unsigned>(ours) == static_cast<unsigned>(theirs))

SAME_VALUE(v::kWriteWithImmediate, IBV_WR_RDMA_WRITE_WITH_IMM);
SAME_VALUE(v::kWrite, IBV_WR_RDMA_WRITE);
SAME_VALUE(v::kSend, IBV_WR_SEND);
SAME_VALUE(v::kFetchAdd, IBV_WR_ATOMIC_FETCH_AND_ADD);
SAME_VALUE(0, IBV_ATOMIC_NONE);
SAME_VALUE(v::kSignaled, IBV_SEND_SIGNALED);
SAME_VALUE(v::kReliableConnected, IBV_QPT_RC);
SAME_VALUE(v::kReceivedWriteWithImmediate, IBV_WC_RECV_RDMA_WITH_IMM);
SAME_VALUE(v::kWriteDone, IBV_WC_RDMA_WRITE);
SAME_VALUE(v::kInit, IBV_QPS_INIT);
SAME_VALUE(v::kReadyToReceive, IBV_QPS_RTR);
SAME_VALUE(v::kReadyToSend, IBV_QPS_RTS);
SAME_VALUE(v::kSetState, IBV_QP_STATE);
SAME_VALUE(v::kSetAccess, IBV_QP_ACCESS_FLAGS);
SAME_VALUE(v::kSetPkeyIndex, IBV_QP_PKEY_INDEX);
SAME_VALUE(v::kSetPort, IBV_QP_PORT);
SAME_VALUE(v::kSetAddress, IBV_QP_AV);
SAME_VALUE(v::kSetPathMtu, IBV_QP_PATH_MTU);
SAME_VALUE(v::kSetTimeout, IBV_QP_TIMEOUT);
SAME_VALUE(v::kSetRetries, IBV_QP_RETRY_CNT);
SAME_VALUE(v::kSetRnrRetries, IBV_QP_RNR_RETRY);
SAME_VALUE(v::kSetReceivePsn, IBV_QP_RQ_PSN);
SAME_VALUE(v::kSetReadsOut, IBV_QP_MAX_QP_RD_ATOMIC);
SAME_VALUE(v::kSetMinRnrTimer, IBV_QP_MIN_RNR_TIMER);
SAME_VALUE(v::kSetSendPsn, IBV_QP_SQ_PSN);
SAME_VALUE(v::kSetReadsIn, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME_VALUE(v::kSetDestinationPair, IBV_QP_DEST_QPN);
SAME_VALUE(v::kLocalWrite, IBV_ACCESS_LOCAL_WRITE);
SAME_VALUE(v::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE);
SAME_VALUE(v::kRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC);
SAME_VALUE(v::kPortActive, IBV_PORT_ACTIVE);
SAME_VALUE(v::kGidRoceV2, IBV_GID_TYPE_ROCE_V2);

int main() {
  std::puts("verbs_abi.h agrees with the installed infiniband/verbs.h");
  return 0;
}
#else
int main() {
  etloop::test::skipped(etloop::test::Missing::program, "verbs_abi.h",
                        "no infiniband/verbs.h here to compare with (Debian package libibverbs-dev)");
  return etloop::test::failures();
}
#endif
