// One RDMA device for hardware experiments per queue pair: post requests, and read the state. It measures nothing: packet times
// are observed elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/ip_address.h"
#include "base/result.h"
#include "port/verbs/verbs_device.h"

namespace etloop::verbs {

struct JoinSettings {
  std::string peer_ip;
  uint32_t peer_qpn = 0;
  uint32_t path_mtu = 1024;
  uint32_t send_psn = 0;
  uint32_t receive_psn = 0;
  uint8_t timeout_code = 14;
  uint8_t retries = 7;
  uint8_t rnr_retries = 7;
  uint8_t min_rnr_timer = 12;
  uint8_t traffic_class = 0x6A;  // DSCP 26, ECT(0)
  uint8_t hop_limit = 64;
};

class CardEnd {
 public:
  static constexpr size_t kRegionBytes = 128u << 20;  // largest write

  // An error has what is missing and the remedy.
  static Result<std::unique_ptr<CardEnd>> open(const std::string& device, const std::string& address);

  Result<uint32_t> add_pair();
  Result<void> join(uint32_t qpn, const JoinSettings& settings);
  Result<void> write(uint32_t qpn, uint32_t bytes);
  // Post `count` writes on each queue pair, in turn.
  Result<void> write_on_all(uint32_t count, uint32_t bytes);
  Result<void> send(uint32_t qpn, uint32_t bytes);
  Result<void> grant(uint32_t qpn, uint32_t bytes);
  Result<std::string> state(uint32_t qpn);
  void drop(uint32_t qpn);  // no effect without such a queue pair

  uint64_t va() const { return reinterpret_cast<uint64_t>(device_->region().data()); }
  uint32_t rkey() const { return device_->rkey(); }
  const std::string& firmware() const { return firmware_; }

 private:
  explicit CardEnd(std::unique_ptr<OpenDevice> device) : device_(std::move(device)) {}
  Result<QueuePair*> pair_of(uint32_t qpn);
  Result<void> post(uint32_t qpn, uint32_t bytes, SendOpcode opcode);
  Result<void> post_on(QueuePair* pair, uint32_t bytes, SendOpcode opcode);
  void forget_completions();

  std::unique_ptr<OpenDevice> device_;
  uint32_t gid_index_ = 0;
  uint32_t remote_access_ = kRemoteWrite | kRemoteRead;
  std::string firmware_;
  std::unordered_map<uint32_t, QueuePair*> pairs_;
};

}  // namespace etloop::verbs
