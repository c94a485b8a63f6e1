// Whether the link of an interface is up according to the kernel: the interface is up and its driver has a carrier.
#pragma once

#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/result.h"
#include "port/udp_socket.h"

namespace etloop {

class LinkState {
 public:
  static Result<LinkState> open(const std::string& interface) {
    LinkState link;
    link.socket_ = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (link.socket_.get() < 0) return Error{"cannot ask for the link of " + interface + ": " + errno_text(errno)};
    link.interface_ = interface;
    return link;
  }

  // Costs a system call.
  bool is_up() const {
    ifreq asked{};
    std::copy_n(interface_.begin(), std::min(interface_.size(), sizeof asked.ifr_name - 1), asked.ifr_name);
    if (ioctl(socket_.get(), SIOCGIFFLAGS, &asked) != 0) return false;  // the interface is gone
    return (asked.ifr_flags & IFF_UP) != 0 && (asked.ifr_flags & IFF_RUNNING) != 0;
  }
  const std::string& interface() const { return interface_; }

 private:
  Descriptor socket_;
  std::string interface_;
};

}  // namespace etloop
