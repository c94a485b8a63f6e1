// Python's view of MRC packets: their headers for captures.
#include "wire/mrc.h"

#include <nanobind/nanobind.h>

#include "bind/headers.h"
#include "wire/bits.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {
namespace {

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

nb::list headers() {
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
  return table.take();
}

}  // namespace

void bind_mrc(nb::module_& module) {
  module.def("mrc_decode", &decode_packet, "datagram"_a, "datagram_bytes"_a);
  module.def("mrc_headers", &headers);
}

}  // namespace etloop
