// The half of a queue pair that is asked, over UET's reliable delivery, unordered (RUD) or ordered (ROD): the packet delivery
// context (PDC) at its target, what it takes and refuses, and what ACKs, NACKs and responses say of it.
// Rules: UET 1.0, 3.4 and 3.5, as read by docs/uet.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "multipath/receiver.h"
#include "uet/outgoing.h"
#include "uet/pdc_ids.h"
#include "uet/wide_psn.h"

namespace etloop::uet {

// How a packet came.
struct Arrival {
  uint16_t value = 0;   // its entropy value
  bool marked = false;  // with Congestion Experienced
};

class Responder {
 public:
  Responder(uint32_t local_qpn, const TransportSettings& params, uint32_t pattern_rkey, FlowRecord& counters);
  // Before the first packet: where the numbers of its PDCs come from. Outlives this.
  void attach(PdcIds& ids, uint32_t end);

  void on_request(const wire::uet::Request& request, const wire::uet::StandardRequest& message, uint32_t payload_bytes,
                  const uint8_t* payload, const Arrival& arrival);
  // A packet of which a switch left only the beginning.
  void on_trimmed(const wire::uet::Request& request, bool last_hop);
  void on_control(const wire::uet::Control& control, const Arrival& arrival);
  // What is whole now, in order; false: nothing more. A payload is valid until the next call.
  bool next_delivered(Delivered& delivered);

  // So much credit was granted in all to the peer, who is to hear of it.
  void grant(uint32_t total);
  bool answer_due() const {
    return !nacks_.empty() || !responses_.empty() || receiver_.has_cause() || credit_due_ || close_answer_due_;
  }
  // The next answer; requires answer_due(). Changes nothing until `answer_sent`. Its entropy value is the owner's to choose.
  Outgoing answer() const;
  void answer_sent();

  // The PDC that is open, or was last; 0: there was none.
  uint16_t pdc() const { return id_; }
  bool is_open() const { return open_; }
  // Whether a request of the peer can carry this number.
  bool counts_near(uint32_t psn) const { return psns_.is_near(psn); }
  uint32_t expected_psn() const { return receiver_.expected_psn(); }
  QpFault fault() const { return fault_; }

 private:
  // As many as wait of ACKs.
  static constexpr size_t kMostWaiting = 64;

  struct Refused {
    wire::uet::NackCode code{};
    uint32_t psn = 0;
    bool resent = false;
    uint16_t peer_id = 0;
    uint32_t expected_psn = 0;
  };
  // The packet that ordered delivery refused last since one was placed.
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
  WidePsn psns_;  // about the packet that is expected
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
  multipath::Cause latest_;  // the packet that was placed last
  std::vector<Refused> nacks_;
  std::vector<Respond> responses_;
};

}  // namespace etloop::uet
