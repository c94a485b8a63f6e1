#include "port/udp_receivers.h"

#include <linux/sock_diag.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "port/arrival_stamps.h"
#include "port/shared_queues.h"
#include "port/system_clock.h"

namespace etloop {
namespace {

// Ranges of queue pair numbers that the kernel distinguishes: a few nanoseconds for each and every datagram.
constexpr size_t kMostBounds = 256;

Result<void> steer(int fd, const ShortBounds& bounds) {
  std::vector<sock_filter> code = steering_of_short(bounds);
  const sock_fprog program{static_cast<uint16_t>(code.size()), code.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0) return {};
  return Error{"the kernel does not sort datagrams between sockets (SO_ATTACH_REUSEPORT_CBPF): " + errno_text(errno)};
}

bool is_mixed(const ShortBounds& bounds) { return bounds.size() > 1 || (bounds.size() == 1 && bounds[0] != 0); }

}  // namespace

std::vector<sock_filter> steering_of_short(const ShortBounds& bounds) {
  std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kQpnWord), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xFFFFFF)};
  uint32_t below = 0;
  for (const uint32_t bound : bounds) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bound, 1, 0));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, below));
    below = 1 - below;
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, below));
  return code;
}

Result<void> UdpReceivers::add(const PortConfig& config, size_t address, Sharing sharing, bool is_short) {
  auto receiver = open_receiver(config.addresses[address], config.udp_port, config.receive_buffer_bytes, sharing);
  if (!receiver) return receiver.error();
  const int fd = receiver->get();
  if (auto steered = steer_datagrams(fd, config); !steered) return steered;
  if (!ask_for_stamps(fd)) {
    return Error{"the kernel does not stamp datagrams with their arrival (SO_TIMESTAMPING): " + errno_text(errno)};
  }
  const auto place = is_short ? all_.begin() + static_cast<std::ptrdiff_t>(short_count_++) : all_.end();
  all_.insert(place, {*std::move(receiver), static_cast<uint16_t>(address), monotonic_ns()});
  return {};
}

Result<void> UdpReceivers::open(const PortConfig& config, int poll) {
  for (size_t i = 0; i < config.addresses.size(); ++i) {
    const ShortBounds bounds = i < config.short_bounds.size() ? config.short_bounds[i] : ShortBounds{};
    const bool mixed = is_mixed(bounds);
    if (mixed && bounds.size() > kMostBounds) {
      unsorted_why_ = "short messages to " + config.addresses[i].text() +
                      " are not received before long ones: their queue pairs have " + std::to_string(bounds.size()) +
                      " bounds, at most " + std::to_string(kMostBounds) + " are distinguished";
    }
    if (!mixed || bounds.size() > kMostBounds) {
      const bool all_short = !bounds.empty() && !mixed;
      if (auto added = add(config, i, sharing_of(config), all_short); !added) return added;
      continue;
    }
    if (auto added = add(config, i, Sharing::first, false); !added) return added;
    if (auto added = add(config, i, Sharing::joins, true); !added) return added;
    if (auto steered = steer(all_[short_count_ - 1].socket.get(), bounds); !steered) return steered;
  }
  if (short_count_ == all_.size()) short_count_ = 0;  // none goes before another
  for (size_t i = 0; i < all_.size() && !asked_one_by_one(); ++i) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    if (epoll_ctl(poll, EPOLL_CTL_ADD, all_[i].socket.get(), &event) == 0) continue;
    return Error{"cannot watch a UDP socket: " + errno_text(errno)};
  }
  return {};
}

size_t UdpReceivers::long_budget(size_t short_datagrams, size_t budget, Nanos now) {
  if (short_datagrams > 0) short_came_ns_ = now;
  long_waited_ = short_datagrams > 0 && !long_waited_;
  if (long_waited_) return 0;
  return now - short_came_ns_ < kShortMemoryNs ? 1 : budget;
}

int64_t UdpReceivers::least_buffer_bytes() const {
  int64_t least = INT64_MAX;
  for (const UdpReceiver& receiver : all_) {
    int granted_bytes = 0;
    socklen_t length = sizeof granted_bytes;
    getsockopt(receiver.socket.get(), SOL_SOCKET, SO_RCVBUF, &granted_bytes, &length);
    least = std::min<int64_t>(least, granted_bytes);
  }
  return least;
}

int64_t UdpReceivers::kernel_drops() const {
  int64_t drops = 0;
  for (const UdpReceiver& receiver : all_) {
    std::array<uint32_t, SK_MEMINFO_VARS> memory{};
    socklen_t length = sizeof memory;
    if (getsockopt(receiver.socket.get(), SOL_SOCKET, SO_MEMINFO, memory.data(), &length) == 0) drops += memory[SK_MEMINFO_DROPS];
  }
  return drops;
}

}  // namespace etloop
