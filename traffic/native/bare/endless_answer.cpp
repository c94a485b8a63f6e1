#include "bare/endless_answer.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>

#include "wire/wire.h"

namespace etloop {
namespace {

constexpr size_t kBatch = 64;
constexpr size_t kIpAt = 14;
constexpr size_t kUdpAt = kIpAt + 20;
constexpr size_t kBthAt = kUdpAt + 8;
constexpr size_t kLeastBytes = kBthAt + wire::kBthBytes + wire::kIcrcBytes;
constexpr uint8_t kFirstAnswer = 0x0D;  // RC opcodes from here on are not requests with data
constexpr size_t kControlBytes = CMSG_SPACE(sizeof(timespec));

uint32_t read24(const uint8_t* at) { return uint32_t{at[0]} << 16 | uint32_t{at[1]} << 8 | at[2]; }

Nanos monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Nanos{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Buffers for a batch of frames of recvmmsg.
class Batch {
 public:
  Batch() {
    for (size_t i = 0; i < kBatch; ++i) {
      places_[i] = {bytes_[i].data(), kNotedBytes};
      messages_[i].msg_hdr.msg_iov = &places_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }

  int receive(int fd) {
    for (size_t i = 0; i < kBatch; ++i) {
      messages_[i].msg_hdr.msg_control = controls_[i].data();
      messages_[i].msg_hdr.msg_controllen = kControlBytes;
    }
    return recvmmsg(fd, messages_.data(), kBatch, MSG_DONTWAIT | MSG_TRUNC, nullptr);
  }

  std::span<const uint8_t, kNotedBytes> head(size_t i) const { return bytes_[i]; }
  uint32_t frame_bytes(size_t i) const { return messages_[i].msg_len; }

  Nanos stamp(size_t i) {
    msghdr& header = messages_[i].msg_hdr;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
      if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_TIMESTAMPNS) continue;
      timespec at{};
      std::memcpy(&at, CMSG_DATA(control), sizeof at);
      return Nanos{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
    }
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return Nanos{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

 private:
  std::array<std::array<uint8_t, kNotedBytes>, kBatch> bytes_{};
  std::array<std::array<uint8_t, kControlBytes>, kBatch> controls_{};
  std::array<iovec, kBatch> places_{};
  std::array<mmsghdr, kBatch> messages_{};
};

// Whether a frame is a request of the card to this queue pair: the reverse of the acknowledgement's direction.
bool is_request(std::span<const uint8_t, kNotedBytes> frame, uint32_t frame_bytes, const EndlessAnswer& order) {
  const uint8_t* ack = order.acknowledgement.data();
  const uint8_t* bth = frame.data() + kBthAt;
  return frame_bytes >= kLeastBytes && std::memcmp(frame.data() + 12, ack + 12, 3) == 0 &&  // IPv4 without options
         frame[kIpAt + 9] == ack[kIpAt + 9] && std::memcmp(frame.data() + kIpAt + 12, ack + kIpAt + 16, 4) == 0 &&
         std::memcmp(frame.data() + kIpAt + 16, ack + kIpAt + 12, 4) == 0 &&
         std::memcmp(frame.data() + kUdpAt + 2, ack + kUdpAt + 2, 2) == 0 && bth[0] < kFirstAnswer &&
         read24(bth + 5) == order.our_qpn;
}

void write_psn(std::vector<uint8_t>& frame, uint32_t psn) {
  uint8_t* at = frame.data() + kBthAt + 9;
  at[0] = static_cast<uint8_t>(psn >> 16);
  at[1] = static_cast<uint8_t>(psn >> 8);
  at[2] = static_cast<uint8_t>(psn);
  const uint32_t icrc = wire::icrc_of_ip(std::span(frame).subspan(kIpAt));
  for (size_t i = 0; i < wire::kIcrcBytes; ++i)
    frame[frame.size() - wire::kIcrcBytes + i] = static_cast<uint8_t>(icrc >> (8 * i));
}

// Wait for frames; false: timeout or a signal.
bool wait_until(int fd, Nanos until_ns) {
  const Nanos left_ns = std::max<Nanos>(until_ns - monotonic_ns(), 0);
  const timespec patience{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
  pollfd watched{fd, POLLIN, 0};
  return ppoll(&watched, 1, &patience, nullptr) > 0;
}

}  // namespace

AnsweredRequests answer_requests(const EndlessAnswer& order) {
  AnsweredRequests out;
  if (order.acknowledgement.size() < kLeastBytes + wire::kAethBytes) {
    out.error = EINVAL;
    return out;
  }
  out.at_ns.reserve(order.most);
  out.frame_bytes.reserve(order.most);
  out.heads.reserve(order.most * kNotedBytes);
  std::vector<uint8_t> acknowledgement = order.acknowledgement;
  Batch batch;
  Nanos quiet_until_ns = order.until_ns < 0 ? monotonic_ns() + order.patience_ns : order.until_ns;
  while (out.at_ns.size() < order.most) {
    const int came = batch.receive(order.fd);
    if (came <= 0) {
      if (came < 0 && errno != EAGAIN && errno != EINTR) {
        out.error = errno;
        return out;
      }
      if (!wait_until(order.fd, quiet_until_ns)) return out;
      continue;
    }
    uint32_t newest = 0;
    bool any = false;
    for (size_t i = 0; i < static_cast<size_t>(came) && out.at_ns.size() < order.most; ++i) {
      const auto head = batch.head(i);
      if (!is_request(head, batch.frame_bytes(i), order)) continue;
      out.at_ns.push_back(batch.stamp(i));
      out.frame_bytes.push_back(batch.frame_bytes(i));
      out.heads.insert(out.heads.end(), head.begin(), head.end());
      newest = read24(head.data() + kBthAt + 9);
      any = true;
    }
    if (any) {
      write_psn(acknowledgement, newest);
      if (send(order.fd, acknowledgement.data(), acknowledgement.size(), 0) < 0 && errno != EAGAIN && errno != ENOBUFS) {
        out.error = errno;
        return out;
      }
      ++out.acknowledgements;
      if (order.until_ns < 0) quiet_until_ns = monotonic_ns() + order.patience_ns;
    }
    if (order.until_ns >= 0 && monotonic_ns() >= order.until_ns) return out;
  }
  return out;
}

}  // namespace etloop
