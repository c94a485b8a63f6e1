// One RDMA device opened for one port: protection domain, one registered region, one completion queue with its channel.
// Everything is given back in the right order when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/ip_address.h"
#include "port/verbs/verbs_library.h"

namespace etloop::verbs {

inline constexpr uint8_t kDevicePort = 1;  // RoCE devices have one port each

class OpenDevice {
 public:
  // nullptr: `error` says what is missing and what to do.
  static std::unique_ptr<OpenDevice> open(const std::string& name, std::string& error);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  // Anonymous memory that peers may write to, and with atomics if asked for, zeroed.
  bool register_region(size_t bytes, bool with_atomics, std::string& error);
  bool make_queue(int entries, std::string& error);
  // The entry of the GID table that stands for an address under RoCEv2. -1: `error` says what the table has.
  int gid_index(const IpAddress& address, std::string& error) const;
  // Whether a given entry stands for that address.
  bool gid_is(int index, const IpAddress& address, std::string& error) const;
  QueuePair* make_pair(const Capacities& capacities, std::string& error);

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
  bool begin(std::string& error);

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
