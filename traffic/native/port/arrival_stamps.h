// Arrival times from the timestamps of packets (Linux Documentation/networking/timestamping.rst): of the NIC, if it stamps and
// its clock is readable; otherwise of the kernel, taken when the driver hands over a packet.
//
// NIC stamping is not enabled here: it is a setting of the whole interface, controlled by clock daemons. Users enable it
// (hwstamp_ctl -i eth1 -r 1).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <ctime>
#include <string>

#include "base/clock_bridge.h"
#include "plan/records.h"
#include "port/udp_socket.h"

namespace etloop {

// 0: no timestamp.
struct Stamps {
  Nanos kernel_ns = 0;  // real time
  Nanos card_ns = 0;    // the card's clock
};

inline constexpr size_t kStampBytes = 3 * sizeof(timespec);  // software, unused, raw hardware

// Enable timestamps. False: the kernel has none, errno has the reason.
bool ask_for_stamps(int fd);
// Parse a control message. False: it has no timestamps.
bool read_stamps(const cmsghdr& control, Stamps& out);

// Receive timestamping of an interface's driver (ethtool -T).
struct StampOffer {
  bool known = false;
  bool kernel = false;
  bool card = false;
  bool card_stamps_all = false;  // current setting
  int clock = -1;                // /dev/ptpN; -1: none
};
StampOffer stamps_offered(const std::string& interface);
// Describe the offer, and how to use more of it.
std::string stamp_text(const StampOffer& offer, const std::string& interface);

// Converts timestamps to the monotonic clock.
class ArrivalClock {
 public:
  // Without an interface: kernel timestamps only.
  void open(const std::string& interface);
  // Call before the timestamps of a batch received until `now`.
  void begin(Nanos now);
  // Convert a timestamp. Real-time and NIC clocks may be stepped: results are clamped to [earliest, now].
  Nanos arrived(const Stamps& stamps, Nanos earliest_ns, Nanos now, PortRecord& counters) const;
  const std::string& text() const { return text_; }

 private:
  void read_card_clock();

  Descriptor card_clock_;
  ClockBridge bridge_;
  Nanos read_at_ns_ = 0;
  Nanos real_offset_ns_ = 0;
  std::string text_ = "arrivals are stamped by the kernel";
};

}  // namespace etloop
