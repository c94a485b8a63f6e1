// When packets arrived, from the stamps that come with them (Linux Documentation/networking/timestamping.rst): the card's
// where it stamps and its clock can be read, else the kernel's, taken as the driver hands a packet over.
//
// Cards are not told to stamp: that is a setting of the whole interface, which clock daemons hold. Whoever wants it sets it
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

// 0: none came.
struct Stamps {
  Nanos kernel_ns = 0;  // real time
  Nanos card_ns = 0;    // the card's clock
};

inline constexpr size_t kStampBytes = 3 * sizeof(timespec);  // software, nothing any more, raw hardware

// False: the kernel has no stamps, errno says why.
bool ask_for_stamps(int fd);
// Whether a control message holds stamps, which are then in `out`.
bool read_stamps(const cmsghdr& control, Stamps& out);

// What an interface's driver says of stamps at receiving (ethtool -T).
struct StampOffer {
  bool known = false;
  bool kernel = false;
  bool card = false;
  bool card_stamps_all = false;  // as it is set now
  int clock = -1;                // /dev/ptpN; -1: none
};
StampOffer stamps_offered(const std::string& interface);
// The offer in words, with what would have to be done to use more of it.
std::string stamp_text(const StampOffer& offer, const std::string& interface);

// Stamps to times of the monotonic clock.
class ArrivalClock {
 public:
  // Without an interface: the kernel's stamps only.
  void open(const std::string& interface);
  // Before the stamps of a batch that was received until `now`.
  void begin(Nanos now);
  // Real-time clocks and cards' clocks may be stepped; what cannot be true is cut to [earliest, now].
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
