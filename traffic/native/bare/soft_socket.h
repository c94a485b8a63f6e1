// A packet socket (AF_PACKET) of the soft switch on one interface: receives every frame of the peer, with the kernel's arrival
// timestamp and offload state (PACKET_VNET_HDR), and sends frames.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "switch/soft_frame.h"

namespace etloop {

struct ReceivedFrame {
  std::span<const uint8_t> bytes;
  soft::OffloadHeader offload;
  std::optional<ethernet::Tag> tag;  // removed by the kernel
  Nanos stamp_ns = 0;                // steady clock
};

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void on_frame(const ReceivedFrame& frame) = 0;
};

class SoftSocket {
 public:
  static constexpr size_t kSendBatch = 64;

  // Open on an interface of the calling thread's network namespace; `promiscuous`: also receive frames for other stations, which
  // NICs filter.
  static Result<std::unique_ptr<SoftSocket>> open(const std::string& interface, bool promiscuous);
  ~SoftSocket();

  int fd() const;
  const ethernet::Mac& mac() const;
  // Deliver up to about `budget` frames; false if more wait.
  bool drain(FrameSink& sink, size_t budget);
  // Send frames (kSendBatch at most), and return how many the kernel accepted. Fewer: no room at present (`failed` is 0), or the
  // next one was rejected (`failed` is the errno).
  size_t send(std::span<const std::span<const uint8_t>> frames, int& failed);
  // Frames dropped because of a full socket buffer since it was opened.
  int64_t dropped();

 private:
  struct State;
  explicit SoftSocket(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
