// Python's view of MRC's headers: captures as lines, and tests against vectors of other implementations.
#include "wire/mrc.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>

#include <array>
#include <cstring>
#include <tuple>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {
namespace {

using namespace wire::mrc;

std::span<const uint8_t> bytes_of(const nb::bytes& bytes) {
  return {static_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

const char* malformed_name(Malformed malformed) {
  switch (malformed) {
    case Malformed::none: return "none";
    case Malformed::too_short: return "too short";
    case Malformed::transport_version: return "transport version is not 0";
    case Malformed::not_mrc: return "not an opcode of MRC";
    case Malformed::unknown_opcode: return "unknown opcode";
    case Malformed::bad_pad: return "more pad than payload";
    case Malformed::bad_length: return "length does not fit the opcode";
    case Malformed::unknown_reason: return "unknown reason of a NACK";
  }
  return "";
}

void refuse(Malformed malformed) {
  if (malformed != Malformed::none) throw nb::value_error(malformed_name(malformed));
}

// A header with its own codec, for what stands outside of a packet.
template <typename Header>
nb::class_<Header> bind_header(nb::module_& module, const char* name) {
  return nb::class_<Header>(module, name)
      .def_static(
          "decode",
          [](const nb::bytes& bytes) {
            if (bytes.size() < Header::kBytes) refuse(Malformed::too_short);
            return decode_header<Header>(bytes_of(bytes).template first<Header::kBytes>());
          },
          "header"_a)
      .def("encode", [](const Header& header) {
        std::array<uint8_t, Header::kBytes> out;
        encode_header<Header>(header, out);
        return nb::bytes(out.data(), out.size());
      });
}

// An enumeration goes to Python as its number.
template <auto Member, typename Header>
uint8_t number(const Header& header) { return static_cast<uint8_t>(header.*Member); }

void bind_headers_of_writes(nb::module_& module) {
  bind_header<Bth>(module, "MrcBth")
      .def_prop_ro("opcode", &number<&Bth::opcode, Bth>)
      .def_ro("pad_bytes", &Bth::pad_bytes)
      .def_ro("transport_version", &Bth::transport_version)
      .def_ro("p_key", &Bth::p_key)
      .def_ro("dest_qpn", &Bth::dest_qpn)
      .def_ro("sack_req", &Bth::sack_req)
      .def_ro("retransmitted", &Bth::retransmitted)
      .def_ro("has_tseth", &Bth::has_tseth)
      .def_ro("psn", &Bth::psn);
  bind_header<Meth>(module, "MrcMeth").def_ro("rqmsn", &Meth::rqmsn).def_ro("msn", &Meth::msn);
  bind_header<Tseth>(module, "MrcTseth")
      .def_ro("tx_timestamp", &Tseth::tx_timestamp)
      .def_ro("own_unit", &Tseth::own_unit)
      .def_ro("format", &Tseth::format);
  bind_header<Reth>(module, "MrcReth")
      .def_ro("va", &Reth::va)
      .def_ro("rkey", &Reth::rkey)
      .def_ro("dma_bytes", &Reth::dma_bytes);
  bind_header<Immediate>(module, "MrcImmediate").def_ro("value", &Immediate::value);
  nb::class_<Write>(module, "MrcWrite")
      .def_ro("meth", &Write::meth)
      .def_ro("tseth", &Write::tseth)
      .def_ro("reth", &Write::reth)
      .def_ro("imm", &Write::imm)
      .def_ro("payload_bytes", &Write::payload_bytes);
}

void bind_answers(nb::module_& module) {
  bind_header<Aeth>(module, "MrcAeth").def_ro("syndrome", &Aeth::syndrome).def_ro("msn", &Aeth::msn);
  bind_header<Seth>(module, "MrcSeth")
      .def_prop_ro("mark", &number<&Seth::mark, Seth>)
      .def_ro("answers_probe", &Seth::answers_probe)
      .def_ro("ack_psn_offset", &Seth::ack_psn_offset)
      .def_ro("entropy", &Seth::entropy)
      .def_ro("sender_id", &Seth::sender_id)
      .def_ro("receiver_id", &Seth::receiver_id)
      .def_ro("cack_psn", &Seth::cack_psn)
      .def_ro("cc_type", &Seth::cc_type)
      .def_ro("cc_flags", &Seth::cc_flags)
      .def_ro("window_128psns", &Seth::window_128psns)
      .def_ro("sack_offset", &Seth::sack_offset)
      .def_ro("sack_bitmap", &Seth::sack_bitmap);
  bind_header<CcState>(module, "MrcCcState")
      .def_ro("tx_timestamp", &CcState::tx_timestamp)
      .def_ro("out_of_order", &CcState::out_of_order)
      .def_ro("restore_window", &CcState::restore_window)
      .def_ro("window_penalty", &CcState::window_penalty)
      .def_ro("received_256bytes", &CcState::received_256bytes);
  nb::class_<Sack>(module, "MrcSack").def_ro("seth", &Sack::seth).def_ro("cc_state", &Sack::cc_state);
  bind_header<Neth>(module, "MrcNeth")
      .def_prop_ro("reason", &number<&Neth::reason, Neth>)
      .def_ro("vendor", &Neth::vendor)
      .def_ro("entropy", &Neth::entropy)
      .def_ro("sender_id", &Neth::sender_id)
      .def_ro("receiver_id", &Neth::receiver_id)
      .def_ro("nack_psn", &Neth::nack_psn)
      .def_ro("cc_type", &Neth::cc_type)
      .def_ro("cc_flags", &Neth::cc_flags)
      .def_ro("tx_timestamp", &Neth::tx_timestamp);
}

void bind_probes(nb::module_& module) {
  bind_header<Peth>(module, "MrcPeth")
      .def_ro("vendor", &Peth::vendor)
      .def_ro("probe_id", &Peth::probe_id)
      .def_ro("sender_id", &Peth::sender_id)
      .def_ro("receiver_id", &Peth::receiver_id)
      .def_ro("tx_timestamp", &Peth::tx_timestamp)
      .def_ro("own_unit", &Peth::own_unit)
      .def_ro("format", &Peth::format);
  bind_header<Erth>(module, "MrcErth")
      .def_prop_ro("op", &number<&Erth::op, Erth>)
      .def_ro("vendor", &Erth::vendor)
      .def_ro("port_status_mask", &Erth::port_status_mask)
      .def_ro("tx_timestamp", &Erth::tx_timestamp)
      .def_ro("own_unit", &Erth::own_unit)
      .def_ro("format", &Erth::format);
  bind_header<Eeth>(module, "MrcEeth")
      .def_prop_ro("op", &number<&Eeth::op, Eeth>)
      .def_prop_ro("high_op", &number<&Eeth::high_op, Eeth>)
      .def_ro("tx_timestamp", &Eeth::tx_timestamp);
}

std::tuple<Bth, Body, nb::bytes> decode_packet(const nb::bytes& bytes, std::optional<size_t> datagram_bytes) {
  Packet packet;
  refuse(decode(bytes_of(bytes), datagram_bytes.value_or(bytes.size()), packet));
  nb::bytes payload("", 0);
  if (Write* write = std::get_if<Write>(&packet.body); write != nullptr && write->payload != nullptr) {
    payload = nb::bytes(write->payload, write->payload_bytes);
    write->payload = nullptr;
  }
  return {packet.bth, packet.body, payload};
}

nb::bytes encode_packet(const Bth& bth, const Body& body, const nb::bytes& payload) {
  if (!body_fits(bth.opcode, body)) throw nb::value_error("the body is not one of the opcode");
  const Write* write = std::get_if<Write>(&body);
  if (payload.size() != (write == nullptr ? 0 : write->payload_bytes)) {
    throw nb::value_error("the payload is not as long as the body says");
  }
  std::array<uint8_t, kMaxHeaderBytes> headers;
  const size_t used = encode_headers({bth, body}, headers);
  std::vector<uint8_t> out(used + (payload.size() + 3) / 4 * 4);
  std::memcpy(out.data(), headers.data(), used);
  if (payload.size() > 0) std::memcpy(out.data() + used, payload.data(), payload.size());
  return nb::bytes(out.data(), out.size());
}

std::tuple<uint8_t, uint32_t, uint32_t, std::optional<uint16_t>> decode_cut_packet(const nb::bytes& bytes) {
  CutPacket cut;
  refuse(decode_cut(bytes_of(bytes), cut));
  return {static_cast<uint8_t>(cut.opcode), cut.dest_qpn, cut.psn, cut.tx_timestamp};
}

}  // namespace

void bind_mrc(nb::module_& module) {
  bind_headers_of_writes(module);
  bind_answers(module);
  bind_probes(module);
  module.def("mrc_decode", &decode_packet, "datagram"_a, "datagram_bytes"_a = nb::none());
  module.def("mrc_encode", &encode_packet, "bth"_a, "body"_a, "payload"_a = nb::bytes("", 0));
  module.def("mrc_decode_cut", &decode_cut_packet, "datagram"_a);
}

}  // namespace etloop
