// A packet socket (AF_PACKET) of the soft switch on one interface: every frame that the peer sends, with the kernel's arrival
// stamp and what is left to do for it (PACKET_VNET_HDR); and frames out.
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
  std::optional<ethernet::Tag> tag;  // that the kernel took out
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

  // On an interface of the calling thread's network namespace; `promiscuous`: also what is for other stations than the
  // interface, which network cards withhold.
  static Result<std::unique_ptr<SoftSocket>> open(const std::string& interface, bool promiscuous);
  ~SoftSocket();

  int fd() const;
  const ethernet::Mac& mac() const;
  // Hands over up to about `budget` frames; false if more wait.
  bool drain(FrameSink& sink, size_t budget);
  // How many of the whole frames (kSendBatch at most) the kernel took. Fewer: it has no room at present (`failed` is 0), or
  // refused the next one for good (`failed` is the errno).
  size_t send(std::span<const std::span<const uint8_t>> frames, int& failed);
  // Frames that came while the socket's buffer was full, since it was opened.
  int64_t dropped();

 private:
  struct State;
  explicit SoftSocket(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace etloop
