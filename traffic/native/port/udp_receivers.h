// The receive sockets of a UDP port, and the order in which they are read: sockets of short messages before those of long ones,
// so that a short message does not wait behind long ones, which a NIC would have received at line rate.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "plan/short_messages.h"
#include "port/device_port.h"
#include "port/udp_socket.h"

namespace etloop {

struct UdpReceiver {
  Descriptor socket;
  uint16_t address;  // index among the port's
  Nanos drained_ns;  // when it was last empty: its contents arrived later
};

class UdpReceivers {
 public:
  // Up to so many are polled one by one: reading an empty socket costs less than epoll_wait, and a watched socket calls its
  // watcher for every datagram, on the core that receives it.
  static constexpr size_t kAskedOneByOne = 4;

  // Open one socket per address, or two where short and long messages come to it. `poll` watches more than `kAskedOneByOne`,
  // with their index as tag.
  Result<void> open(const PortConfig& config, int poll);

  size_t size() const { return all_.size(); }
  UdpReceiver& operator[](size_t index) { return all_[index]; }
  bool asked_one_by_one() const { return all_.size() <= kAskedOneByOne; }
  // The first so many sockets are those of short messages; 0: all messages are of one kind.
  size_t short_count() const { return short_count_; }
  // Return how many datagrams of long messages may be read in a turn that read `short_datagrams` until `now`: none after short
  // ones, so that their answers leave first, but never twice in a row; a single call's where short ones came lately; else
  // `budget`.
  size_t long_budget(size_t short_datagrams, size_t budget, Nanos now);

  int64_t least_buffer_bytes() const;
  // Why short messages to some address are not read first; "": they are.
  const std::string& unsorted_why() const { return unsorted_why_; }
  // Datagrams that the kernel dropped. One system call per socket.
  int64_t kernel_drops() const;

 private:
  Result<void> add(const PortConfig& config, size_t address, Sharing sharing, bool is_short);

  std::vector<UdpReceiver> all_;
  size_t short_count_ = 0;
  Nanos short_came_ns_ = -kShortMemoryNs;
  bool long_waited_ = false;
  std::string unsorted_why_;
};

// Return a classic BPF program for the two sockets of an address: 1 for the queue pairs within the bounds, else 0.
std::vector<sock_filter> steering_of_short(const ShortBounds& bounds);

}  // namespace etloop
