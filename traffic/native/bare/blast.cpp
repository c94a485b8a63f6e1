#include "bare/blast.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "bare/frame_blast.h"
#include "port/send_control.h"
#include "port/udp_socket.h"
#include "wire/wire.h"

namespace etloop {
namespace {

constexpr size_t kMaxDatagramBytes = 65536;
constexpr size_t kMaxSendBytes = 65507;
constexpr uint32_t kReceiveBatch = 4;
constexpr int64_t kReceiveBufferBytes = 64 << 20;
constexpr int64_t kAnswerTimeoutNs = 20'000'000;
constexpr uint16_t kBlastSourcePort = 0xFFFE;
constexpr int kClockEvery = 64;  // sends or empty polls between clock readings

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void wait_for(int fd, short events, int64_t timeout_ns) {
  pollfd polled{fd, events, 0};
  poll(&polled, 1, static_cast<int>(timeout_ns / 1'000'000));
}

// Return the size of the datagrams that the kernel joined, or the whole size if it joined none.
size_t joined_bytes(msghdr& header, size_t bytes) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
    int segment_bytes = 0;
    std::memcpy(&segment_bytes, CMSG_DATA(control), sizeof segment_bytes);
    if (segment_bytes > 0) return static_cast<size_t>(segment_bytes);
  }
  return std::max<size_t>(bytes, 1);
}

// One system call of a sender.
struct SendCall {
  size_t bytes;
  uint32_t datagrams;
  bool whole;  // not segmented although the socket segments
};

// The calls that a sender repeats.
std::vector<SendCall> send_calls(const BlastSettings& settings) {
  const size_t segment_bytes = settings.segment_bytes;
  if (settings.message_packets == 0) return {{segment_bytes * settings.segments, settings.segments, false}};
  std::vector<SendCall> calls{{segment_bytes + wire::kRethBytes, 1, true}};
  for (uint32_t left = settings.message_packets - 2; left > 0;) {
    const uint32_t together = std::min(left, settings.segments);
    calls.push_back({segment_bytes * together, together, false});
    left -= together;
  }
  calls.push_back({segment_bytes + wire::kImmBytes, 1, true});
  return calls;
}

ssize_t send_one(int fd, const uint8_t* bytes, const SendCall& call, const SocketAddress& to) {
  if (!call.whole) return sendto(fd, bytes, call.bytes, 0, &to.any, to.length);
  SendControl control;
  control.segments_of(0);
  // The kernel only reads through these two.
  iovec vector{const_cast<uint8_t*>(bytes), call.bytes};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(&to.any);
  message.msg_namelen = to.length;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  control.attach(message);
  return sendmsg(fd, &message, 0);
}

// Receives into the same few buffers repeatedly.
class Drain {
 public:
  Drain(int fd, uint32_t batch)
      : fd_(fd), bytes_(batch * kMaxDatagramBytes), messages_(batch), vectors_(batch), controls_(batch) {
    for (size_t i = 0; i < batch; ++i) {
      vectors_[i] = {bytes_.data() + i * kMaxDatagramBytes, kMaxDatagramBytes};
      messages_[i].msg_hdr.msg_iov = &vectors_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
      messages_[i].msg_hdr.msg_control = controls_[i].bytes;
    }
  }
  // Receive once. False: no datagram had arrived.
  bool once(BlastTotals& totals) {
    for (mmsghdr& message : messages_) message.msg_hdr.msg_controllen = sizeof(Control);
    const int count = recvmmsg(fd_, messages_.data(), static_cast<unsigned>(messages_.size()), MSG_DONTWAIT, nullptr);
    for (int i = 0; i < count; ++i) {
      mmsghdr& message = messages_[static_cast<size_t>(i)];
      const size_t segment_bytes = joined_bytes(message.msg_hdr, message.msg_len);
      totals.bytes += message.msg_len;
      totals.datagrams += static_cast<int64_t>((message.msg_len + segment_bytes - 1) / segment_bytes);
    }
    return count > 0;
  }

 private:
  struct alignas(cmsghdr) Control {
    uint8_t bytes[2 * CMSG_SPACE(sizeof(int))];
  };
  int fd_;
  std::vector<uint8_t> bytes_;
  std::vector<mmsghdr> messages_;
  std::vector<iovec> vectors_;
  std::vector<Control> controls_;
};

