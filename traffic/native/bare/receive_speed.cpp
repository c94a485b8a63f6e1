#include "bare/receive_speed.h"

#include <time.h>

#include <span>
#include <utility>

#include "qp/qp.h"
#include "wire/ethernet.h"
#include "wire/frame_builder.h"

namespace etloop {
namespace {

constexpr uint32_t kQpn = 17;
constexpr uint32_t kRkey = (kQpn << 8) | 1;
TransportSettings params_of(uint32_t path_mtu) {
  TransportSettings params;
  params.path_mtu_bytes = path_mtu;
  return params;
}

struct End {
  explicit End(const TransportSettings& params) : qp(kQpn, kQpn, 0, params, QpResources{kRkey, nullptr, nullptr}) {
    qp.set_window(kMostReceived);
  }
  Qp qp;
};

// The frames of one WRITE of the pattern, as they come from a link.
std::vector<std::vector<uint8_t>> frames_of_write(const TransportSettings& params, uint32_t packets) {
  ethernet::Path path;
  path.flow = {IpAddress::v4(0x0A000001), IpAddress::v4(0x0A000002), 50'000, wire::kRoceUdpPort};
  End end(params);
  Qp& qp = end.qp;
  WorkRequest request;
  request.kind = WorkKind::write;
  request.rkey = kRkey;
  request.bytes = packets * params.path_mtu_bytes;
  qp.post(request);
  std::vector<std::vector<uint8_t>> frames;
  while (qp.has_run()) {
    const PacketRun run = qp.next_run(1);
    const size_t bytes = wire::datagram_bytes(run.head.opcode, run.head.payload_bytes);
    std::vector<uint8_t> frame(ethernet::kMaxHeaderBytes + bytes + wire::kMaxHeaderBytes);
    const size_t headers = ethernet::put_headers(path, 0, 0, bytes, frame);
    frame.resize(headers + build_datagram(path.flow, 0, run.head, std::span(frame).subspan(headers)));
    frames.push_back(std::move(frame));
    qp.run_sent(run, 0);
  }
  return frames;
}

int64_t thread_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Looks at every frame as a port and its core do, acknowledgements included; -1 unless the whole message came of it.
int64_t take_in(const std::vector<std::vector<uint8_t>>& frames, const TransportSettings& params) {
  End end(params);
  Qp& qp = end.qp;
  uint32_t delivered_messages = 0;
  const int64_t before_ns = thread_time_ns();
  for (const std::vector<uint8_t>& frame : frames) {
    const ethernet::Frame parsed = ethernet::parse(frame, wire::kRoceUdpPort);
    if (parsed.kind != ethernet::FrameKind::roce || !ethernet::icrc_is_right(frame, parsed)) break;
    wire::Packet packet;
    const std::span datagram = std::span(frame).subspan(parsed.datagram_at, parsed.datagram_bytes);
    if (wire::decode(datagram, datagram.size(), packet) != wire::Malformed::none) break;
    Delivered delivered;
    for (bool whole = qp.on_request(packet, delivered); whole; whole = qp.next_delivered(delivered)) ++delivered_messages;
    while (qp.answer_due()) qp.answer_sent(qp.answer());
  }
  const int64_t spent_ns = thread_time_ns() - before_ns;
  return delivered_messages == 1 ? spent_ns : -1;
}

}  // namespace

std::vector<ReceiveTurn> receive_speed(uint32_t path_mtu, uint32_t packets, uint32_t turns) {
  const TransportSettings params = params_of(path_mtu);
  const auto frames = frames_of_write(params, packets);
  std::vector<ReceiveTurn> out;
  for (uint32_t turn = 0; turn < turns; ++turn) {
    for (const crc32::Way way : crc32::kWays) {
      if (!crc32::is_here(way)) continue;
      crc32::choose(way);
      const int64_t spent_ns = take_in(frames, params);
      crc32::choose(crc32::fastest());
      if (spent_ns < 0) return {};
      out.push_back({way, static_cast<double>(spent_ns) / packets});
    }
  }
  return out;
}

}  // namespace etloop
