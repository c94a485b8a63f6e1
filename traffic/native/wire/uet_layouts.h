// The fields of UET's headers, each from the first byte's highest bit on (wire/bits.h). For wire/uet.cpp alone.
#pragma once

#include <concepts>
#include <type_traits>

#include "wire/uet.h"

namespace etloop::wire::uet {

template <typename Header, typename Value>
concept Of = std::same_as<std::remove_const_t<Header>, Value>;

constexpr void lay_out(auto& bits, Of<Request> auto& request) {
  bits.field(5, request.type);
  bits.field(4, request.next);
  bits.reserved(2);
  bits.field(1, request.retransmitted);
  bits.field(1, request.asks);
  bits.field(1, request.syn);
  bits.reserved(2);
  bits.field(16, request.clear_psn_offset);
  bits.field(32, request.psn);
  bits.field(16, request.spdcid);
  bits.field(16, request.dpdcid);
}

constexpr void lay_out(auto& bits, Of<CreditTarget> auto& credit) {
  bits.field(8, credit.context);
  bits.field(24, credit.target_256bytes);
}

constexpr void lay_out(auto& bits, Of<Idempotent> auto& header) {
  bits.field(5, header.type);
  bits.field(4, header.next);
  bits.reserved(1);
  bits.field(1, header.marked);
  bits.field(1, header.retransmitted);
  bits.reserved(4 + 16);
  bits.field(32, header.packet_id);
}

constexpr void lay_out(auto& bits, Of<Unreliable> auto& header) {
  bits.field(5, header.type);
  bits.field(4, header.next);
  bits.reserved(7 + 16);
}

constexpr void lay_out(auto& bits, Of<Ack> auto& ack) {
  bits.field(5, ack.type);
  bits.field(4, ack.next);
  bits.reserved(1);
  bits.field(1, ack.marked);
  bits.field(1, ack.retransmitted);
  bits.field(1, ack.answers_probe);
  bits.field(2, ack.request);
  bits.reserved(1);
  bits.field(16, ack.ack_psn_offset);
  bits.field(32, ack.cack_psn);
  bits.field(16, ack.spdcid);
  bits.field(16, ack.dpdcid);
}

constexpr void lay_out(auto& bits, Of<AckState> auto& state) {
  bits.field(4, state.cc_type);
  bits.field(4, state.cc_flags);
  bits.field(8, state.window_128psns);
  bits.field(16, state.sack_psn_offset);
  bits.field(64, state.sack_bitmap);
  bits.field(64, state.state);
}

constexpr void lay_out(auto& bits, Of<NsccState> auto& state) {
  bits.field(16, state.service_128ns);
  bits.field(1, state.restore_window);
  bits.field(7, state.window_penalty);
  bits.field(24, state.received_256bytes);
  bits.field(16, state.out_of_order);
}

constexpr void lay_out(auto& bits, Of<CreditState> auto& state) {
  bits.field(24, state.credit_256bytes);
  bits.reserved(24);
  bits.field(16, state.out_of_order);
}

constexpr void lay_out(auto& bits, Of<Nack> auto& nack) {
  bits.field(5, nack.type);
  bits.field(4, nack.next);
  bits.reserved(1);
  bits.field(1, nack.marked);
  bits.field(1, nack.retransmitted);
  bits.field(1, nack.of_idempotent);
  bits.reserved(3);
  bits.field(8, nack.code);
  bits.field(8, nack.vendor);
  bits.field(32, nack.psn);
  bits.field(16, nack.spdcid);
  bits.field(16, nack.dpdcid);
  bits.field(32, nack.payload);
}

constexpr void lay_out(auto& bits, Of<Control> auto& control) {
  bits.field(5, control.type);
  bits.field(4, control.control);
  bits.reserved(1);
  bits.field(1, control.of_rod);
  bits.field(1, control.retransmitted);
  bits.field(1, control.asks);
  bits.field(1, control.syn);
  bits.reserved(2);
  bits.field(16, control.probe_id);
  bits.field(32, control.psn);
  bits.field(16, control.spdcid);
  bits.field(16, control.dpdcid);
  bits.field(32, control.payload);
}

constexpr void lay_out(auto& bits, Of<RequestStart> auto& start) {
  bits.reserved(2);
  bits.field(6, start.operation);
  bits.field(2, start.version);
  bits.field(1, start.delivery_complete);
  bits.field(1, start.initiator_error);
  bits.field(1, start.relative);
  bits.field(1, start.has_header_data);
  bits.field(1, start.end_of_message);
  bits.field(1, start.start_of_message);
  bits.field(16, start.message_id_or_bytes);
  bits.field(8, start.generation);
  bits.field(24, start.job_id);
  bits.reserved(4);
  bits.field(12, start.process);
  bits.reserved(4);
  bits.field(12, start.resource);
}

constexpr void lay_out(auto& bits, Of<StandardRequest> auto& request) {
  lay_out(bits, request.start);
  bits.field(64, request.buffer_offset);
  bits.field(32, request.initiator);
  bits.field(64, request.memory_key);
  if (request.start.start_of_message || is_deferred(request.start.operation)) {
    bits.field(64, request.header_data);
  } else {
    bits.reserved(18);
    bits.field(14, request.payload_bytes);
    bits.field(32, request.message_offset);
  }
  bits.field(32, request.message_bytes);
}

constexpr void lay_out(auto& bits, Of<MediumRequest> auto& request) {
  lay_out(bits, request.start);
  bits.field(64, request.header_data_or_offset);
  bits.field(32, request.initiator);
  bits.field(64, request.memory_key);
}

constexpr void lay_out(auto& bits, Of<SmallRequest> auto& request) {
  lay_out(bits, request.start);
  bits.field(64, request.buffer_offset);
}

constexpr void lay_out(auto& bits, Of<AtomicExtension> auto& atomic) {
  bits.field(8, atomic.operation);
  bits.field(8, atomic.datatype);
  bits.field(1, atomic.cacheable);
  bits.field(1, atomic.coherent);
  bits.field(6, atomic.vendor);
  bits.reserved(8);
}

constexpr void lay_out(auto& bits, Of<CompareSwapExtension> auto& swap) {
  lay_out(bits, swap.atomic);
  bits.field(64, swap.compare_high);
  bits.field(64, swap.compare_low);
  bits.field(64, swap.swap_high);
  bits.field(64, swap.swap_low);
}

// How every response begins.
constexpr void lay_out_code(auto& bits, auto& response) {
  bits.field(2, response.list);
  bits.field(6, response.kind);
  bits.field(2, response.version);
  bits.field(6, response.code);
}

constexpr void lay_out(auto& bits, Of<Response> auto& response) {
  lay_out_code(bits, response);
  bits.field(16, response.message_id);
  bits.field(8, response.generation);
  bits.field(24, response.job_id);
  bits.field(32, response.modified_bytes);
}

constexpr void lay_out(auto& bits, Of<DataResponse> auto& response) {
  lay_out_code(bits, response);
  bits.field(16, response.message_id);
  bits.reserved(8);
  bits.field(24, response.job_id);
  bits.field(16, response.read_message_id);
  bits.reserved(2);
  bits.field(14, response.payload_bytes);
  bits.field(32, response.modified_bytes);
  bits.field(32, response.message_offset);
}

constexpr void lay_out(auto& bits, Of<SmallDataResponse> auto& response) {
  lay_out_code(bits, response);
  bits.reserved(2);
  bits.field(14, response.payload_bytes);
  bits.reserved(8);
  bits.field(24, response.job_id);
  bits.field(32, response.request_psn);
}

// Of nack_ccx; also any state of eight bytes as a number.
struct CcxState {
  static constexpr size_t kBytes = 8;
  uint64_t value = 0;
};

constexpr void lay_out(auto& bits, Of<CcxState> auto& state) { bits.field(64, state.value); }

}  // namespace etloop::wire::uet
