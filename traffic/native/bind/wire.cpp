// Python's view of the wire format, for tests against independent oracles, and of the bare kernel path, for `etloop bench`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>

#include "bare/blast.h"
#include "bare/dependent_steps.h"
#include "bare/receive_speed.h"
#include "bind/plan.h"
#include "bind/value_or_throw.h"
#include "loop/core_watch.h"
#include "wire/frame_builder.h"
#include "wire/wire.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {
namespace {

constexpr uint32_t kMaxPayloadBytes = 65000;
constexpr uint32_t kMostMtuBytes = 4096;

std::span<const uint8_t> bytes_of(const nb::bytes& bytes) {
  return {static_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

const char* malformed_name(wire::Malformed malformed) {
  switch (malformed) {
    case wire::Malformed::none: return "none";
    case wire::Malformed::too_short: return "too short";
    case wire::Malformed::transport_version: return "transport version is not 0";
    case wire::Malformed::other_transport: return "an opcode of MRC, which is not RoCEv2";
    case wire::Malformed::unknown_opcode: return "unknown opcode";
    case wire::Malformed::bad_pad: return "more pad than payload";
    case wire::Malformed::bad_length: return "length does not fit the opcode";
  }
  return "";
}

const char* check_name(wire::FrameCheck check) {
  switch (check) {
    case wire::FrameCheck::good: return "good";
    case wire::FrameCheck::bad_icrc: return "bad_icrc";
    case wire::FrameCheck::not_roce: return "not_roce";
    case wire::FrameCheck::malformed: return "malformed";
  }
  return "";
}

wire::Opcode opcode_of(uint8_t value) {
  // Decoding fails with unknown_opcode or other_transport for exactly the opcodes that are not RoCEv2's.
  wire::Packet packet;
  const std::array<uint8_t, wire::kMaxHeaderBytes> header{value};
  const wire::Malformed found = wire::decode(header, wire::kMaxHeaderBytes + wire::kIcrcBytes, packet);
  if (found == wire::Malformed::unknown_opcode || found == wire::Malformed::other_transport) {
    throw nb::value_error(("opcode " + std::to_string(value) + " is not supported").c_str());
  }
  return static_cast<wire::Opcode>(value);
}

void require_24_bits(const wire::Packet& packet) {
  for (const uint32_t field : {packet.dest_qpn, packet.psn, packet.msn, packet.src_qpn}) {
    if (field > 0xFFFFFF) throw nb::value_error("queue pair numbers, PSN and MSN have 24 bits");
  }
}

nb::bytes encode(const wire::Packet& values, const wire::IpFlow& flow, uint16_t ip_id, const nb::bytes& payload) {
  require_24_bits(values);
  wire::Packet packet = values;
  if (payload.size() > 0) {
    packet.payload = static_cast<const uint8_t*>(payload.data());
    packet.payload_bytes = static_cast<uint32_t>(payload.size());
  }
  if (payload.size() > kMaxPayloadBytes || packet.payload_bytes > kMaxPayloadBytes) {
    throw nb::value_error("a payload has at most 65000 bytes");
  }
  std::vector<uint8_t> out(wire::datagram_bytes(packet.opcode, packet.payload_bytes) + wire::kMaxHeaderBytes);
  const size_t bytes = build_datagram(flow, ip_id, packet, out);
  return nb::bytes(out.data(), bytes);
}

nb::bytes encode_middles(const wire::IpFlow& flow, const wire::Packet& head, uint32_t count, uint32_t ack_every) {
  require_24_bits(head);
  if (head.payload_bytes == 0 || head.payload_bytes % 4 != 0 || head.payload_bytes > 4096) {
    throw nb::value_error("a MIDDLE has 4 to 4096 payload bytes, a multiple of 4");
  }
  if (count == 0 || count > MiddleRun::max_segments(head.payload_bytes)) throw nb::value_error("too many for one send");
  PacketRun run{.head = head, .count = count, .ack_every = ack_every};
  run.head.opcode = wire::Opcode::write_middle;
  MiddleRun middles(head.payload_bytes);
  const auto datagrams = middles.build(flow, run, IpIds::counting);
  return nb::bytes(datagrams.data(), datagrams.size());
}

std::tuple<wire::Packet, nb::bytes> decode(const nb::bytes& datagram) {
  wire::Packet packet;
  const wire::Malformed malformed = wire::decode(bytes_of(datagram), datagram.size(), packet);
  if (malformed != wire::Malformed::none) throw nb::value_error(malformed_name(malformed));
  const nb::bytes payload(packet.payload == nullptr ? "" : reinterpret_cast<const char*>(packet.payload),
                          packet.payload_bytes);
  packet.payload = nullptr;
  return {packet, payload};
}

void bind_values(nb::module_& module) {
  nb::class_<wire::IpFlow>(module, "IpFlow")
      .def(
          "__init__",
          [](wire::IpFlow* self, const std::string& src_ip, const std::string& dst_ip, uint16_t src_port, uint16_t dst_port) {
            new (self) wire::IpFlow{parse_address(src_ip), parse_address(dst_ip), src_port, dst_port};
          },
          "src_ip"_a, "dst_ip"_a, "src_port"_a, "dst_port"_a = wire::kRoceUdpPort);
  nb::class_<wire::Packet>(module, "WirePacket")
      .def("__init__",
           [](wire::Packet* self, uint8_t opcode) {
             const wire::Opcode known = opcode_of(opcode);
             new (self) wire::Packet{.opcode = known};
           },
           "opcode"_a)
      .def_prop_ro("opcode", [](const wire::Packet& packet) { return static_cast<uint8_t>(packet.opcode); })
      .def_rw("ack_req", &wire::Packet::ack_req)
      .def_rw("becn", &wire::Packet::becn)
      .def_rw("dest_qpn", &wire::Packet::dest_qpn)
      .def_rw("psn", &wire::Packet::psn)
      .def_rw("va", &wire::Packet::va)
      .def_rw("rkey", &wire::Packet::rkey)
      .def_rw("dma_bytes", &wire::Packet::dma_bytes)
      .def_rw("imm", &wire::Packet::imm)
      .def_rw("syndrome", &wire::Packet::syndrome)
      .def_rw("msn", &wire::Packet::msn)
      .def_rw("qkey", &wire::Packet::qkey)
      .def_rw("src_qpn", &wire::Packet::src_qpn)
      .def_rw("swap_add", &wire::Packet::swap_add)
      .def_rw("compare", &wire::Packet::compare)
      .def_rw("original", &wire::Packet::original)
      .def_rw("payload_bytes", &wire::Packet::payload_bytes);
}

using Totals = std::tuple<int64_t, int64_t, int64_t>;

Totals blast(Result<BlastTotals> (*direction)(const BlastSettings&), const BlastSettings& settings) {
  const nb::gil_scoped_release released;
  const BlastTotals totals = value_or_throw(direction(settings));
  return {totals.datagrams, totals.bytes, totals.duration_ns};
}

Totals exchange(const ExchangeSettings& settings) {
  const nb::gil_scoped_release released;
  const BlastTotals totals = value_or_throw(blast_exchange(settings));
  return {totals.datagrams, totals.bytes, totals.duration_ns};
}

std::vector<int64_t> ping_times(const PingSettings& settings) {
  const nb::gil_scoped_release released;
  return value_or_throw(ping(settings));
}

void answer_pings(const PingSettings& settings) {
  const nb::gil_scoped_release released;
  value_or_throw(pong(settings));
}

std::vector<int64_t> step_times(const DependentSteps& settings) {
  const nb::gil_scoped_release released;
  return value_or_throw(dependent_steps(settings));
}

Backend blast_backend(uint8_t value) {
  if (value <= static_cast<uint8_t>(Backend::xdp)) return static_cast<Backend>(value);
  throw nb::value_error("bare blasts are sent by backends udp, packet and xdp");
}

void bind_blast(nb::module_& module) {
  module.def(
      "blast_send",
      [](const std::string& src_ip, const std::string& dst_ip, uint16_t udp_port, int64_t duration_ns,
         uint32_t segment_bytes, uint32_t segments, uint8_t backend, uint32_t message_packets) {
        return blast(blast_send,
                     {parse_address(src_ip), parse_address(dst_ip), udp_port, segment_bytes, segments, duration_ns,
                      blast_backend(backend), message_packets});
      },
      "src_ip"_a, "dst_ip"_a, "udp_port"_a, "duration_ns"_a, "segment_bytes"_a = 4112, "segments"_a = 15,
      "backend"_a = 0, "message_packets"_a = 0);
  module.def(
      "blast_exchange",
      [](const std::string& src_ip, const std::string& dst_ip, uint16_t udp_port, int64_t duration_ns,
         uint32_t datagram_bytes, uint32_t batch) {
        return exchange({parse_address(src_ip), parse_address(dst_ip), udp_port, datagram_bytes, batch, duration_ns});
      },
      "src_ip"_a, "dst_ip"_a, "udp_port"_a, "duration_ns"_a, "datagram_bytes"_a = 64, "batch"_a = 64);
  module.def(
      "blast_receive",
      [](const std::string& ip, uint16_t udp_port, int64_t duration_ns, uint8_t backend) {
        return blast(blast_receive, {.dst_ip = parse_address(ip),
                                     .udp_port = udp_port,
                                     .duration_ns = duration_ns,
                                     .backend = blast_backend(backend)});
      },
      "ip"_a, "udp_port"_a, "duration_ns"_a, "backend"_a = 0);
  module.def(
      "dependent_steps",
      [](const std::string& src_ip, const std::string& dst_ip, uint16_t udp_port, uint32_t datagram_bytes, uint32_t operations,
         uint32_t steps, bool waits_acknowledged) {
        return step_times({parse_address(src_ip), parse_address(dst_ip), udp_port, datagram_bytes, operations, steps,
                           waits_acknowledged});
      },
      "src_ip"_a, "dst_ip"_a, "udp_port"_a, "datagram_bytes"_a, "operations"_a, "steps"_a, "waits_acknowledged"_a);
  module.def(
      "ping",
      [](const std::string& src_ip, const std::string& dst_ip, uint16_t udp_port, uint32_t count,
         uint32_t message_bytes) {
        return ping_times({parse_address(src_ip), parse_address(dst_ip), udp_port, message_bytes, count});
      },
      "src_ip"_a, "dst_ip"_a, "udp_port"_a, "count"_a, "message_bytes"_a = 64);
  module.def(
      "pong",
      [](const std::string& ip, uint16_t udp_port, uint32_t count) {
        answer_pings({.dst_ip = parse_address(ip), .udp_port = udp_port, .count = count});
      },
      "ip"_a, "udp_port"_a, "count"_a);
}

std::unique_ptr<CoreWatch> watch_core(int32_t processor, int32_t priority) {
  return value_or_throw(CoreWatch::start(processor, priority));
}

nb::list late_turns(CoreWatch& watch) {
  {
    const nb::gil_scoped_release released;
    watch.stop();
  }
  nb::list out;
  for (const LateTurn& each : watch.stop()) out.append(nb::make_tuple(each.from_ns, each.until_ns));
  return out;
}

void bind_core_watch(nb::module_& module) {
  nb::class_<CoreWatch>(module, "CoreWatch").def("stop", &late_turns);
  module.def("watch_core", &watch_core, "processor"_a, "priority"_a);
}

const char* name_of(crc32::Way way) {
  switch (way) {
    case crc32::Way::table: return "table";
    case crc32::Way::clmul_128: return "clmul_128";
    case crc32::Way::clmul_256: return "clmul_256";
    case crc32::Way::clmul_512: return "clmul_512";
  }
  return "";
}

nb::list receive_turns(uint32_t path_mtu, uint32_t packets, uint32_t turns) {
  if (path_mtu == 0 || path_mtu > kMostMtuBytes || packets == 0 || packets > kMostReceived) {
    throw nb::value_error("no such path MTU or number of packets");
  }
  std::vector<ReceiveTurn> found;
  {
    const nb::gil_scoped_release released;
    found = receive_speed(path_mtu, packets, turns);
  }
  if (found.empty()) throw nb::value_error("the frames were not taken in as one message");
  nb::list out;
  for (const ReceiveTurn& turn : found) out.append(nb::make_tuple(name_of(turn.way), turn.packet_ns));
  return out;
}

}  // namespace

void bind_wire(nb::module_& module) {
  bind_values(module);
  module.def("encode", &encode, "packet"_a, "flow"_a, "ip_id"_a = 0, "payload"_a = nb::bytes("", 0));
  module.def("encode_middles", &encode_middles, "flow"_a, "head"_a, "count"_a, "ack_every"_a = 0);
  module.def("decode", &decode, "datagram"_a);
  module.def(
      "check_frame",
      [](const nb::bytes& frame, uint16_t udp_port) { return check_name(wire::check_frame(bytes_of(frame), udp_port)); },
      "frame"_a, "udp_port"_a = wire::kRoceUdpPort);
  bind_blast(module);
  bind_core_watch(module);
  module.def("receive_speed", &receive_turns, "path_mtu"_a, "packets"_a, "turns"_a);
}

}  // namespace etloop
