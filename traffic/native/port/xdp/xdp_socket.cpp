#include "port/xdp/xdp_socket.h"

#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "port/system_clock.h"

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif
#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif

#ifndef SO_PREFER_BUSY_POLL
#define SO_PREFER_BUSY_POLL 69
#define SO_BUSY_POLL_BUDGET 70
#endif

namespace etloop {
namespace {

constexpr Nanos kQueueReleaseNs = 2'000'000'000;
constexpr uint32_t kContinued = 1;  // XDP_PKT_CONTD
constexpr uint64_t kChunkMask = ~uint64_t{kChunkBytes - 1};

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

bool set_option(int fd, int option, const void* value, socklen_t length) {
  return setsockopt(fd, SOL_XDP, option, value, length) == 0;
}

// Linux Documentation/networking/napi.rst: the application's calls drive the device, and its interrupts stay off.
bool ask_for_polling(int fd, int microseconds) {
  constexpr int kPacketsPerCall = 64;
  const auto set = [fd](int option, int value) { return setsockopt(fd, SOL_SOCKET, option, &value, sizeof value) == 0; };
  return set(SO_PREFER_BUSY_POLL, 1) && set(SO_BUSY_POLL, microseconds) && set(SO_BUSY_POLL_BUDGET, kPacketsPerCall);
}

// The kernel releases a queue some time after its socket was closed: retry on EBUSY.
int bind_patiently(int fd, const sockaddr_xdp& address) {
  const Nanos deadline = monotonic_ns() + kQueueReleaseNs;
  while (true) {
    if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return 0;
    if (errno != EBUSY || monotonic_ns() > deadline) return errno;
    poll(nullptr, 0, 1);
  }
}

}  // namespace

XdpSocket::~XdpSocket() {
  for (const auto& [at, bytes] : {std::pair{rx_.mapped, rx_.mapped_bytes},
                                  {tx_.mapped, tx_.mapped_bytes},
                                  {fill_.mapped, fill_.mapped_bytes},
                                  {completed_.mapped, completed_.mapped_bytes},
                                  {static_cast<void*>(memory_), memory_bytes_}}) {
    if (at != nullptr) munmap(at, bytes);
  }
}

template <typename Entry>
Result<void> XdpSocket::map_ring(Ring<Entry>& ring, const xdp_ring_offset& offset, uint32_t size, uint64_t page) {
  ring.mapped_bytes = offset.desc + size * sizeof(Entry);
  void* at = mmap(nullptr, ring.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket_.get(),
                  static_cast<off_t>(page));
  if (at == MAP_FAILED) {
    return Error{"cannot map a ring of an AF_XDP socket: " + errno_text(errno)};
  }
  ring.mapped = at;
  auto* bytes = static_cast<uint8_t*>(at);
  ring.producer = reinterpret_cast<std::atomic<uint32_t>*>(bytes + offset.producer);
  ring.consumer = reinterpret_cast<std::atomic<uint32_t>*>(bytes + offset.consumer);
  ring.flags = reinterpret_cast<std::atomic<uint32_t>*>(bytes + offset.flags);
  ring.entries = reinterpret_cast<Entry*>(bytes + offset.desc);
  ring.size = size;
  return {};
}

Result<void> XdpSocket::open(const XdpSettings& settings) {
  socket_ = Descriptor(socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
  const int fd = socket_.get();
  if (fd < 0) {
    return Error{"cannot open an AF_XDP socket: " + errno_text(errno) + "; it needs CAP_NET_RAW and CONFIG_XDP_SOCKETS"};
  }
  memory_bytes_ = size_t{settings.rx_chunks + settings.tx_chunks} * kChunkBytes;
  void* memory = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return Error{"no memory for the frames of an AF_XDP socket: " + errno_text(errno)};
  }
  memory_ = static_cast<uint8_t*>(memory);
  xdp_umem_reg registered{};
  registered.addr = reinterpret_cast<uint64_t>(memory);
  registered.len = memory_bytes_;
  registered.chunk_size = kChunkBytes;
  const uint32_t rx = settings.rx_chunks;
  const uint32_t tx = settings.tx_chunks;
  if (!set_option(fd, XDP_UMEM_REG, &registered, sizeof registered)) {
    return Error{"the kernel does not take " + std::to_string(memory_bytes_ >> 20) + " MiB for an AF_XDP socket: " +
                 errno_text(errno) + "; raise the limit of locked memory (ulimit -l), or give the agent CAP_IPC_LOCK"};
  }
  xdp_mmap_offsets offsets{};
  socklen_t length = sizeof offsets;
  if (!set_option(fd, XDP_UMEM_FILL_RING, &rx, sizeof rx) || !set_option(fd, XDP_UMEM_COMPLETION_RING, &tx, sizeof tx) ||
      !set_option(fd, XDP_RX_RING, &rx, sizeof rx) || !set_option(fd, XDP_TX_RING, &tx, sizeof tx) ||
      getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length) != 0) {
    return Error{"cannot make the rings of an AF_XDP socket: " + errno_text(errno)};
  }
  Result<void> mapped = map_ring(fill_, offsets.fr, rx, XDP_UMEM_PGOFF_FILL_RING);
  if (mapped) mapped = map_ring(completed_, offsets.cr, tx, XDP_UMEM_PGOFF_COMPLETION_RING);
  if (mapped) mapped = map_ring(rx_, offsets.rx, rx, XDP_PGOFF_RX_RING);
  if (mapped) mapped = map_ring(tx_, offsets.tx, tx, XDP_PGOFF_TX_RING);
  if (!mapped) return mapped;
  for (uint64_t chunk = 0; chunk < rx; ++chunk) fill_.next() = chunk * kChunkBytes;
  fill_.producer->store(fill_.at, std::memory_order_release);
  free_.reserve(tx);
  for (uint64_t chunk = rx; chunk < uint64_t{rx} + tx; ++chunk) free_.push_back(chunk * kChunkBytes);

  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_flags = XDP_USE_SG | XDP_USE_NEED_WAKEUP;  // zero-copy if the driver supports it, otherwise copy mode
  address.sxdp_ifindex = static_cast<uint32_t>(settings.interface_index);
  address.sxdp_queue_id = settings.queue;
  if (const int code = bind_patiently(fd, address); code != 0) {
    return Error{"cannot bind an AF_XDP socket to queue " + std::to_string(settings.queue) + " of " + settings.interface + ": " +
                 errno_text(code) + (code == EINVAL  ? "; frames of 4 KiB need Linux 6.6, write backend: packet"
                                     : code == EBUSY ? "; another program has an AF_XDP socket on this queue: end it"
                                                     : "")};
  }
  xdp_options options{};
  length = sizeof options;
  busy_polls_ = settings.busy_poll_us > 0 && ask_for_polling(fd, static_cast<int>(settings.busy_poll_us));
  zero_copy_ = getsockopt(fd, SOL_XDP, XDP_OPTIONS, &options, &length) == 0 && (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
  return {};
}

void XdpSocket::take_back() {
  for (uint32_t left = completed_.filled(); left > 0; --left) free_.push_back(completed_.next() & kChunkMask);
  completed_.consumer->store(completed_.at, std::memory_order_release);
}

void XdpSocket::give_back(uint64_t address) {
  assert(fill_.room() > 0);  // as many entries as chunks
  fill_.next() = address & kChunkMask;
}

bool XdpSocket::has_room(size_t frames, size_t bytes) {
  const size_t chunks = frames * ((bytes + kChunkBytes - 1) / kChunkBytes);
  if (free_.size() < chunks) take_back();
  return free_.size() >= chunks && tx_.room() >= chunks;
}

bool XdpSocket::put(std::span<const uint8_t> head, std::span<const uint8_t> tail) {
  if (!has_room(1, head.size() + tail.size())) return false;
  while (!head.empty() || !tail.empty()) {
    const uint64_t chunk = free_.back();
    free_.pop_back();
    size_t filled = 0;
    for (std::span<const uint8_t>* piece : {&head, &tail}) {
      const size_t bytes = std::min(piece->size(), kChunkBytes - filled);
      if (bytes > 0) std::memcpy(memory_ + chunk + filled, piece->data(), bytes);
      *piece = piece->subspan(bytes);
      filled += bytes;
    }
    const bool more = !head.empty() || !tail.empty();
    tx_.next() = {chunk, static_cast<uint32_t>(filled), more ? kContinued : 0};
  }
  return true;
}

void XdpSocket::drive() {
  if (rx_.filled() == 0) recvfrom(socket_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

bool XdpSocket::idle() { return tx_.room() == tx_.size; }

int XdpSocket::kick() {
  tx_.producer->store(tx_.at, std::memory_order_release);
  while (tx_.wants_wakeup() && !idle()) {
    const uint32_t before = tx_.room();
    // EAGAIN: a budget was sent, more is queued. EBUSY, ENOBUFS: the device is full.
    const bool done = sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0;
    if ((done || errno == EAGAIN) && tx_.room() != before) continue;
    return done || errno == EAGAIN || errno == EBUSY || errno == ENOBUFS ? 0 : errno;
  }
  return 0;
}

int64_t XdpSocket::dropped() const {
  xdp_statistics stats{};
  socklen_t length = sizeof stats;
  if (getsockopt(socket_.get(), SOL_XDP, XDP_STATISTICS, &stats, &length) != 0) return 0;
  return static_cast<int64_t>(stats.rx_dropped + stats.rx_ring_full);
}

}  // namespace etloop
