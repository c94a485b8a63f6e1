// Captures a port's sent and received packets as a pcapng file, for Wireshark and `etloop capture show`.
//
// The packet loop copies packets into a bounded ring; a separate thread writes them. Packets that do not fit the ring, or exceed
// the file limit, are counted, and missing only in the capture. Format: draft-ietf-opsawg-pcapng (section header, interface
// description, enhanced packet, interface statistics).
#pragma once

#include <atomic>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace etloop {

struct CaptureConfig {
  std::string path;
  std::string interface;     // display name
  uint32_t snap_bytes = 262'144;  // bytes kept per frame
  int64_t file_bytes = 1LL << 30;  // file size limit
  size_t ring_bytes = 16 << 20;
};

class Capture {
 public:
  // Create the file.
  static Result<std::unique_ptr<Capture>> open(const CaptureConfig& config);
  ~Capture();  // writes the rest of the ring, and the statistics

  // Called by the packet loop's thread only. A frame in two pieces, without FCS; `at_ns` on the monotonic clock.
  void note(bool outbound, std::span<const uint8_t> head, std::span<const uint8_t> tail, Nanos at_ns);

  int64_t frames() const { return frames_.load(std::memory_order_relaxed); }
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  struct Entry;
  explicit Capture(const CaptureConfig& config);
  void copy_in(uint64_t at, const void* from, size_t bytes);
  void copy_out(uint64_t at, void* to, size_t bytes) const;
  void run();
  bool write_next();
  bool write(std::span<const uint8_t> bytes);
  void write_statistics();

  CaptureConfig config_;
  std::FILE* file_ = nullptr;
  int64_t written_bytes_ = 0;
  bool full_ = false;
  Nanos real_offset_ns_ = 0;  // offset of the file's real times from monotonic times
  std::vector<uint8_t> ring_;
  std::atomic<uint64_t> head_{0};  // bytes written and read since the begin
  std::atomic<uint64_t> tail_{0};
  std::atomic<int64_t> frames_{0};
  std::atomic<int64_t> lost_{0};
  std::atomic<bool> ends_{false};
  std::vector<uint8_t> block_;
  std::thread writer_;
};

}  // namespace etloop