// Busy-poll for one datagram. Negative: timed out.
ssize_t poll_datagram(int fd, std::span<uint8_t> into, SocketAddress* source, int64_t timeout_ns) {
  const int64_t deadline_ns = now_ns() + timeout_ns;
  for (int turn = 1;; ++turn) {
    socklen_t length = sizeof(sockaddr_in6);
    const ssize_t bytes = recvfrom(fd, into.data(), into.size(), MSG_DONTWAIT, source == nullptr ? nullptr : &source->any,
                                   source == nullptr ? nullptr : &length);
    if (source != nullptr) source->length = length;
    if (bytes >= 0) return bytes;
    if (turn % kClockEvery == 0 && now_ns() > deadline_ns) return -1;
  }
}

}  // namespace

Result<BlastTotals> blast_send(const BlastSettings& settings) {
  if (settings.backend != Backend::udp) return frame_blast_send(settings);
  const size_t send_bytes = size_t{settings.segment_bytes} * settings.segments;
  if (send_bytes == 0 || send_bytes > kMaxSendBytes) {
    return Error{"one send of a blast has 1 to 65507 bytes, not " + std::to_string(send_bytes)};
  }
  if (settings.message_packets != 0 && (settings.message_packets < 3 || settings.segments < 2)) {
    return Error{"messages of a blast have at least 3 packets, which are sent several to a call, not " +
                 std::to_string(settings.message_packets) + " sent " + std::to_string(settings.segments) + " to a call"};
  }
  const std::vector<SendCall> calls = send_calls(settings);
  const auto opened = open_sender(settings.src_ip, kBlastSourcePort, {});
  if (!opened) return opened.error();
  const Descriptor& sender = *opened;
  const int segment_bytes = settings.segments > 1 ? static_cast<int>(settings.segment_bytes) : 0;
  setsockopt(sender.get(), SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes);
  const SocketAddress to = socket_address(settings.dst_ip, settings.udp_port);
  const std::vector<uint8_t> bytes(kMaxSendBytes, 0xA5);
  const int64_t start_ns = now_ns();
  int64_t end_ns = start_ns;
  BlastTotals totals;
  size_t next = 0;
  for (int turn = 1; end_ns - start_ns < settings.duration_ns; ++turn) {
    const SendCall& call = calls[next];
    if (send_one(sender.get(), bytes.data(), call, to) >= 0) {
      totals.bytes += static_cast<int64_t>(call.bytes);
      totals.datagrams += call.datagrams;
      next = next + 1 == calls.size() ? 0 : next + 1;
    } else if (errno == EAGAIN || errno == ENOBUFS) {
      wait_for(sender.get(), POLLOUT, 1'000'000);
    } else {
      return Error{"cannot send to " + settings.dst_ip.text() + ": " + errno_text(errno)};
    }
    if (turn % kClockEvery == 0) end_ns = now_ns();
  }
  totals.duration_ns = end_ns - start_ns;
  return totals;
}

Result<BlastTotals> blast_receive(const BlastSettings& settings) {
  if (settings.backend != Backend::udp) return frame_blast_receive(settings);
  const auto opened = open_receiver(settings.dst_ip, settings.udp_port, kReceiveBufferBytes);
  if (!opened) return opened.error();
  const Descriptor& receiver = *opened;
  Drain drain(receiver.get(), kReceiveBatch);
  wait_for(receiver.get(), POLLIN, kBlastSilenceNs);
  BlastTotals totals;
  if (!drain.once(totals)) {
    return Error{"nothing arrived at " + settings.dst_ip.text() + " for 2 s; start the sender"};
  }
  totals = {};  // the first batch starts the clock
  const int64_t start_ns = now_ns();
  int64_t last_ns = start_ns;
  int64_t silent_since_ns = start_ns;
  while (last_ns - start_ns < settings.duration_ns && silent_since_ns - last_ns < kBlastSilenceNs) {
    if (drain.once(totals)) {
      last_ns = silent_since_ns = now_ns();
    } else {
      wait_for(receiver.get(), POLLIN, 100'000'000);
      silent_since_ns = now_ns();
      if (silent_since_ns - start_ns >= settings.duration_ns) break;
    }
  }
  totals.duration_ns = last_ns - start_ns;
  return totals;
}

