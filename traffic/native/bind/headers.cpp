// Python's view of MRC and UET packets: their headers for captures, and the headers of UUD datagrams.
#include "bind/headers.h"

#include <nanobind/nanobind.h>

#include <array>
#include <span>
#include <variant>

#include "wire/bits.h"
#include "wire/mrc.h"
#include "wire/uet.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {
namespace {

namespace mrc_view {

using namespace wire::mrc;

const char* malformed_name(Malformed malformed) {
  switch (malformed) {
    case Malformed::none: return "";
    case Malformed::too_short: return "too short";
    case Malformed::transport_version: return "transport version is not 0";
    case Malformed::not_mrc: return "not an MRC opcode";
    case Malformed::unknown_opcode: return "unknown opcode";
    case Malformed::bad_pad: return "more pad than payload";
    case Malformed::bad_length: return "length does not fit the opcode";
    case Malformed::unknown_reason: return "unknown NACK reason";
  }
  return "";
}

// Adds the headers of a body in wire order.
struct AddHeaders {
  HeaderValues& headers;
  void operator()(const Write& write) const {
    headers.add(write.meth);
    if (write.tseth) headers.add(*write.tseth);
    headers.add(write.reth);
    if (write.imm) headers.add(*write.imm);
  }
  void operator()(const Sack& sack) const {
    headers.add(sack.seth);
    headers.add(sack.cc_state);
  }
  void operator()(const auto& header) const { headers.add(header); }
};

nb::tuple decode_packet(const nb::bytes& datagram, size_t datagram_bytes) {
  const std::span bytes{static_cast<const uint8_t*>(datagram.data()), datagram.size()};
  HeaderValues headers;
  Packet packet;
  uint32_t payload_bytes = 0;
  const Malformed malformed = decode(bytes, datagram_bytes, packet);
  if (malformed == Malformed::none) {
    headers.add(packet.bth);
    std::visit(AddHeaders{headers}, packet.body);
    if (const Write* write = std::get_if<Write>(&packet.body)) payload_bytes = write->payload_bytes;
  } else if (CutPacket cut; decode_cut(bytes, cut) == Malformed::none) {
    headers.add(wire::HeaderReader{bytes}.take<Bth>());
  }
  return nb::make_tuple(headers.take(), payload_bytes, malformed_name(malformed));
}

HeaderTable header_table() {
  HeaderTable table;
  table.add<Bth>("");
  table.add<Meth>("");
  table.add<Tseth>("");
  table.add<Reth>("");
  table.add<Immediate>("");
  table.add<Aeth>("");
  table.add<Seth>("");
  table.add("", "probe", Seth{.answers_probe = true});
  table.add<CcState>("");
  table.add<Neth>("");
  table.add<Peth>("");
  table.add<Erth>("");
  table.add<Eeth>("");
  return table;
}

}  // namespace mrc_view

namespace uet_view {

using namespace wire::uet;

const char* malformed_name(Malformed malformed) {
  switch (malformed) {
    case Malformed::none: return "";
    case Malformed::too_short: return "too short";
    case Malformed::unknown_type: return "unknown type";
    case Malformed::encrypted: return "encrypted";
    case Malformed::reserved_bits: return "reserved bits are set";
    case Malformed::next_header: return "the next header does not fit the type";
    case Malformed::version: return "version is not 0";
    case Malformed::message_ends: return "short header, but not a message of one packet";
    case Malformed::bad_length: return "longer than a datagram";
  }
  return "";
}

// Adds a header and those that follow it within its layer.
struct AddHeaders {
  HeaderValues& headers;
  void operator()(std::monostate) const {}
  void operator()(const Request& request) const {
    headers.add(request);
    if (request.credit) headers.add(*request.credit);
  }
  void operator()(const Ack& ack) const {
    headers.add(ack);
    if (!ack.state) return;
    headers.add(*ack.state);
    if (ack.type != PdsType::ack_cc) return;
    if (ack.state->cc_type == CcType::nscc) headers.add(nscc_state(ack.state->cc_state));
    if (ack.state->cc_type == CcType::credit) headers.add(credit_state(ack.state->cc_state));
  }
  void operator()(const Nack& nack) const {
    headers.add(nack);
    if (nack.ccx_state) headers.add(*nack.ccx_state);
  }
  void operator()(const auto& header) const { headers.add(header); }
};

nb::tuple decode_packet(const nb::bytes& datagram, size_t datagram_bytes) {
  const std::span bytes{static_cast<const uint8_t*>(datagram.data()), datagram.size()};
  HeaderValues headers;
  const AddHeaders add{headers};
  Packet packet;
  const Malformed malformed = decode(bytes, datagram_bytes, packet);
  if (malformed == Malformed::none) {
    std::visit(add, packet.pds);
    std::visit(add, packet.ses);
  } else if (Pds pds; decode_cut(bytes, pds) == Malformed::none) {
    std::visit(add, pds);
  }
  return nb::make_tuple(headers.take(), malformed == Malformed::none ? packet.payload_bytes : 0, malformed_name(malformed));
}

HeaderTable header_table() {
  HeaderTable table;
  table.add<Request>("pds");
  table.add("pds", "syn", Request{.syn = true});
  table.add<CreditTarget>("pds");
  table.add<Idempotent>("pds");
  table.add<Unreliable>("pds");
  table.add<Ack>("pds");
  table.add("pds", "probe", Ack{.answers_probe = true});
  table.add<AckState>("pds");
  table.add<NsccState>("pds");
  table.add<CreditState>("pds");
  table.add<Nack>("pds");
  table.add<CcxState>("pds");
  table.add<Control>("pds");
  table.add("pds", "syn", Control{.syn = true});
  table.add<StandardRequest>("ses");
  table.add("ses", "first", StandardRequest{.start = {.som = true}});
  table.add<MediumRequest>("ses");
  table.add<SmallRequest>("ses");
  table.add<Response>("ses");
  table.add<DataResponse>("ses");
  table.add<SmallDataResponse>("ses");
  return table;
}

// The headers of a UUD message of one packet.
nb::bytes datagram_headers(uint32_t job_id, uint16_t message_id, uint32_t payload_bytes) {
  StandardRequest request;
  request.start = {.opcode = Operation::datagram, .rel = true, .eom = true, .som = true, .message_id = message_id,
                   .job_id = job_id & 0xFF'FFFF};
  request.message_length = payload_bytes;
  std::array<uint8_t, kMaxHeaderBytes> headers;
  const size_t used = encode_headers({Unreliable{}, request}, headers);
  return nb::bytes(headers.data(), used);
}

}  // namespace uet_view

}  // namespace

void bind_mrc(nb::module_& module) {
  module.def("mrc_decode", &mrc_view::decode_packet, "datagram"_a, "datagram_bytes"_a);
  module.def("mrc_headers", [] { return mrc_view::header_table().take(); });
  module.def("mrc_defaults", [] { return mrc_view::header_table().take_defaults(); });
}

void bind_uet(nb::module_& module) {
  module.def("uet_decode", &uet_view::decode_packet, "datagram"_a, "datagram_bytes"_a);
  module.def("uet_headers", [] { return uet_view::header_table().take(); });
  module.def("uet_defaults", [] { return uet_view::header_table().take_defaults(); });
  module.def("uet_datagram_headers", &uet_view::datagram_headers, "job_id"_a, "message_id"_a, "payload_bytes"_a);
}

}  // namespace etloop
