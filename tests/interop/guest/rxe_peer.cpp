// Inside the interop machine: reliable-connected queue pairs of an RDMA device, moved by one line of text each.
//
// Usage: rxe_peer DEVICE LOCAL_ADDRESS PATH_MTU REGION_BYTES. Every command is answered by one line; "error ..." says what
// did not work. Numbers are decimal, bytes are hexadecimal.
//
//   qp RECEIVE_DEPTH                                    -> QPN RKEY ADDRESS
//   connect QPN REMOTE_ADDRESS REMOTE_QPN SQ_PSN RQ_PSN TIMEOUT RETRY RNR_RETRY MIN_RNR_TIMER  -> ok
//   receive QPN OFFSET BYTES                            -> ok
//   write QPN OFFSET BYTES REMOTE_ADDRESS RKEY [IMM]    -> ok
//   send QPN OFFSET BYTES [IMM]                         -> ok
//   read QPN OFFSET BYTES REMOTE_ADDRESS RKEY           -> ok
//   add QPN OFFSET REMOTE_ADDRESS RKEY VALUE            -> ok
//   swap QPN OFFSET REMOTE_ADDRESS RKEY COMPARE SWAP    -> ok
//   poll MILLISECONDS                                   -> none | QPN OPCODE STATUS BYTES IMM(-1: none)
//   fill OFFSET BYTES SEED | peek OFFSET BYTES | poke OFFSET HEX | state QPN | counters
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kDepth = 512;

template <typename T>
T* need(T* made, const char* what) {
  if (made == nullptr) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  return made;
}

void check(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(result > 0 ? result : errno));
}

ibv_gid gid_of(const std::string& address) {
  ibv_gid gid{};
  if (inet_pton(AF_INET6, address.c_str(), gid.raw) == 1) return gid;
  gid.raw[10] = gid.raw[11] = 0xFF;
  if (inet_pton(AF_INET, address.c_str(), gid.raw + 12) != 1) throw std::runtime_error("no address: " + address);
  return gid;
}

class Peer {
 public:
  Peer(const std::string& device, const std::string& address, uint32_t path_mtu, size_t region_bytes)
      : memory_(region_bytes), device_(device) {
    ibv_device** list = need(ibv_get_device_list(nullptr), "ibv_get_device_list");
    ibv_device* found = nullptr;
    for (ibv_device** at = list; *at != nullptr; ++at) {
      if (device == ibv_get_device_name(*at)) found = *at;
    }
    context_ = need(ibv_open_device(need(found, "no such device")), "ibv_open_device");
    ibv_free_device_list(list);
    domain_ = need(ibv_alloc_pd(context_), "ibv_alloc_pd");
    region_ = need(ibv_reg_mr(domain_, memory_.data(), memory_.size(), kAccess), "ibv_reg_mr");
    completions_ = need(ibv_create_cq(context_, 8192, nullptr, nullptr, 0), "ibv_create_cq");
    const ibv_gid wanted = gid_of(address);
    for (int index = 0; index < 64 && gid_index_ < 0; ++index) {
      ibv_gid gid{};
      if (ibv_query_gid(context_, 1, index, &gid) == 0 && std::memcmp(gid.raw, wanted.raw, 16) == 0) gid_index_ = index;
    }
    if (gid_index_ < 0) throw std::runtime_error("the device has no GID for " + address);
    mtu_ = path_mtu == 256 ? IBV_MTU_256 : path_mtu == 512 ? IBV_MTU_512 : path_mtu == 1024 ? IBV_MTU_1024
           : path_mtu == 2048 ? IBV_MTU_2048 : IBV_MTU_4096;
  }

