#include "wire/uet.h"

#include <array>

#include "wire/bits.h"

namespace etloop::wire::uet {
namespace {

template <typename... Headers>
consteval bool all_fill_their_bytes() {
  return (fills_its_bytes<Headers>() && ...);
}

static_assert(all_fill_their_bytes<Request, CreditTarget, Idempotent, Unreliable, Ack, AckState, NsccState, CreditState, CcxState,
                                   Nack, Control, StandardRequest, MediumRequest, SmallRequest, Response, DataResponse,
                                   SmallDataResponse>());
// The other forms of headers whose layout depends on a flag.
static_assert(fills_its_bytes(Request{.syn = true}) && fills_its_bytes(Control{.syn = true}) &&
              fills_its_bytes(Ack{.answers_probe = true}) && fills_its_bytes(StandardRequest{.start = {.som = true}}));
static_assert(kMaxHeaderBytes >= Request::kBytes + CreditTarget::kBytes + StandardRequest::kBytes);
static_assert(kMaxHeaderBytes >= Ack::kBytes + AckState::kBytes + DataResponse::kBytes);

constexpr uint8_t kReservedRequestFlags = 0x63;  // in the second byte of a request
constexpr uint8_t kReservedSesBits = 0xC0;

PdsType type_of(std::span<const uint8_t> bytes) { return static_cast<PdsType>(bytes[0] >> 3); }

bool carries_credit(PdsType type) { return type == PdsType::rud_cc_request || type == PdsType::rod_cc_request; }

// Size of the PDS header, or 0 for an unknown type.
size_t pds_bytes(PdsType type) {
  switch (type) {
    case PdsType::tss: return 0;
    case PdsType::rud_request:
    case PdsType::rod_request: return Request::kBytes;
    case PdsType::rud_cc_request:
    case PdsType::rod_cc_request: return Request::kBytes + CreditTarget::kBytes;
    case PdsType::rudi_request:
    case PdsType::rudi_response: return Idempotent::kBytes;
    case PdsType::uud_request: return Unreliable::kBytes;
    case PdsType::ack: return Ack::kBytes;
    case PdsType::ack_cc:
    case PdsType::ack_ccx: return Ack::kBytes + AckState::kBytes;
    case PdsType::nack: return Nack::kBytes;
    case PdsType::nack_ccx: return Nack::kBytes + CcxState::kBytes;
    case PdsType::control: return Control::kBytes;
  }
  return 0;
}

// The bytes must hold the whole header: see pds_bytes.
Pds take_pds(HeaderReader& front, PdsType type) {
  switch (type) {
    case PdsType::rudi_request:
    case PdsType::rudi_response: return front.take<Idempotent>();
    case PdsType::uud_request: return front.take<Unreliable>();
    case PdsType::control: return front.take<Control>();
    case PdsType::ack:
    case PdsType::ack_cc:
    case PdsType::ack_ccx: {
      Ack ack = front.take<Ack>();
      if (type != PdsType::ack) ack.state = front.take<AckState>();
      return ack;
    }
    case PdsType::nack:
    case PdsType::nack_ccx: {
      Nack nack = front.take<Nack>();
      if (type == PdsType::nack_ccx) nack.ccx_state = front.take<CcxState>();
      return nack;
    }
    default: break;
  }
  Request request = front.take<Request>();
  if (carries_credit(type)) request.credit = front.take<CreditTarget>();
  return request;
}

NextHeader next_of(const Pds& pds) {
  return std::visit(
      [](const auto& header) {
        if constexpr (requires { header.next_header; }) return header.next_header;
        else return NextHeader::none;
      },
      pds);
}

bool is_request(PdsType type) {
  switch (type) {
    case PdsType::rud_request:
    case PdsType::rod_request:
    case PdsType::rud_cc_request:
    case PdsType::rod_cc_request:
    case PdsType::rudi_request:
    case PdsType::uud_request: return true;
    default: return false;
  }
}

bool may_follow(PdsType type, NextHeader next) {
  switch (next) {
    case NextHeader::none: return true;
    case NextHeader::small:
    case NextHeader::medium:
    case NextHeader::standard: return is_request(type);
    case NextHeader::response: return type != PdsType::control;
    case NextHeader::response_with_data:
    case NextHeader::response_with_small_data: return type != PdsType::control && type != PdsType::uud_request;
  }
  return false;
}

size_t ses_bytes(NextHeader next) {
  switch (next) {
    case NextHeader::none: return 0;
    case NextHeader::small: return SmallRequest::kBytes;
    case NextHeader::medium: return MediumRequest::kBytes;
    case NextHeader::standard: return StandardRequest::kBytes;
    case NextHeader::response: return Response::kBytes;
    case NextHeader::response_with_data: return DataResponse::kBytes;
    case NextHeader::response_with_small_data: return SmallDataResponse::kBytes;
  }
  return 0;
}

Ses take_ses(HeaderReader& front, NextHeader next) {
  switch (next) {
    case NextHeader::none: break;
    case NextHeader::small: return front.take<SmallRequest>();
    case NextHeader::medium: return front.take<MediumRequest>();
    case NextHeader::standard: return front.take<StandardRequest>();
    case NextHeader::response: return front.take<Response>();
    case NextHeader::response_with_data: return front.take<DataResponse>();
    case NextHeader::response_with_small_data: return front.take<SmallDataResponse>();
  }
  return std::monostate{};
}

struct SesCheck {
  Malformed operator()(std::monostate) const { return Malformed::none; }
  Malformed operator()(const StandardRequest& request) const { return version(request.start.version); }
  Malformed operator()(const MediumRequest& request) const { return single(request.start); }
  Malformed operator()(const SmallRequest& request) const { return single(request.start); }
  Malformed operator()(const auto& response) const { return version(response.version); }

