#include "port/arrival_stamps.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "port/system_clock.h"

namespace etloop {
namespace {

constexpr Nanos kReadAgainNs = 100'000'000;  // clocks with a drift of 10^-5 diverge by a microsecond in this time
constexpr int kReadings = 3;

Nanos nanos_of(const timespec& time) { return static_cast<Nanos>(time.tv_sec) * 1'000'000'000 + time.tv_nsec; }

// The clock id of a descriptor (Linux include/linux/posix-timers.h, fd_to_clockid).
clockid_t clock_of(int fd) { return static_cast<clockid_t>((~static_cast<unsigned>(fd) << 3) | 3U); }

bool ask_interface(const std::string& interface, unsigned long question, void* answer) {
  const Descriptor asked(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, interface.c_str(), sizeof request.ifr_name - 1);
  request.ifr_data = static_cast<char*>(answer);
  return asked.get() >= 0 && ioctl(asked.get(), question, &request) == 0;
}

}  // namespace

bool ask_for_stamps(int fd) {
  const int wanted = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RX_HARDWARE |
                     SOF_TIMESTAMPING_RAW_HARDWARE;
  return setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &wanted, sizeof wanted) == 0;
}

bool read_stamps(const cmsghdr& control, Stamps& out) {
  if (control.cmsg_level != SOL_SOCKET || control.cmsg_type != SCM_TIMESTAMPING) return false;
  if (control.cmsg_len < CMSG_LEN(kStampBytes)) return false;
  timespec stamps[3];
  std::memcpy(stamps, CMSG_DATA(&control), sizeof stamps);
  out = {nanos_of(stamps[0]), nanos_of(stamps[2])};
  return true;
}

StampOffer stamps_offered(const std::string& interface) {
  StampOffer offer;
  ethtool_ts_info info{};
  info.cmd = ETHTOOL_GET_TS_INFO;
  if (interface.empty() || !ask_interface(interface, SIOCETHTOOL, &info)) return offer;
  offer.known = true;
  offer.kernel = (info.so_timestamping & SOF_TIMESTAMPING_RX_SOFTWARE) != 0;
  offer.card = (info.so_timestamping & SOF_TIMESTAMPING_RX_HARDWARE) != 0 && (info.rx_filters >> HWTSTAMP_FILTER_ALL & 1U) != 0;
  offer.clock = info.phc_index;
  hwtstamp_config set{};
  offer.card_stamps_all = offer.card && ask_interface(interface, SIOCGHWTSTAMP, &set) && set.rx_filter == HWTSTAMP_FILTER_ALL;
  return offer;
}

std::string stamp_text(const StampOffer& offer, const std::string& interface) {
  const std::string kernel = "arrivals are stamped by the kernel";
  if (!offer.known) return kernel + "; what " + interface + " offers is not known";
  if (!offer.card) return kernel + "; the card of " + interface + " offers no stamps of every packet";
  if (!offer.card_stamps_all) {
    return kernel + "; the card of " + interface + " would, if it were set to: hwstamp_ctl -i " + interface + " -r 1";
  }
  if (offer.clock < 0) return kernel + "; the card of " + interface + " stamps as well, but shows no clock to read them by";
  return "arrivals are stamped by the card of " + interface + ", whose clock is ptp" + std::to_string(offer.clock);
}

void ArrivalClock::open(const std::string& interface) {
  const StampOffer offer = stamps_offered(interface);
  if (!interface.empty()) text_ = stamp_text(offer, interface);
  if (!offer.card_stamps_all || offer.clock < 0) return;
  const std::string path = "/dev/ptp" + std::to_string(offer.clock);
  card_clock_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (card_clock_.get() >= 0) return;
  text_ = "arrivals are stamped by the kernel; the card of " + interface + " stamps as well, but " + path +
          " cannot be read: " + errno_text(errno);
}

// Read the card's clock several times; use the reading between the closest pair of readings of the steady clock.
void ArrivalClock::read_card_clock() {
  Nanos narrowest = kNever;
  Nanos there = 0;
  Nanos here = 0;
  for (int turn = 0; turn < kReadings; ++turn) {
    timespec read{};
    const Nanos before = monotonic_ns();
    if (clock_gettime(clock_of(card_clock_.get()), &read) != 0) return;
    const Nanos took = monotonic_ns() - before;
    if (took >= narrowest) continue;
    narrowest = took;
    there = nanos_of(read);
    here = before + took / 2;
  }
  bridge_.add(there, here);
}

void ArrivalClock::begin(Nanos now) {
  real_offset_ns_ = realtime_ns() - now;
  if (card_clock_.get() < 0 || (bridge_.ready() && now - read_at_ns_ < kReadAgainNs)) return;
  read_at_ns_ = now;
  read_card_clock();
}

Nanos ArrivalClock::arrived(const Stamps& stamps, Nanos earliest_ns, Nanos now, PortRecord& counters) const {
  const bool by_card = stamps.card_ns != 0 && bridge_.ready();
  // Packet sockets of Linux 6.1 report a packet from a veth pair with its departure time on the monotonic clock.
  const bool by_kernel = stamps.kernel_ns > real_offset_ns_;
  counters.stamped_messages += by_card || by_kernel ? 1 : 0;
  counters.card_stamped_messages += by_card ? 1 : 0;
  const Nanos stamped_ns = by_card     ? bridge_.here_of(stamps.card_ns)
                           : by_kernel ? stamps.kernel_ns - real_offset_ns_
                                       : now;
  return std::clamp(stamped_ns, earliest_ns, now);
}

}  // namespace etloop
