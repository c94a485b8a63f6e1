// The soft switch: a thread that runs a fabric in real time between interfaces, one packet socket (AF_PACKET) each.
//
// The model gets the kernel's arrival stamps, not the times at which this thread looked: what is queued, marked, paused and
// dropped does not depend on how promptly the thread runs. Late it can only be in handing frames over. What it cannot carry
// (a socket buffer that ran over, memory, a frame the kernel would not take) is counted as overload, apart from modelled drops.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "base/time.h"
#include "base/turnarounds.h"
#include "switch/soft_fabric.h"
#include "wire/ethernet.h"

namespace etloop {

struct SoftPortConfig {
  std::string interface;  // in the network namespace of the thread that opens the switch
  ethernet::Mac host_mac{};          // zeros: not known
  std::vector<IpAddress> addresses;  // of the host behind it
};

struct SoftSwitchConfig {
  FabricConfig fabric;
  std::vector<SoftPortConfig> ports;  // by attachment
  uint32_t mtu_bytes = 4200;
  int64_t memory_bytes = 256 << 20;  // of frames inside; more are overload
  Nanos late_ns = 1'000'000;         // frames handed over later than this after their time count as late
  Nanos spin_ns = 0;                 // before a deadline; else the thread sleeps
  // Who is behind the ports is found out, as a bridge does: every frame is taken in, its sender's place learned, and one for
  // nobody known goes to all other ports. Else such frames are lost and counted.
  bool learns = false;
};

struct SoftPortCounters {
  int64_t rx_frames = 0;  // single, after joined ones were cut
  int64_t rx_joined_frames = 0;
  int64_t tx_frames = 0;
  int64_t tx_pause_frames = 0;
  int64_t rx_pause_frames = 0;
  int64_t unknown_destination_frames = 0;  // for nobody behind another port
  // Overload and what else is not the model's doing:
  int64_t socket_dropped_frames = 0;  // as they came, joined or not
  int64_t memory_dropped_frames = 0;
  int64_t card_refused_frames = 0;
  int64_t send_failed_frames = 0;
  int64_t uncut_frames = 0;  // longer than the link carries, and nothing that can be cut
  int64_t late_frames = 0;

  int64_t overload() const {
    return socket_dropped_frames + memory_dropped_frames + card_refused_frames + send_failed_frames + uncut_frames;
  }
};

struct SoftSnapshot {
  Nanos at_ns = 0;     // steady clock
  Nanos begin_ns = 0;  // when the fabric began
  std::vector<SwitchCounters> switches;
  std::vector<FabricEnd> down;  // switch ports whose link is down
  std::vector<CardCounters> cards;
  std::vector<SoftPortCounters> ports;
  // How much later than modelled frames were handed over, in the buckets of turnarounds.
  std::array<int64_t, kTurnaroundBuckets> lateness{};
  Nanos worst_lateness_ns = 0;
  Nanos processor_ns = 0;  // that the thread used
  int64_t turns = 0;
  int64_t frames_inside = 0;
  bool real_time = false;  // whether the kernel runs the thread before ordinary ones
};

class SoftSwitch {
 public:
  // Opens the sockets in the calling thread's network namespace.
  static Result<std::unique_ptr<SoftSwitch>> open(const SoftSwitchConfig& config);
  SoftSwitch(const SoftSwitch&) = delete;
  SoftSwitch& operator=(const SoftSwitch&) = delete;
  ~SoftSwitch();

  void start();
  void stop();
  // Why the thread ended by itself; empty while it runs or if it was stopped.
  std::string failure() const;
  // As of now, taken by the thread between two turns; of its last turn if it has ended.
  SoftSnapshot snapshot();
  void set_link(const FabricEnd& end, bool up);

 private:
  struct State;
  explicit SoftSwitch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
