// Python's view of UET's headers: captures as lines, and tests against vectors of other implementations.
#include "wire/uet.h"

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

using namespace wire::uet;

std::span<const uint8_t> bytes_of(const nb::bytes& bytes) {
  return {static_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

const char* malformed_name(Malformed malformed) {
  switch (malformed) {
    case Malformed::none: return "none";
    case Malformed::too_short: return "too short";
    case Malformed::unknown_type: return "unknown type";
    case Malformed::encrypted: return "encrypted";
    case Malformed::reserved_bits: return "reserved bits are set";
    case Malformed::next_header: return "the next header does not fit the type";
    case Malformed::version: return "version is not 0";
    case Malformed::message_ends: return "a short header, and not a message of one packet";
    case Malformed::bad_length: return "longer than a datagram";
  }
  return "";
}

void refuse(Malformed malformed) {
  if (malformed != Malformed::none) throw nb::value_error(malformed_name(malformed));
}

// A header with its own codec.
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

void bind_requests(nb::module_& module) {
  bind_header<Request>(module, "UetRequest")
      .def_prop_ro("type", &number<&Request::type, Request>)
      .def_prop_ro("next", &number<&Request::next, Request>)
      .def_ro("retransmitted", &Request::retransmitted)
      .def_ro("asks", &Request::asks)
      .def_ro("syn", &Request::syn)
      .def_ro("clear_psn_offset", &Request::clear_psn_offset)
      .def_ro("psn", &Request::psn)
      .def_ro("spdcid", &Request::spdcid)
      .def_ro("dpdcid", &Request::dpdcid)
      .def_ro("credit", &Request::credit);
  bind_header<CreditTarget>(module, "UetCreditTarget")
      .def_ro("context", &CreditTarget::context)
      .def_ro("target_256bytes", &CreditTarget::target_256bytes);
  bind_header<Idempotent>(module, "UetIdempotent")
      .def_prop_ro("type", &number<&Idempotent::type, Idempotent>)
      .def_prop_ro("next", &number<&Idempotent::next, Idempotent>)
      .def_ro("marked", &Idempotent::marked)
      .def_ro("retransmitted", &Idempotent::retransmitted)
      .def_ro("packet_id", &Idempotent::packet_id);
  bind_header<Unreliable>(module, "UetUnreliable")
      .def_prop_ro("type", &number<&Unreliable::type, Unreliable>)
      .def_prop_ro("next", &number<&Unreliable::next, Unreliable>);
  bind_header<Control>(module, "UetControl")
      .def_prop_ro("type", &number<&Control::type, Control>)
      .def_prop_ro("control", &number<&Control::control, Control>)
      .def_ro("of_rod", &Control::of_rod)
      .def_ro("retransmitted", &Control::retransmitted)
      .def_ro("asks", &Control::asks)
      .def_ro("syn", &Control::syn)
      .def_ro("probe_id", &Control::probe_id)
      .def_ro("psn", &Control::psn)
      .def_ro("spdcid", &Control::spdcid)
      .def_ro("dpdcid", &Control::dpdcid)
      .def_ro("payload", &Control::payload);
}

void bind_answers(nb::module_& module) {
  bind_header<Ack>(module, "UetAck")
      .def_prop_ro("type", &number<&Ack::type, Ack>)
      .def_prop_ro("next", &number<&Ack::next, Ack>)
      .def_ro("marked", &Ack::marked)
      .def_ro("retransmitted", &Ack::retransmitted)
      .def_ro("answers_probe", &Ack::answers_probe)
      .def_prop_ro("request", &number<&Ack::request, Ack>)
      .def_ro("ack_psn_offset", &Ack::ack_psn_offset)
      .def_ro("cack_psn", &Ack::cack_psn)
      .def_ro("spdcid", &Ack::spdcid)
      .def_ro("dpdcid", &Ack::dpdcid)
      .def_ro("state", &Ack::state);
  bind_header<AckState>(module, "UetAckState")
      .def_ro("cc_type", &AckState::cc_type)
      .def_ro("cc_flags", &AckState::cc_flags)
      .def_ro("window_128psns", &AckState::window_128psns)
      .def_ro("sack_psn_offset", &AckState::sack_psn_offset)
      .def_ro("sack_bitmap", &AckState::sack_bitmap)
      .def_ro("state", &AckState::state);
  bind_header<NsccState>(module, "UetNsccState")
      .def_ro("service_128ns", &NsccState::service_128ns)
      .def_ro("restore_window", &NsccState::restore_window)
      .def_ro("window_penalty", &NsccState::window_penalty)
      .def_ro("received_256bytes", &NsccState::received_256bytes)
      .def_ro("out_of_order", &NsccState::out_of_order);
  bind_header<CreditState>(module, "UetCreditState")
      .def_ro("credit_256bytes", &CreditState::credit_256bytes)
      .def_ro("out_of_order", &CreditState::out_of_order);
  bind_header<Nack>(module, "UetNack")
      .def_prop_ro("type", &number<&Nack::type, Nack>)
      .def_prop_ro("next", &number<&Nack::next, Nack>)
      .def_ro("marked", &Nack::marked)
      .def_ro("retransmitted", &Nack::retransmitted)
      .def_ro("of_idempotent", &Nack::of_idempotent)
      .def_prop_ro("code", &number<&Nack::code, Nack>)
      .def_ro("vendor", &Nack::vendor)
      .def_ro("psn", &Nack::psn)
      .def_ro("spdcid", &Nack::spdcid)
      .def_ro("dpdcid", &Nack::dpdcid)
      .def_ro("payload", &Nack::payload)
      .def_ro("ccx_state", &Nack::ccx_state);
}

void bind_semantics(nb::module_& module) {
  bind_header<RequestStart>(module, "UetRequestStart")
      .def_prop_ro("operation", &number<&RequestStart::operation, RequestStart>)
      .def_ro("version", &RequestStart::version)
      .def_ro("delivery_complete", &RequestStart::delivery_complete)
      .def_ro("initiator_error", &RequestStart::initiator_error)
      .def_ro("relative", &RequestStart::relative)
      .def_ro("has_header_data", &RequestStart::has_header_data)
      .def_ro("end_of_message", &RequestStart::end_of_message)
      .def_ro("start_of_message", &RequestStart::start_of_message)
      .def_ro("message_id_or_bytes", &RequestStart::message_id_or_bytes)
      .def_ro("generation", &RequestStart::generation)
      .def_ro("job_id", &RequestStart::job_id)
      .def_ro("process", &RequestStart::process)
      .def_ro("resource", &RequestStart::resource);
  bind_header<StandardRequest>(module, "UetStandardRequest")
      .def_ro("start", &StandardRequest::start)
      .def_ro("buffer_offset", &StandardRequest::buffer_offset)
      .def_ro("initiator", &StandardRequest::initiator)
      .def_ro("memory_key", &StandardRequest::memory_key)
      .def_ro("header_data", &StandardRequest::header_data)
      .def_ro("payload_bytes", &StandardRequest::payload_bytes)
      .def_ro("message_offset", &StandardRequest::message_offset)
      .def_ro("message_bytes", &StandardRequest::message_bytes);
  bind_header<MediumRequest>(module, "UetMediumRequest")
      .def_ro("start", &MediumRequest::start)
      .def_ro("header_data_or_offset", &MediumRequest::header_data_or_offset)
      .def_ro("initiator", &MediumRequest::initiator)
      .def_ro("memory_key", &MediumRequest::memory_key);
  bind_header<SmallRequest>(module, "UetSmallRequest")
      .def_ro("start", &SmallRequest::start)
      .def_ro("buffer_offset", &SmallRequest::buffer_offset);
  bind_header<AtomicExtension>(module, "UetAtomicExtension")
      .def_ro("operation", &AtomicExtension::operation)
      .def_ro("datatype", &AtomicExtension::datatype)
      .def_ro("cacheable", &AtomicExtension::cacheable)
      .def_ro("coherent", &AtomicExtension::coherent)
      .def_ro("vendor", &AtomicExtension::vendor);
  bind_header<CompareSwapExtension>(module, "UetCompareSwapExtension")
      .def_ro("atomic", &CompareSwapExtension::atomic)
      .def_ro("compare_high", &CompareSwapExtension::compare_high)
      .def_ro("compare_low", &CompareSwapExtension::compare_low)
      .def_ro("swap_high", &CompareSwapExtension::swap_high)
      .def_ro("swap_low", &CompareSwapExtension::swap_low);
  bind_header<Response>(module, "UetResponse")
      .def_ro("list", &Response::list)
      .def_prop_ro("kind", &number<&Response::kind, Response>)
      .def_ro("version", &Response::version)
      .def_prop_ro("code", &number<&Response::code, Response>)
      .def_ro("message_id", &Response::message_id)
      .def_ro("generation", &Response::generation)
      .def_ro("job_id", &Response::job_id)
      .def_ro("modified_bytes", &Response::modified_bytes);
  bind_header<DataResponse>(module, "UetDataResponse")
      .def_ro("list", &DataResponse::list)
      .def_prop_ro("kind", &number<&DataResponse::kind, DataResponse>)
      .def_ro("version", &DataResponse::version)
      .def_prop_ro("code", &number<&DataResponse::code, DataResponse>)
      .def_ro("message_id", &DataResponse::message_id)
      .def_ro("job_id", &DataResponse::job_id)
      .def_ro("read_message_id", &DataResponse::read_message_id)
      .def_ro("payload_bytes", &DataResponse::payload_bytes)
      .def_ro("modified_bytes", &DataResponse::modified_bytes)
      .def_ro("message_offset", &DataResponse::message_offset);
  bind_header<SmallDataResponse>(module, "UetSmallDataResponse")
      .def_ro("list", &SmallDataResponse::list)
      .def_prop_ro("kind", &number<&SmallDataResponse::kind, SmallDataResponse>)
      .def_ro("version", &SmallDataResponse::version)
      .def_prop_ro("code", &number<&SmallDataResponse::code, SmallDataResponse>)
      .def_ro("payload_bytes", &SmallDataResponse::payload_bytes)
      .def_ro("job_id", &SmallDataResponse::job_id)
      .def_ro("request_psn", &SmallDataResponse::request_psn);
}

using Layers = std::tuple<Pds, Ses, nb::bytes>;

Layers decode_packet(const nb::bytes& bytes, std::optional<size_t> datagram_bytes) {
  Packet packet;
  refuse(decode(bytes_of(bytes), datagram_bytes.value_or(bytes.size()), packet));
  nb::bytes payload("", 0);
  if (packet.payload != nullptr) payload = nb::bytes(packet.payload, packet.payload_bytes);
  return {packet.pds, packet.ses, payload};
}

nb::bytes encode_packet(const Pds& pds, const Ses& ses, const nb::bytes& payload) {
  std::array<uint8_t, kMaxHeaderBytes> headers;
  const size_t used = encode_headers({pds, ses}, headers);
  std::vector<uint8_t> out(used + payload.size());
  std::memcpy(out.data(), headers.data(), used);
  if (payload.size() > 0) std::memcpy(out.data() + used, payload.data(), payload.size());
  return nb::bytes(out.data(), out.size());
}

// What stands before the payload of a message of one packet that nobody acknowledges (UUD).
nb::bytes datagram_headers(uint32_t job_id, uint16_t message_id, uint32_t payload_bytes) {
  StandardRequest request;
  request.start.operation = Operation::datagram;
  request.start.relative = true;
  request.start.start_of_message = true;
  request.start.end_of_message = true;
  request.start.message_id_or_bytes = message_id;
  request.start.job_id = job_id & 0xFF'FFFF;
  request.message_bytes = payload_bytes;
  std::array<uint8_t, kMaxHeaderBytes> headers;
  const size_t used = encode_headers({Unreliable{}, request}, headers);
  return nb::bytes(headers.data(), used);
}

Pds decode_cut_packet(const nb::bytes& bytes) {
  Pds pds;
  refuse(decode_cut(bytes_of(bytes), pds));
  return pds;
}

}  // namespace

void bind_uet(nb::module_& module) {
  bind_requests(module);
  bind_answers(module);
  bind_semantics(module);
  module.def("uet_decode", &decode_packet, "datagram"_a, "datagram_bytes"_a = nb::none());
  module.def("uet_encode", &encode_packet, "pds"_a, "ses"_a.none(), "payload"_a = nb::bytes("", 0));
  module.def("uet_datagram_headers", &datagram_headers, "job_id"_a, "message_id"_a, "payload_bytes"_a);
  module.def("uet_decode_cut", &decode_cut_packet, "datagram"_a);
  module.def("uet_nscc_state", &nscc_state, "state"_a);
  module.def("uet_lengths_agree", &lengths_agree, "request"_a, "payload_bytes"_a, "path_mtu"_a);
}

}  // namespace etloop