  static Malformed version(uint8_t version) { return version == 0 ? Malformed::none : Malformed::version; }
  // Small and medium headers are for messages of one packet.
  static Malformed single(const RequestStart& start) {
    return start.som && start.eom ? version(start.version) : Malformed::message_ends;
  }
};

struct Put {
  HeaderWriter& back;
  void operator()(std::monostate) const {}
  void operator()(const Request& request) const {
    back.put(request);
    if (request.credit) back.put(*request.credit);
  }
  void operator()(const Ack& ack) const {
    back.put(ack);
    if (ack.state) back.put(*ack.state);
  }
  void operator()(const Nack& nack) const {
    back.put(nack);
    if (nack.ccx_state) back.put(*nack.ccx_state);
  }
  void operator()(const auto& header) const { back.put(header); }
};

Malformed check_pds(std::span<const uint8_t> bytes) {
  if (bytes.size() < Unreliable::kBytes) return Malformed::too_short;
  const PdsType type = type_of(bytes);
  if (type == PdsType::tss) return Malformed::encrypted;
  const size_t needed = pds_bytes(type);
  if (needed == 0) return Malformed::unknown_type;
  const bool of_pdc = is_request(type) && type != PdsType::rudi_request;
  if (of_pdc && (bytes[1] & kReservedRequestFlags) != 0) return Malformed::reserved_bits;
  return bytes.size() < needed ? Malformed::too_short : Malformed::none;
}

}  // namespace

namespace {

template <typename State>
uint64_t raw(const State& state) {
  std::array<uint8_t, State::kBytes> bytes;
  HeaderWriter{bytes}.put(state);
  return HeaderReader{bytes}.template take<CcxState>().cc_state;
}

template <typename State>
State from_raw(uint64_t packed) {
  std::array<uint8_t, State::kBytes> bytes;
  HeaderWriter{bytes}.put(CcxState{packed});
  return HeaderReader{bytes}.template take<State>();
}

}  // namespace

uint64_t packed(const NsccState& state) { return raw(state); }
NsccState nscc_state(uint64_t packed) { return from_raw<NsccState>(packed); }
uint64_t packed(const CreditState& state) { return raw(state); }
CreditState credit_state(uint64_t packed) { return from_raw<CreditState>(packed); }

NackAction action_of(NackCode code) {
  switch (code) {
    case NackCode::trimmed:
    case NackCode::trimmed_last_hop:
    case NackCode::trimmed_ack:
    case NackCode::no_pdc:
    case NackCode::no_congestion_context:
    case NackCode::no_bitmap:
    case NackCode::no_packet_buffer:
    case NackCode::no_guaranteed_delivery:
    case NackCode::no_message:
    case NackCode::no_resource:
    case NackCode::psn_out_of_window:
    case NackCode::rod_out_of_order:
    case NackCode::packet_not_received:
    case NackCode::ack_with_data:
    case NackCode::new_start_psn:
    case NackCode::loss_inferred: return NackAction::retransmit;
    case NackCode::received_in_process: return NackAction::ignore;
    case NackCode::invalid_dpdcid:
    case NackCode::header_mismatch:
    case NackCode::closing:
    case NackCode::closing_in_error:
    case NackCode::response_unavailable:
    case NackCode::invalid_syn:
    case NackCode::mode_mismatch:
    case NackCode::unexpected_event: return NackAction::close;
  }
  return NackAction::close;
}

Malformed decode(std::span<const uint8_t> bytes, size_t datagram_bytes, Packet& out) {
  if (const Malformed malformed = check_pds(bytes); malformed != Malformed::none) return malformed;
  const PdsType type = type_of(bytes);
  HeaderReader front{bytes};
  out.pds = take_pds(front, type);
  const NextHeader next = next_of(out.pds);
  if (!may_follow(type, next)) return Malformed::next_header;
  const size_t headers = pds_bytes(type) + ses_bytes(next);
  if (bytes.size() < headers || datagram_bytes < headers) return Malformed::too_short;
  if (datagram_bytes > UINT16_MAX) return Malformed::bad_length;
  if (next != NextHeader::none && (*front.rest() & kReservedSesBits) != 0 && is_request(type)) return Malformed::reserved_bits;
  out.ses = take_ses(front, next);
  out.payload_bytes = static_cast<uint32_t>(datagram_bytes - headers);
  out.payload = out.payload_bytes > 0 && front.left() >= out.payload_bytes ? front.rest() : nullptr;
  return std::visit(SesCheck{}, out.ses);
}

bool lengths_agree(const StandardRequest& request, uint32_t payload_bytes, uint32_t path_mtu) {
  const RequestStart& start = request.start;
  const uint64_t offset = start.som ? 0 : request.message_offset;
  if (!start.som && request.payload_length != payload_bytes) return false;
  const uint64_t end = offset + payload_bytes;
  if (offset % path_mtu != 0) return false;
  return start.eom ? payload_bytes <= path_mtu && end == request.message_length
                              : payload_bytes == path_mtu && end < request.message_length;
}

size_t encode_headers(const Packet& packet, std::span<uint8_t> out) {
  HeaderWriter back{out};
  std::visit(Put{back}, packet.pds);
  std::visit(Put{back}, packet.ses);
  return back.used();
}

Malformed decode_cut(std::span<const uint8_t> bytes, Pds& out) {
  if (const Malformed malformed = check_pds(bytes); malformed != Malformed::none) return malformed;
  HeaderReader front{bytes};
  out = take_pds(front, type_of(bytes));
  return Malformed::none;
}

}  // namespace etloop::wire::uet
