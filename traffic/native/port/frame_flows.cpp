#include "port/frame_flows.h"

#include <linux/filter.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "plan/discards.h"
#include "port/capture.h"
#include "port/shared_queues.h"
#include "port/system_clock.h"

namespace etloop {
namespace {

constexpr Nanos kAskAgainNs = 1'000'000;        // for an unknown neighbour
constexpr Nanos kLookAgainNs = 5'000'000'000;   // for a known one: it may have moved

Result<Descriptor> hold_roce_port(const IpAddress& ip, uint16_t udp_port) {
  auto holder = open_receiver(ip, udp_port, 0);
  if (!holder) return holder;
  sock_filter drop_all{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop_all};
  if (setsockopt(holder->get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0) return holder;
  return Error{"cannot keep the kernel from queueing our packets (SO_ATTACH_FILTER): " + errno_text(errno)};
}

// Padding that a NIC adds to a short frame.
int64_t padding_of(size_t frame_bytes) {
  return static_cast<int64_t>(ethernet::kLeastFrameBytes - std::min(frame_bytes, ethernet::kLeastFrameBytes));
}

}  // namespace

FrameFlows::FrameFlows(const PortConfig& config) : pauses(config.link_bps), config_(config), random_(config.drop_seed) {}

Result<void> FrameFlows::open() {
  auto found = find_interface(config_.interface, config_.addresses[0]);
  if (!found) return found.error();
  interface_ = *std::move(found);
  if (auto opened = neighbours_.open(); !opened) return opened;
  const size_t outer_bytes = config_.segments.empty() ? 0 : usid::kOuterHeaderBytes;
  const size_t ip_bytes = (config_.addresses[0].is_v4() ? 28 : 48) + outer_bytes;
  const size_t needed_mtu = wire::datagram_bytes(wire::Opcode::write_only_imm, config_.path_mtu) + ip_bytes;
  if (interface_.mtu != 0 && static_cast<size_t>(interface_.mtu) < needed_mtu) {
    return Error{"interface " + interface_.name + " has an MTU of " + std::to_string(interface_.mtu) + ", packets of path MTU " +
                 std::to_string(config_.path_mtu) + " need " + std::to_string(needed_mtu) + "; ip link set " + interface_.name +
                 " mtu " + std::to_string(needed_mtu) + ", or lower the path MTU"};
  }
  for (size_t i = 0; i < config_.addresses.size(); ++i) {
    if (config_.queue == 0) {
      auto holder = hold_roce_port(config_.addresses[i], config_.udp_port);
      if (!holder) return holder.error();
      holders_.push_back(*std::move(holder));
    }
    address_of_[config_.addresses[i]] = static_cast<uint16_t>(i);
  }
  return {};
}

Result<FlowId> FrameFlows::add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
  assert(address < config_.addresses.size());
  const IpAddress& src_ip = config_.addresses[address];
  const Result<IpAddress> hop_ip = neighbours_.next_hop(interface_, src_ip, dst_ip);
  if (!hop_ip) return hop_ip.error();
  const auto [at, is_new] = hop_of_.try_emplace(*hop_ip, hops_.size());
  if (is_new) hops_.push_back({neighbours_.look_up(interface_, *hop_ip), monotonic_ns(), *hop_ip});
  Flow added{{.source = interface_.mac, .destination = {}, .tag = {}, .flow = {src_ip, dst_ip, src_port, config_.udp_port}},
             at->second, traffic_class};
  const auto routed = std::find_if(config_.segments.begin(), config_.segments.end(),
                                   [&](const usid::Route& route) { return route.to == dst_ip; });
  if (routed != config_.segments.end()) added.path.segments = &*routed;
  if (config_.hop_limit != 0) added.path.hop_limit = config_.hop_limit;
  if (config_.vlan_id >= 0) added.path.tag = ethernet::Tag{static_cast<uint16_t>(config_.vlan_id), config_.vlan_priority};
  flows_.push_back(added);
  return static_cast<FlowId>(flows_.size() - 1);
}

ethernet::Path* FrameFlows::path_of(FlowId flow, const ClassMarks& marks, Nanos now) {
  Flow& of = flows_[flow];
  Hop& hop = hops_[of.hop];
  if (now - hop.asked_ns > (hop.mac ? kLookAgainNs : kAskAgainNs)) {
    hop.asked_ns = now;
    if (const auto mac = neighbours_.look_up(interface_, hop.ip)) hop.mac = mac;
  }
  if (!hop.mac) return nullptr;
  of.path.destination = *hop.mac;
  if (of.path.tag) of.path.tag->priority = priority(flow, marks);
  return &of.path;
}

std::span<const uint8_t> FrameFlows::headers(const PacketRun& run, size_t datagram_bytes, Nanos now) {
  const ethernet::Path* path = path_of(run.flow, marks_of(run), now);
  if (path == nullptr) return {};
  const uint8_t usual = flows_[run.flow].traffic_class;
  const uint8_t in_use = run.traffic_class == kFlowClass ? usual : static_cast<uint8_t>(run.traffic_class);
  return {header_.data(), ethernet::put_headers(*path, in_use, 0, datagram_bytes, header_)};
}

bool FrameFlows::put_built(const BuiltPacket& built, Nanos now, BuiltFrame& frame) {
  const ethernet::Path* known = path_of(built.flow, built.marks, now);
  if (known == nullptr) return false;
  ethernet::Path path = *known;
  path.flow.src_port = built.src_port;
  const size_t datagram_bytes = built.datagram_bytes();
  frame.header_bytes = ethernet::header_bytes(path);
  const size_t payload_at = frame.header_bytes + built.headers.size();
  const bool alike = built.payload == nullptr && frame.bytes.size() == frame.header_bytes + datagram_bytes &&
                     frame.pattern_at == payload_at && frame.pattern_bytes == built.payload_bytes;
  frame.bytes.resize(frame.header_bytes + datagram_bytes);
  const int16_t marked = built.marks.traffic_class;
  const uint8_t in_use = marked == kFlowClass ? flows_[built.flow].traffic_class : static_cast<uint8_t>(marked);
  ethernet::put_headers(path, in_use, 0, datagram_bytes, frame.bytes);
  uint8_t* at = std::copy(built.headers.begin(), built.headers.end(), frame.bytes.data() + frame.header_bytes);
  if (!alike) {
    frame.pattern_at = built.payload == nullptr ? payload_at : 0;
    frame.pattern_bytes = built.payload_bytes;
    if (built.payload == nullptr) at = std::fill_n(at, built.payload_bytes, wire::kPatternByte);
    else at = std::copy_n(built.payload, built.payload_bytes, at);
    std::fill(at, frame.bytes.data() + frame.bytes.size(), uint8_t{0});
  }
  if (built.trailer == PacketTrailer::none) return true;
  const uint32_t icrc = wire::icrc_of_headers(path.flow, built.headers, built.payload_bytes, built.payload) ^
                        (built.corrupt_icrc ? 1U : 0U);
  std::memcpy(frame.bytes.data() + frame.bytes.size() - wire::kIcrcBytes, &icrc, wire::kIcrcBytes);
  return true;
}

uint8_t FrameFlows::priority(FlowId flow, const ClassMarks& marks) const {
  if (config_.vlan_id >= 0) return marks.priority == kFlowPriority ? config_.vlan_priority : static_cast<uint8_t>(marks.priority);
  // Without a tag, the usual mapping: the three upper bits of the DSCP.
  const int traffic_class = marks.traffic_class == kFlowClass ? flows_[flow].traffic_class : marks.traffic_class;
  return static_cast<uint8_t>(traffic_class >> 5);
}

Nanos FrameFlows::paused_until(const PacketRun& run, Nanos now) const {
  return paused_until(run.flow, marks_of(run), now);
}

Nanos FrameFlows::paused_until(const BuiltPacket& built, Nanos now) const {
  return paused_until(built.flow, built.marks, now);
}

Nanos FrameFlows::paused_until(FlowId flow, const ClassMarks& marks, Nanos now) const {
  if (config_.shared != nullptr) return config_.shared->paused_until(priority(flow, marks), now);
  return pauses.frames() == 0 ? kNever : pauses.paused_until(priority(flow, marks), now);
}

// A pause stops all queues of the port, whichever received it.
void FrameFlows::on_pause(const ethernet::Pause& pause, Nanos arrived_ns) {
  pauses.on_pause(pause, arrived_ns);
  for (uint8_t priority = 0; config_.shared != nullptr && priority < config_.shared->paused_until_ns.size(); ++priority) {
    if ((pause.enabled >> priority & 1) == 0) continue;
    const Nanos until_ns = pauses.paused_until(priority, arrived_ns);
    config_.shared->paused_until_ns[priority].store(until_ns == kNever ? 0 : until_ns, std::memory_order_relaxed);
  }
}

void FrameFlows::account_pauses(Nanos now) {
  if (pauses.frames() == 0) return;
  counters.rx_pause_frames = pauses.frames();
  counters.paused_ns = pauses.paused_ns(now);
}

bool FrameFlows::is_marked_cut(const ethernet::Frame& parsed) const {
  return (config_.trimmed_dscps >> (parsed.traffic_class >> 2) & 1) != 0 && parsed.left_bytes >= wire::kBthBytes;
}

bool FrameFlows::deliver(std::span<const uint8_t> frame, const ethernet::Frame& parsed,
                         const std::optional<ethernet::Tag>& tag, PortSink& sink, Nanos arrived_ns) {
  ++counters.rx_datagrams;
  if (parsed.kind == ethernet::FrameKind::roce) {
    counters.rx_bytes += static_cast<int64_t>(parsed.datagram_bytes);
    const size_t taken_out = tag && !parsed.tag ? ethernet::kTagBytes : 0;
    counters.rx_padding_bytes += padding_of(parsed.datagram_at + parsed.datagram_bytes + taken_out);
  }
  const auto address = address_of_.find(parsed.dst_ip);
  // A switch may have removed an outer header; a remaining one must be for this host.
  const bool is_ours = !parsed.carrier || config_.segment_end.is_for(*parsed.carrier);
  const std::optional<ethernet::Tag>& carried = parsed.tag ? parsed.tag : tag;
  // A priority tag is not a VLAN (802.1Q, 6.6).
  const int32_t network = carried && carried->id != 0 ? carried->id : -1;
  if (!is_ours || address == address_of_.end() || (network >= 0 && config_.vlan_id > 0 && network != config_.vlan_id)) {
    discard(counters, Discard::wrong_address);
    return false;
  }
  // A small packet marked as trimmed may be complete. Without an ICRC the transport decides.
  const bool checked = config_.trailer == PacketTrailer::icrc;
  const bool whole = parsed.kind == ethernet::FrameKind::roce &&
                     (checked ? ethernet::icrc_is_right(frame, parsed) : !is_marked_cut(parsed));
  if (!whole && !is_marked_cut(parsed)) {
    ++counters.rx_icrc_encapsulated;
    return false;
  }
  if (config_.drop_per_million != 0 && random_() % 1'000'000 < config_.drop_per_million) {
    ++counters.injected_drops;
    return false;
  }
  Datagram datagram;
  const size_t bytes = whole ? parsed.datagram_bytes : parsed.left_bytes;
  datagram.bytes = frame.subspan(parsed.datagram_at, bytes);
  datagram.datagram_bytes = static_cast<uint32_t>(bytes);
  datagram.trimmed = !whole;
  datagram.src_ip = parsed.src_ip;
  datagram.src_port = parsed.src_port;
  datagram.address = address->second;
  datagram.traffic_class = parsed.traffic_class;
  sink.on_datagram(datagram, arrived_ns);
  return true;
}

void FrameFlows::note_sent(std::span<const uint8_t> header, std::span<const uint8_t> datagram, Nanos now) {
  counters.tx_padding_bytes += padding_of(header.size() + datagram.size());
  if (config_.capture != nullptr) config_.capture->note(true, header, datagram, now);
}

size_t FrameFlows::take(std::span<const uint8_t> frame, const std::optional<ethernet::Tag>& tag, PortSink& sink,
                        Nanos arrived_ns) {
  const ethernet::Frame parsed = ethernet::parse(frame, config_.udp_port);
  if (config_.capture != nullptr && parsed.kind != ethernet::FrameKind::other) {
    config_.capture->note(false, frame, {}, arrived_ns);
  }
  switch (parsed.kind) {
    case ethernet::FrameKind::roce: deliver(frame, parsed, tag, sink, arrived_ns); return 1;
    case ethernet::FrameKind::pause: on_pause(*ethernet::parse_pause(frame), arrived_ns); return 0;
    case ethernet::FrameKind::malformed:
      if (is_marked_cut(parsed)) {
        deliver(frame, parsed, tag, sink, arrived_ns);
        return 1;
      }
      ++counters.rx_datagrams;
      discard(counters, Discard::bad_frame);
      return 1;
    case ethernet::FrameKind::other: return 0;
  }
  return 0;
}

size_t FrameFlows::take_joined(std::span<const uint8_t> frame, size_t segment_bytes,
                               const std::optional<ethernet::Tag>& tag, PortSink& sink, Nanos arrived_ns) {
  const ethernet::Frame parsed = ethernet::parse(frame, config_.udp_port);
  if (parsed.kind != ethernet::FrameKind::roce || segment_bytes == 0) return take(frame, tag, sink, arrived_ns);
  size_t packets = 0;
  for (size_t at = 0; at < parsed.datagram_bytes; at += segment_bytes) {
    const size_t bytes = std::min(segment_bytes, parsed.datagram_bytes - at);
    segment_.resize(parsed.datagram_at + bytes);
    std::memcpy(segment_.data(), frame.data(), parsed.datagram_at);
    std::memcpy(segment_.data() + parsed.datagram_at, frame.data() + parsed.datagram_at + at, bytes);
    ethernet::make_segment(segment_, parsed, static_cast<uint16_t>(packets));
    packets += take(segment_, tag, sink, arrived_ns);
  }
  return packets;
}

}  // namespace etloop