Result<BlastTotals> blast_exchange(const ExchangeSettings& settings) {
  const auto opened = open_receiver(settings.src_ip, settings.udp_port, kReceiveBufferBytes);
  if (!opened) return opened.error();
  const auto sending = open_sender(settings.src_ip, kBlastSourcePort, {});
  if (!sending) return sending.error();
  const uint32_t batch = std::clamp(settings.batch, 1U, kMostBlastBatch);
  SocketAddress to = socket_address(settings.dst_ip, settings.udp_port);
  std::vector<uint8_t> bytes(std::clamp<size_t>(settings.datagram_bytes, 1, kMaxSendBytes), 0xA5);
  iovec vector{bytes.data(), bytes.size()};
  std::vector<mmsghdr> messages(batch);
  for (mmsghdr& message : messages) {
    message.msg_hdr.msg_name = &to.any;
    message.msg_hdr.msg_namelen = to.length;
    message.msg_hdr.msg_iov = &vector;
    message.msg_hdr.msg_iovlen = 1;
  }
  Drain drain(opened->get(), batch);
  BlastTotals totals;
  int64_t start_ns = 0;
  int64_t now = now_ns();
  const int64_t begun_ns = now;
  while (start_ns == 0 ? now - begun_ns < kBlastSilenceNs : now - start_ns < settings.duration_ns) {
    if (sendmmsg(sending->get(), messages.data(), batch, 0) < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ECONNREFUSED) {
      return Error{"cannot send to " + settings.dst_ip.text() + ": " + errno_text(errno)};
    }
    const bool came = drain.once(totals);
    now = now_ns();
    if (start_ns == 0 && came) {
      start_ns = now;
      totals = {};  // the first batch starts the clock
    }
  }
  if (start_ns == 0) return Error{"nothing arrived at " + settings.src_ip.text() + " for 2 s; start the other end"};
  totals.duration_ns = now - start_ns;
  return totals;
}

Result<std::vector<int64_t>> ping(const PingSettings& settings) {
  const auto opened = open_receiver(settings.src_ip, settings.udp_port, kReceiveBufferBytes);
  if (!opened) return opened.error();
  const Descriptor& end = *opened;
  const SocketAddress to = socket_address(settings.dst_ip, settings.udp_port);
  std::vector<uint8_t> message(std::clamp<size_t>(settings.message_bytes, sizeof(uint32_t), kMaxSendBytes));
  std::vector<uint8_t> answer(kMaxDatagramBytes);
  std::vector<int64_t> round_trips_ns;
  round_trips_ns.reserve(settings.count);
  int64_t heard_ns = now_ns();
  for (uint32_t number = 0; round_trips_ns.size() < settings.count; ++number) {
    std::memcpy(message.data(), &number, sizeof number);
    const int64_t sent_ns = now_ns();
    if (sent_ns - heard_ns > kBlastSilenceNs) {
      return Error{settings.dst_ip.text() + " did not answer for 2 s; start pong there"};
    }
    if (sendto(end.get(), message.data(), message.size(), 0, &to.any, to.length) < 0) {
      return Error{"cannot send to " + settings.dst_ip.text() + ": " + errno_text(errno)};
    }
    while (poll_datagram(end.get(), answer, nullptr, kAnswerTimeoutNs) >= 0) {
      heard_ns = now_ns();
      if (std::memcmp(answer.data(), message.data(), sizeof number) != 0) continue;  // late answer to a ping given up
      round_trips_ns.push_back(heard_ns - sent_ns);
      break;
    }
  }
  std::sort(round_trips_ns.begin(), round_trips_ns.end());
  return round_trips_ns;
}

Result<void> pong(const PingSettings& settings) {
  const auto opened = open_receiver(settings.dst_ip, settings.udp_port, kReceiveBufferBytes);
  if (!opened) return opened.error();
  const Descriptor& end = *opened;
  std::vector<uint8_t> message(kMaxDatagramBytes);
  SocketAddress source;
  uint32_t answered = 0;
  while (true) {
    // An answer may be lost: the last ping may be repeated.
    const int64_t patience_ns = answered >= settings.count ? 2 * kAnswerTimeoutNs : kBlastSilenceNs;
    const ssize_t bytes = poll_datagram(end.get(), message, &source, patience_ns);
    if (bytes < 0) break;
    sendto(end.get(), message.data(), static_cast<size_t>(bytes), 0, &source.any, source.length);
    ++answered;
  }
  if (answered >= settings.count) return {};
  return Error{"only " + std::to_string(answered) + " of " + std::to_string(settings.count) + " pings came to " +
               settings.dst_ip.text()};
}

}  // namespace etloop
