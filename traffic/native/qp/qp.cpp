#include "qp/qp.h"

#include <array>

namespace etloop {

const char* describe(QpFault fault) {
  switch (fault) {
    case QpFault::none: return "no fault";
    case QpFault::retries_exceeded: return "no acknowledgement after the last retry";
    case QpFault::rnr_retries_exceeded: return "the peer had no receive posted after the last retry";
    case QpFault::remote_access: return "the peer answered with a remote access error";
    case QpFault::remote_invalid_request: return "the peer answered with an invalid request error";
    case QpFault::remote_operational: return "the peer answered with a remote operational error";
    case QpFault::unexpected_syndrome: return "the peer answered with a syndrome that is not understood";
    case QpFault::bad_response: return "the peer's response does not fit the request";
    case QpFault::refused_access: return "the peer asked for memory that it may not reach";
    case QpFault::refused_request: return "the peer sent a request that breaks the protocol";
  }
  return "unknown fault";
}

Nanos rnr_timer_ns(uint8_t code) {
  constexpr std::array<int32_t, 32> kHundredthsOfMs = {65536, 1,   2,   3,   4,   6,    8,    12,   16,   24,   32,
                                                       48,    64,  96,  128, 192, 256,  384,  512,  768,  1024, 1536,
                                                       2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return Nanos{kHundredthsOfMs[code & wire::kRnrTimerMask]} * 10'000;
}

Qp::Qp(uint32_t local_qpn, uint32_t remote_qpn, FlowId flow, const TransportSettings& params, const QpResources& resources,
       std::pmr::memory_resource& memory)
    : responder_(remote_qpn, flow, params, resources, counters),
      flow_(flow),
      requester_(remote_qpn, flow, params, counters, memory) {
  counters.local_qpn = local_qpn;
  counters.remote_qpn = remote_qpn;
}

bool Qp::on_request(const wire::Packet& packet, Delivered& delivered) {
  if (fault() != QpFault::none) return false;  // in the error state everything is dropped
  const bool whole = responder_.on_request(packet, delivered);
  if (responder_.fault() != QpFault::none) requester_.fail(responder_.fault());
  return whole;
}

}  // namespace etloop
