#include "port/capture.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "port/system_clock.h"
#include "port/udp_socket.h"

namespace etloop {
namespace {

constexpr uint32_t kSectionHeader = 0x0A0D0D0A;
constexpr uint32_t kInterfaceDescription = 1;
constexpr uint32_t kInterfaceStatistics = 5;
constexpr uint32_t kEnhancedPacket = 6;
constexpr uint32_t kByteOrder = 0x1A2B3C4D;
constexpr uint16_t kEthernet = 1;
constexpr uint16_t kOptionEnd = 0;
constexpr uint16_t kOptionName = 2;           // of an interface
constexpr uint16_t kOptionResolution = 9;     // timestamp resolution of an interface
constexpr uint16_t kOptionFlags = 2;          // of a packet
constexpr uint16_t kOptionDropped = 5;        // of the statistics: frames not written
constexpr uint8_t kNanoseconds = 9;
constexpr auto kWriterRest = std::chrono::milliseconds(2);

// A pcapng block in host byte order. `bytes` grows to the longest block and is reused.
class Block {
 public:
  Block(std::vector<uint8_t>& bytes, uint32_t type) : bytes_(bytes) {
    put(type);
    put(uint32_t{0});
  }
  template <typename T>
  void put(T value) {
    std::memcpy(room(sizeof value), &value, sizeof value);
    length_ -= (4 - sizeof value % 4) % 4;  // only contents are padded
  }
  void put_option(uint16_t code, const void* from, size_t length) {
    put(code);
    put(static_cast<uint16_t>(length));
    if (length > 0) std::memcpy(room(length), from, length);
  }
  // Reserve space for contents, padded to 32 bits.
  uint8_t* room(size_t length) {
    const size_t padded = (length + 3) & ~size_t{3};
    if (bytes_.size() < length_ + padded) bytes_.resize(2 * (length_ + padded));
    uint8_t* at = bytes_.data() + length_;
    std::memset(at, 0, padded);
    length_ += padded;
    return at;
  }
  std::span<const uint8_t> finish() {
    const auto total = static_cast<uint32_t>(length_ + sizeof(uint32_t));
    put(total);
    std::memcpy(bytes_.data() + 4, &total, sizeof total);
    return {bytes_.data(), length_};
  }

