// The soft switch: a thread that runs a fabric in real time between interfaces, with one packet socket (AF_PACKET) each.
//
// The model uses the kernel's arrival timestamps, not the times at which the thread runs: queueing, marking, pausing and drops do
// not depend on its promptness. Only the hand-over of frames can be late. Frames that the thread cannot carry (socket overruns,
// lack of memory, frames rejected by the kernel) are counted as overload, separate from modelled drops.
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
  ethernet::Mac host_mac{};          // zeros: unknown
  std::vector<IpAddress> addresses;  // addresses of the host behind it
};

struct SoftSwitchConfig {
  FabricConfig fabric;
  std::vector<SoftPortConfig> ports;  // by attachment
  uint32_t mtu_bytes = 4200;
  int64_t memory_bytes = 256 << 20;  // memory of frames inside; more are overload
  Nanos late_ns = 1'000'000;         // frames handed over later than this count as late
  Nanos spin_ns = 0;                 // polling time before a deadline; otherwise the thread sleeps
  // Learn stations like a bridge: accept every frame, learn its source, and flood frames to unknown stations. Otherwise such
  // frames are dropped and counted.
  bool learns = false;
};

struct SoftPortCounters {
  int64_t rx_frames = 0;  // single frames, after segmentation of joined ones
  int64_t rx_joined_frames = 0;
  int64_t tx_frames = 0;
  int64_t tx_pause_frames = 0;
  int64_t rx_pause_frames = 0;
  int64_t unknown_destination_frames = 0;  // no station behind another port
  // Overload and other losses outside the model:
  int64_t socket_dropped_frames = 0;  // as received, joined or not
  int64_t memory_dropped_frames = 0;
  int64_t card_refused_frames = 0;
  int64_t send_failed_frames = 0;
  int64_t uncut_frames = 0;  // too long for the link, and cannot be segmented
  int64_t late_frames = 0;

  int64_t overload() const {
    return socket_dropped_frames + memory_dropped_frames + card_refused_frames + send_failed_frames + uncut_frames;
  }
};

struct SoftSnapshot {
  Nanos at_ns = 0;     // steady clock
  Nanos begin_ns = 0;  // start of the fabric
  std::vector<SwitchCounters> switches;
  std::vector<FabricEnd> down;  // switch ports with their link down
  std::vector<CardCounters> cards;
  std::vector<SoftPortCounters> ports;
  // Histogram of hand-over lateness against the model, in the buckets of turnarounds.
  std::array<int64_t, kTurnaroundBuckets> lateness{};
  Nanos worst_lateness_ns = 0;
  Nanos processor_ns = 0;  // CPU time of the thread
  int64_t turns = 0;
  int64_t frames_inside = 0;
  bool real_time = false;  // whether the thread has real-time priority
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
  // Why the thread ended by itself; empty: it runs or was stopped.
  std::string failure() const;
  // Current snapshot, taken by the thread between two turns; after its end, of the last turn.
  SoftSnapshot snapshot();
  void set_link(const FabricEnd& end, bool up);

 private:
  struct State;
  explicit SoftSwitch(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
