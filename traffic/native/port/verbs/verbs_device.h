// One RDMA device opened for one port: protection domain, one registered region, one completion queue with its channel. Released
// in the right order by the destructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/ip_address.h"
#include "base/result.h"
#include "port/verbs/verbs_library.h"

namespace etloop::verbs {

inline constexpr uint8_t kDevicePort = 1;  // RoCE devices have one port each

class OpenDevice {
 public:
  // An error has what is missing and the remedy.
  static Result<std::unique_ptr<OpenDevice>> open(const std::string& name);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  // Register zeroed anonymous memory that peers may write to, and access by atomics if requested.
  Result<void> register_region(size_t bytes, uint32_t remote_access);
  Result<void> make_queue(int entries);
  // Return the GID table entry of an address under RoCEv2.
  Result<uint32_t> gid_index(const IpAddress& address) const;
  // Return the given entry if it is for that address.
  Result<uint32_t> checked_gid_index(uint32_t index, const IpAddress& address) const;
  Result<QueuePair*> make_pair(const Capacities& capacities);
  void drop_pair(QueuePair* pair);

  const Library& verbs() const { return verbs_; }
  const std::string& name() const { return name_; }
  std::span<uint8_t> region() const { return {region_at_, region_bytes_}; }
  uint32_t lkey() const { return region_->lkey; }
  uint32_t rkey() const { return region_->rkey; }
  CompletionQueue* queue() const { return queue_; }
  CompletionChannel* channel() const { return channel_; }
  const DeviceAttributes& attributes() const { return attributes_; }
  uint32_t active_mtu() const { return 128U << port_.active_mtu; }

 private:
  OpenDevice(const Library& verbs, std::string name) : verbs_(verbs), name_(std::move(name)) {}
  Result<void> begin();

  const Library& verbs_;
  std::string name_;
  Context* context_ = nullptr;
  Domain* domain_ = nullptr;
  MemoryRegion* region_ = nullptr;
  CompletionChannel* channel_ = nullptr;
  CompletionQueue* queue_ = nullptr;
  std::vector<QueuePair*> pairs_;
  uint8_t* region_at_ = nullptr;
  size_t region_bytes_ = 0;
  DeviceAttributes attributes_{};
  PortAttributes port_{};
};

}  // namespace etloop::verbs