 private:
  std::vector<uint8_t>& bytes_;
  size_t length_ = 0;
};

}  // namespace

struct Capture::Entry {
  Nanos at_ns;
  uint32_t frame_bytes;
  uint32_t kept_bytes;
  uint32_t outbound;
  uint32_t reserved;
};

Capture::Capture(const CaptureConfig& config) : config_(config), ring_(config.ring_bytes) {}

Result<std::unique_ptr<Capture>> Capture::open(const CaptureConfig& config) {
  std::unique_ptr<Capture> capture(new Capture(config));
  capture->file_ = std::fopen(config.path.c_str(), "wbx");
  if (capture->file_ == nullptr) {
    return Error{"cannot create the capture " + config.path + ": " + errno_text(errno) +
                 "; name a directory that can be written"};
  }
  Block section(capture->block_, kSectionHeader);
  section.put(kByteOrder);
  section.put(uint16_t{1});
  section.put(uint16_t{0});
  section.put(int64_t{-1});
  capture->write(section.finish());
  Block interface(capture->block_, kInterfaceDescription);
  interface.put(kEthernet);
  interface.put(uint16_t{0});
  interface.put(config.snap_bytes);
  interface.put_option(kOptionName, config.interface.data(), config.interface.size());
  interface.put_option(kOptionResolution, &kNanoseconds, sizeof kNanoseconds);
  interface.put_option(kOptionEnd, nullptr, 0);
  capture->write(interface.finish());
  capture->real_offset_ns_ = realtime_ns() - monotonic_ns();
  capture->writer_ = std::thread([raw = capture.get()] { raw->run(); });
  return capture;
}

Capture::~Capture() {
  ends_.store(true, std::memory_order_release);
  if (writer_.joinable()) writer_.join();
  if (file_ == nullptr) return;
  write_statistics();
  std::fclose(file_);
}

void Capture::copy_in(uint64_t at, const void* from, size_t bytes) {
  const size_t begin = at % ring_.size();
  const size_t first = std::min(bytes, ring_.size() - begin);
  std::memcpy(ring_.data() + begin, from, first);
  if (first < bytes) std::memcpy(ring_.data(), static_cast<const uint8_t*>(from) + first, bytes - first);
}

void Capture::copy_out(uint64_t at, void* to, size_t bytes) const {
  const size_t begin = at % ring_.size();
  const size_t first = std::min(bytes, ring_.size() - begin);
  std::memcpy(to, ring_.data() + begin, first);
  if (first < bytes) std::memcpy(static_cast<uint8_t*>(to) + first, ring_.data(), bytes - first);
}

void Capture::note(bool outbound, std::span<const uint8_t> head, std::span<const uint8_t> tail, Nanos at_ns) {
  const size_t whole = head.size() + tail.size();
  const size_t kept = std::min<size_t>(whole, config_.snap_bytes);
  const uint64_t at = head_.load(std::memory_order_relaxed);
  if (at - tail_.load(std::memory_order_acquire) + sizeof(Entry) + kept > ring_.size()) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const Entry entry{at_ns, static_cast<uint32_t>(whole), static_cast<uint32_t>(kept), outbound ? 1U : 0U, 0};
  const size_t of_head = std::min(kept, head.size());
  copy_in(at, &entry, sizeof entry);
  copy_in(at + sizeof entry, head.data(), of_head);
  if (kept > of_head) copy_in(at + sizeof entry + of_head, tail.data(), kept - of_head);
  head_.store(at + sizeof entry + kept, std::memory_order_release);
}

bool Capture::write(std::span<const uint8_t> bytes) {
  written_bytes_ += static_cast<int64_t>(bytes.size());
  return std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size();
}

bool Capture::write_next() {
  const uint64_t at = tail_.load(std::memory_order_relaxed);
  if (at == head_.load(std::memory_order_acquire)) return false;
  Entry entry{};
  copy_out(at, &entry, sizeof entry);
  constexpr int64_t kBlockBytes = 64;  // per frame, and for the final statistics
  full_ = full_ || written_bytes_ + entry.kept_bytes + 2 * kBlockBytes > config_.file_bytes;
  if (!full_) {
    const auto stamp = static_cast<uint64_t>(entry.at_ns + real_offset_ns_);
    const uint32_t flags = entry.outbound != 0 ? 2 : 1;
    Block packet(block_, kEnhancedPacket);
    packet.put(uint32_t{0});
    packet.put(static_cast<uint32_t>(stamp >> 32));
    packet.put(static_cast<uint32_t>(stamp));
    packet.put(entry.kept_bytes);
    packet.put(entry.frame_bytes);
    copy_out(at + sizeof entry, packet.room(entry.kept_bytes), entry.kept_bytes);
    packet.put_option(kOptionFlags, &flags, sizeof flags);
    packet.put_option(kOptionEnd, nullptr, 0);
    full_ = !write(packet.finish());  // includes a full disk
  }
  (full_ ? lost_ : frames_).fetch_add(1, std::memory_order_relaxed);
  tail_.store(at + sizeof entry + entry.kept_bytes, std::memory_order_release);
  return true;
}

void Capture::run() {
  pthread_setname_np(pthread_self(), "etloop-capture");
  while (true) {
    // Read before the ring: the ring then has everything before the end.
    const bool ends = ends_.load(std::memory_order_acquire);
    while (write_next()) {
    }
    if (ends) return;
    std::this_thread::sleep_for(kWriterRest);
  }
}

void Capture::write_statistics() {
  const auto stamp = static_cast<uint64_t>(realtime_ns());
  const auto dropped = static_cast<uint64_t>(lost());
  Block statistics(block_, kInterfaceStatistics);
  statistics.put(uint32_t{0});
  statistics.put(static_cast<uint32_t>(stamp >> 32));
  statistics.put(static_cast<uint32_t>(stamp));
  statistics.put_option(kOptionDropped, &dropped, sizeof dropped);
  statistics.put_option(kOptionEnd, nullptr, 0);
  write(statistics.finish());
}

}  // namespace etloop
