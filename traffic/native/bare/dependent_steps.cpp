#include "bare/dependent_steps.h"

#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "port/udp_socket.h"

namespace etloop {
namespace {

constexpr int64_t kReceiveBufferBytes = 4 << 20;
constexpr int64_t kSilenceNs = 2'000'000'000;
constexpr int64_t kRepeatNs = 20'000'000;  // a datagram sent before the peer's socket was open is lost
constexpr size_t kMostBytes = 65507;
constexpr uint32_t kClockEvery = 64;  // empty polls between clock readings

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

enum Kind : uint32_t { kData = 0, kAcknowledgement = 1 };

// At the start of every datagram. `number` counts those of its kind, from 1.
struct Header {
  uint32_t kind;
  uint32_t number;
};

class Steps {
 public:
  Steps(const DependentSteps& settings, int fd)
      : fd_(fd),
        to_(socket_address(settings.dst_ip, settings.udp_port)),
        out_(std::clamp<size_t>(settings.datagram_bytes, sizeof(Header), kMostBytes)),
        in_(kMostBytes) {}

  void send(Kind kind) {
    sent_[kind] += 1;
    put(kind);
  }
  // Await the peer's datagram of a kind, as many as were sent. False: it is silent.
  bool await(Kind kind) {
    const int64_t begun_ns = now_ns();
    int64_t repeats_ns = begun_ns + kRepeatNs;
    for (uint32_t empty = 0; arrived_[kind] < sent_[kind];) {
      const ssize_t bytes = recvfrom(fd_, in_.data(), in_.size(), MSG_DONTWAIT, nullptr, nullptr);
      if (bytes >= static_cast<ssize_t>(sizeof(Header))) {
        note();
      } else if (++empty % kClockEvery == 0) {
        const int64_t now = now_ns();
        if (now - begun_ns > kSilenceNs) return false;
        if (now < repeats_ns) continue;
        repeats_ns = now + kRepeatNs;
        put(kData);
        if (sent_[kAcknowledgement] > 0) put(kAcknowledgement);
      }
    }
    return true;
  }

 private:
  void put(Kind kind) {
    const Header header{kind, sent_[kind]};
    std::memcpy(out_.data(), &header, sizeof header);
    const size_t bytes = kind == kData ? out_.size() : sizeof header;
    sendto(fd_, out_.data(), bytes, 0, &to_.any, to_.length);  // one that is lost is repeated
  }
  void note() {
    Header header{};
    std::memcpy(&header, in_.data(), sizeof header);
    if (header.kind <= kAcknowledgement) arrived_[header.kind] = std::max(arrived_[header.kind], header.number);
  }

  int fd_;
  SocketAddress to_;
  std::vector<uint8_t> out_;
  std::vector<uint8_t> in_;
  std::array<uint32_t, 2> sent_{};
  std::array<uint32_t, 2> arrived_{};
};

}  // namespace

Result<std::vector<int64_t>> dependent_steps(const DependentSteps& settings) {
  const auto opened = open_receiver(settings.src_ip, settings.udp_port, kReceiveBufferBytes);
  if (!opened) return opened.error();
  Steps steps(settings, opened->get());
  std::vector<int64_t> times_ns;
  times_ns.reserve(settings.operations);
  for (uint32_t operation = 0; operation < settings.operations; ++operation) {
    const int64_t begun_ns = now_ns();
    bool heard = true;
    for (uint32_t step = 0; heard && step < settings.steps; ++step) {
      steps.send(kData);
      heard = steps.await(kData);
    }
    if (heard && settings.waits_acknowledged) {
      steps.send(kAcknowledgement);
      heard = steps.await(kAcknowledgement);
    }
    if (!heard) return Error{"nothing from " + settings.dst_ip.text() + " for 2 s; start the other end"};
    times_ns.push_back(now_ns() - begun_ns);
  }
  return times_ns;
}

}  // namespace etloop