  std::string handle_commands(const std::string& line) {
    std::istringstream in(line);
    std::string what;
    in >> what;
    if (what == "qp") return create(in);
    if (what == "connect") return connect(in);
    if (what == "receive") return receive(in);
    if (what == "write") return post(in, IBV_WR_RDMA_WRITE);
    if (what == "send") return post(in, IBV_WR_SEND);
    if (what == "read") return post(in, IBV_WR_RDMA_READ);
    if (what == "add") return post(in, IBV_WR_ATOMIC_FETCH_AND_ADD);
    if (what == "swap") return post(in, IBV_WR_ATOMIC_CMP_AND_SWP);
    if (what == "poll") return poll(in);
    if (what == "fill") return fill(in);
    if (what == "peek") return peek(in);
    if (what == "poke") return poke(in);
    if (what == "state") return state(in);
    if (what == "counters") return counters();
    throw std::runtime_error("unknown command " + what);
  }

 private:
  template <typename T>
  static T next(std::istringstream& in) {
    T value{};
    if (!(in >> value)) throw std::runtime_error("an argument is missing");
    return value;
  }
  ibv_qp* pair(std::istringstream& in) { return need(pairs_[next<uint32_t>(in)], "no such queue pair"); }
  uint8_t* place(size_t offset, size_t bytes) {
    if (offset > memory_.size() || bytes > memory_.size() - offset) throw std::runtime_error("outside the region");
    return memory_.data() + offset;
  }

