// The responder over UET's reliable delivery, unordered (RUD) or ordered (ROD): the packet delivery context (PDC) at its target,
// the acceptance of requests, and the ACKs, NACKs and responses. Rules: UET 1.0, 3.4 and 3.5, as interpreted in docs/uet.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "multipath/receiver.h"
#include "uet/outgoing.h"
#include "uet/pdc_ids.h"
#include "uet/wide_psn.h"

namespace etloop::uet {

// How a packet arrived.
struct Arrival {
  uint16_t value = 0;   // its entropy value
  bool marked = false;  // Congestion Experienced
};

class Responder {
 public:
  Responder(uint32_t local_qpn, const TransportSettings& params, uint32_t pattern_rkey, FlowRecord& counters);
  // Set the allocator of PDC ids before the first packet; outlives this.
  void attach(PdcIds& ids, uint32_t end);

  void on_request(const wire::uet::Request& request, const wire::uet::StandardRequest& message, uint32_t payload_bytes,
                  const uint8_t* payload, const Arrival& arrival);
  // Handle a packet trimmed by a switch.
  void on_trimmed(const wire::uet::Request& request, bool last_hop);
  void on_control(const wire::uet::Control& control, const Arrival& arrival);
  // Return the next complete message in order; false: none. A payload is valid until the next call.
  bool next_delivered(Delivered& delivered);

  // Report the total credit granted to the peer.
  void grant(uint32_t total);
  bool answer_due() const {
    return !nacks_.empty() || !responses_.empty() || receiver_.has_cause() || credit_due_ || close_answer_due_;
  }
  // Return the next answer; requires answer_due(). No state changes until `answer_sent`. The owner chooses its entropy value.
  Outgoing answer() const;
  void answer_sent();

  // Id of the open or last PDC; 0: none.
  uint16_t pdc() const { return id_; }
  bool is_open() const { return open_; }
  // Whether a request of the peer can have this PSN.
  bool counts_near(uint32_t psn) const { return psns_.is_near(psn); }
  uint32_t expected_psn() const { return receiver_.expected_psn(); }
  QpFault fault() const { return fault_; }

 private:
  // As many as ACKs can wait.
  static constexpr size_t kMostWaiting = 64;

  struct Refused {
    wire::uet::NackCode code{};
    uint32_t psn = 0;
    bool resent = false;
    uint16_t peer_id = 0;
    uint32_t expected_psn = 0;
  };
  // The last packet that ordered delivery rejected since one was accepted.
  struct Gap {
    bool is_known = false;
    uint32_t ahead_psn = 0;
    bool resent = false;
  };
  struct Respond {
    wire::uet::ReturnCode code{};
    uint16_t message_id = 0;
    uint32_t bytes = 0;
    multipath::Cause cause;
  };

  bool opens(const wire::uet::Request& request);
  bool belongs(const wire::uet::Request& request);
  bool is_out_of_order(const wire::uet::Request& request);
  void refuse(const wire::uet::Request& request, wire::uet::NackCode code);
  void refuse_message(const wire::uet::StandardRequest& message, const multipath::Cause& cause, wire::uet::ReturnCode code);
  std::optional<wire::uet::ReturnCode> wrong(const wire::uet::StandardRequest& message, uint32_t payload_bytes) const;
  void keep_message(uint32_t psn, const wire::uet::StandardRequest& message, const uint8_t* payload);
  wire::uet::Ack ack(const multipath::Cause& cause) const;

  FlowRecord& counters_;
  multipath::Receiver receiver_;
  PdcIds* ids_ = nullptr;
  uint32_t end_ = 0;
  bool ordered_;
  bool sends_;
  uint32_t local_qpn_;
  uint64_t memory_key_;
  uint32_t job_id_;
  uint32_t mtu_shift_;
  WidePsn psns_;  // near the expected PSN
  bool opened_before_ = false;
  bool open_ = false;
  uint16_t id_ = 0;
  uint16_t peer_id_ = 0;
  Gap gap_;
  CreditSettings credit_params_;
  uint32_t credit_total_ = 0;
  bool credit_due_ = false;
  bool close_answer_due_ = false;
  TrimAnswer trim_answer_;
  QpFault fault_ = QpFault::none;
  multipath::Cause latest_;  // the last accepted packet
  std::vector<Refused> nacks_;
  std::vector<Respond> responses_;
};

}  // namespace etloop::uet
