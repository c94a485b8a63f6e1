#include "port/verbs/verbs_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace etloop::verbs {

namespace {

std::string reason() { return std::strerror(errno); }

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::string locked_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB";
}

}  // namespace

Result<std::unique_ptr<OpenDevice>> OpenDevice::open(const std::string& name) {
  const Result<const Library*> verbs = library();
  if (!verbs) return verbs.error();
  std::unique_ptr<OpenDevice> device(new OpenDevice(**verbs, name));
  if (const auto begun = device->begin(); !begun) return begun.error();
  return device;
}

Result<void> OpenDevice::begin() {
  int count = 0;
  Device** list = verbs_.get_device_list(&count);
  for (int i = 0; list != nullptr && i < count && context_ == nullptr; ++i) {
    if (name_ == verbs_.get_device_name(list[i])) context_ = verbs_.open_device(list[i]);
  }
  if (list != nullptr) verbs_.free_device_list(list);
  if (context_ == nullptr) {
    return Error{"RDMA device " + name_ + " cannot be opened; this host has: " + joined(device_names(verbs_)) +
                 " (rdma link; for Soft-RoCE: rdma link add rxe0 type rxe netdev eth0)"};
  }
  if (verbs_.query_device(context_, &attributes_) != 0 || verbs_.query_port(context_, kDevicePort, &port_) != 0) {
    return Error{"RDMA device " + name_ + " does not say what it can: " + reason() + "; load its driver anew"};
  }
  if (port_.state != kPortActive) {
    return Error{"RDMA device " + name_ + " is not active; bring the link of its network interface up"};
  }
  domain_ = verbs_.alloc_pd(context_);
  channel_ = domain_ == nullptr ? nullptr : verbs_.create_comp_channel(context_);
  if (channel_ == nullptr || fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) {
    return Error{"RDMA device " + name_ + " gives no protection domain or completion channel: " + reason() +
                 "; end other programs that use it"};
  }
  return {};
}

OpenDevice::~OpenDevice() {
  for (QueuePair* pair : pairs_) verbs_.destroy_qp(pair);
  if (queue_ != nullptr) verbs_.destroy_cq(queue_);
  if (channel_ != nullptr) verbs_.destroy_comp_channel(channel_);
  if (region_ != nullptr) verbs_.dereg_mr(region_);
  if (domain_ != nullptr) verbs_.dealloc_pd(domain_);
  if (context_ != nullptr) verbs_.close_device(context_);
  if (region_at_ != nullptr) munmap(region_at_, region_bytes_);
}

Result<void> OpenDevice::register_region(size_t bytes, uint32_t remote_access) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return Error{"no " + std::to_string(bytes >> 20) + " MiB of memory for RDMA device " + name_ + ": " + reason() +
                 "; free memory on this host"};
  }
  region_at_ = static_cast<uint8_t*>(mapped);
  region_bytes_ = bytes;
  region_ = verbs_.reg_mr(domain_, mapped, bytes, static_cast<int>(kLocalWrite | remote_access));
  if (region_ != nullptr) return {};
  munmap(mapped, bytes);
  region_at_ = nullptr;
  return Error{"RDMA device " + name_ + " cannot register " + std::to_string(bytes >> 20) + " MiB of memory (" + reason() +
               ", locked memory is limited to " + locked_limit() +
               "); raise the limit: ulimit -l unlimited, or LimitMEMLOCK=infinity in the service"};
}

Result<void> OpenDevice::make_queue(int entries) {
  queue_ = verbs_.create_cq(context_, entries, nullptr, channel_, 0);
  if (queue_ != nullptr) return {};
  return Error{"RDMA device " + name_ + " gives no completion queue of " + std::to_string(entries) + " entries: " + reason() +
               "; lower transport.qps_per_connection or place fewer ranks on the port"};
}

Result<QueuePair*> OpenDevice::make_pair(const Capacities& capacities) {
  PairRequest request{};
  request.send_queue = request.receive_queue = queue_;
  request.capacities = capacities;
  request.type = kReliableConnected;
  QueuePair* pair = verbs_.create_qp(domain_, &request);
  if (pair == nullptr) {
    return Error{"RDMA device " + name_ + " gives no more than " + std::to_string(pairs_.size()) + " queue pairs: " + reason() +
                 "; lower transport.qps_per_connection or place fewer ranks on the port"};
  }
  pairs_.push_back(pair);
  return pair;
}

void OpenDevice::drop_pair(QueuePair* pair) {
  std::erase(pairs_, pair);
  verbs_.destroy_qp(pair);
}

Result<uint32_t> OpenDevice::gid_index(const IpAddress& address) const {
  const auto entries = static_cast<uint32_t>(std::max(port_.gid_entries, 0));
  for (uint32_t index = 0; index < entries; ++index) {
    GidEntry entry{};
    if (verbs_.query_gid_ex(context_, kDevicePort, index, &entry, 0, sizeof entry) != 0) continue;
    if (entry.type == kGidRoceV2 && std::memcmp(entry.gid.raw, address.bytes.data(), 16) == 0) return index;
  }
  return Error{"RDMA device " + name_ + " has no RoCEv2 GID for " + address.text() +
               "; give the address to the device's network interface (rdma link shows which it is)"};
}

Result<uint32_t> OpenDevice::checked_gid_index(uint32_t index, const IpAddress& address) const {
  GidEntry entry{};
  if (verbs_.query_gid_ex(context_, kDevicePort, index, &entry, 0, sizeof entry) == 0 &&
      entry.type == kGidRoceV2 && std::memcmp(entry.gid.raw, address.bytes.data(), 16) == 0) {
    return index;
  }
  return Error{"entry " + std::to_string(index) + " of the GID table of RDMA device " + name_ + " is not the RoCEv2 GID of " +
               address.text() + "; leave gid_index out and it is found by the address"};
}

}  // namespace etloop::verbs