  std::string create(std::istringstream& in) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = kDepth;
    wanted.cap.max_recv_wr = next<uint32_t>(in);
    wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
    ibv_qp* made = need(ibv_create_qp(domain_, &wanted), "ibv_create_qp");
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    check(ibv_modify_qp(made, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
    pairs_[made->qp_num] = made;
    std::ostringstream out;
    out << made->qp_num << ' ' << region_->rkey << ' ' << reinterpret_cast<uintptr_t>(memory_.data());
    return out.str();
  }

  std::string connect(std::istringstream& in) {
    ibv_qp* qp = pair(in);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = mtu_;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = gid_of(next<std::string>(in));
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.traffic_class = 0x6A;
    attr.ah_attr.port_num = 1;
    attr.dest_qp_num = next<uint32_t>(in);
    attr.sq_psn = next<uint32_t>(in);
    attr.rq_psn = next<uint32_t>(in);
    attr.timeout = static_cast<uint8_t>(next<int>(in));
    attr.retry_cnt = static_cast<uint8_t>(next<int>(in));
    attr.rnr_retry = static_cast<uint8_t>(next<int>(in));
    attr.min_rnr_timer = static_cast<uint8_t>(next<int>(in));
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC), "to RTS");
    return "ok";
  }

  std::string receive(std::istringstream& in) {
    ibv_qp* qp = pair(in);
    const auto offset = next<size_t>(in);
    const auto bytes = next<size_t>(in);
    ibv_sge piece{reinterpret_cast<uintptr_t>(place(offset, bytes)), static_cast<uint32_t>(bytes), region_->lkey};
    ibv_recv_wr wanted{};
    wanted.sg_list = &piece;
    wanted.num_sge = bytes > 0 ? 1 : 0;
    ibv_recv_wr* bad = nullptr;
    check(ibv_post_recv(qp, &wanted, &bad), "ibv_post_recv");
    return "ok";
  }

  std::string post(std::istringstream& in, ibv_wr_opcode opcode) {
    ibv_qp* qp = pair(in);
    const bool atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    const auto offset = next<size_t>(in);
    const size_t bytes = atomic ? 8 : next<size_t>(in);
    ibv_sge piece{reinterpret_cast<uintptr_t>(place(offset, bytes)), static_cast<uint32_t>(bytes), region_->lkey};
    ibv_send_wr wanted{};
    wanted.sg_list = &piece;
    wanted.num_sge = bytes > 0 ? 1 : 0;
    wanted.send_flags = IBV_SEND_SIGNALED;
    wanted.opcode = opcode;
    if (atomic) {
      wanted.wr.atomic.remote_addr = next<uint64_t>(in);
      wanted.wr.atomic.rkey = next<uint32_t>(in);
      wanted.wr.atomic.compare_add = next<uint64_t>(in);
      if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wanted.wr.atomic.swap = next<uint64_t>(in);
    } else if (opcode != IBV_WR_SEND) {
      wanted.wr.rdma.remote_addr = next<uint64_t>(in);
      wanted.wr.rdma.rkey = next<uint32_t>(in);
    }
    if (uint32_t imm = 0; opcode != IBV_WR_RDMA_READ && !atomic && in >> imm) {
      wanted.opcode = opcode == IBV_WR_SEND ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM;
      wanted.imm_data = htonl(imm);
    }
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(qp, &wanted, &bad), "ibv_post_send");
    return "ok";
  }

  std::string poll(std::istringstream& in) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(next<int>(in));
    ibv_wc done{};
    int count = 0;
    while ((count = ibv_poll_cq(completions_, 1, &done)) == 0) {
      if (std::chrono::steady_clock::now() > until) return "none";
      usleep(200);
    }
    check(count == 1 ? 0 : EIO, "ibv_poll_cq");
    std::ostringstream out;
    const bool received = (done.opcode & IBV_WC_RECV) != 0;  // the flags mean nothing for what was sent
    const bool has_imm = received && done.status == IBV_WC_SUCCESS && (done.wc_flags & IBV_WC_WITH_IMM) != 0;
    out << done.qp_num << ' ' << done.opcode << ' ' << ibv_wc_status_str(done.status) << " | " << done.byte_len << ' '
        << (has_imm ? static_cast<int64_t>(ntohl(done.imm_data)) : -1);
    return out.str();
  }

  std::string fill(std::istringstream& in) {
    const auto offset = next<size_t>(in);
    const auto bytes = next<size_t>(in);
    const auto seed = next<uint32_t>(in);
    uint8_t* at = place(offset, bytes);
    for (size_t i = 0; i < bytes; ++i) at[i] = static_cast<uint8_t>((i * 131 + seed * 17 + (i >> 8)) & 0xFF);
    return "ok";
  }

  std::string peek(std::istringstream& in) {
    const auto offset = next<size_t>(in);
    const auto bytes = next<size_t>(in);
    const uint8_t* at = place(offset, bytes);
    std::string out;
    out.reserve(bytes * 2);
    for (size_t i = 0; i < bytes; ++i) {
      out += "0123456789abcdef"[at[i] >> 4];
      out += "0123456789abcdef"[at[i] & 15];
    }
    return out;
  }

  std::string poke(std::istringstream& in) {
    const auto offset = next<size_t>(in);
    const auto text = next<std::string>(in);
    uint8_t* at = place(offset, text.size() / 2);
    for (size_t i = 0; i < text.size() / 2; ++i) at[i] = static_cast<uint8_t>(std::stoul(text.substr(i * 2, 2), nullptr, 16));
    return "ok";
  }

  std::string state(std::istringstream& in) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    check(ibv_query_qp(pair(in), &attr, IBV_QP_STATE, &init), "ibv_query_qp");
    constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return static_cast<size_t>(attr.qp_state) < 7 ? kNames[attr.qp_state] : "?";
  }

  std::string counters() {
    std::ostringstream out;
    for (const char* name : {"duplicate_request", "out_of_seq_request", "rcvd_rnr_err", "send_rnr_err", "rcvd_seq_err",
                             "ack_deferred", "retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err",
                             "send_err", "rcvd_pkts", "sent_pkts"}) {
      std::ifstream file("/sys/class/infiniband/" + device_ + "/ports/1/hw_counters/" + name);
      if (uint64_t value = 0; file >> value) out << name << '=' << value << ' ';
    }
    return out.str();
  }

  std::vector<uint8_t> memory_;
  std::string device_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_cq* completions_ = nullptr;
  int gid_index_ = -1;
  ibv_mtu mtu_ = IBV_MTU_1024;
  std::map<uint32_t, ibv_qp*> pairs_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  try {
    Peer peer(arguments[1], arguments[2], static_cast<uint32_t>(std::stoul(arguments[3])), std::stoul(arguments[4]));
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      try {
        std::cout << peer.handle_commands(line) << std::endl;
      } catch (const std::runtime_error& error) {
        std::cout << "error " << error.what() << std::endl;
      }
    }
  } catch (const std::exception& error) {
    std::cout << "error " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
