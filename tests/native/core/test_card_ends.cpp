// Ends on a network card: where grants and messages are written to, and which number stands for which message.
#include "core/card_ends.h"

#include <string>
#include <vector>

#include "core/carrier_arrivals.h"
#include "support/check.h"
#include "support/core_parts.h"

using namespace etloop;

namespace {

class RecordingCarrier final : public Carrier {
 public:
  Result<void> add_end(const EndSettings& settings) override {
    ends.push_back(settings);
    return {};
  }
  Endpoint endpoint(uint32_t end) const override {
    Endpoint made;
    made.ordinal = static_cast<int32_t>(end);
    made.qpn = 0x900 + end;
    return made;
  }
  Result<void> connect(uint32_t end, const Endpoint& peer) override {
    joined.resize(ends.size());
    joined[end] = peer.qpn;
    return {};
  }
  void post(uint32_t, const WorkRequest& request) override { posted.push_back(request); }
  uint64_t room(uint32_t, uint32_t, uint32_t& rkey) override {
    rkey = 0x77;
    return full ? 0 : 0x5000;
  }
  void watch(uint32_t, uint32_t tag) override { watched.push_back(tag); }

  bool full = false;
  std::vector<EndSettings> ends;
  std::vector<uint32_t> joined;
  std::vector<WorkRequest> posted;
  std::vector<uint32_t> watched;
};

struct CardPort : test::CoreParts {
  CardPort(const EnginePlan& from, int32_t port)
      : CoreParts(from, port), carried({connections, queue_pairs, cards, probing, lanes, failure}) {
    CHECK_EQ(test::failure_of(queue_pairs.open(ranks, carrier)), std::string());
    cards.attach(carrier);
    probing.load();
  }
  void begin() {
    ops.start(0);
    ops.issue(0);
  }

  RecordingCarrier carrier;
  CarrierArrivals carried;
};

Endpoint peer_card(int32_t ordinal, bool sends_data) {
  Endpoint peer;
  peer.ordinal = ordinal;
  peer.sends_data = sends_data;
  peer.qpn = 0x800 + static_cast<uint32_t>(ordinal);
  peer.va = 0x10000;
  peer.rkey = 0x33;
  peer.closing_va = 0x20000;
  return peer;
}

void peers_join_by_the_numbers_they_chose() {
  CardPort port(test::one_send(4096), 0);
  CHECK_EQ(port.cards.endpoints().size(), 2u);
  port.cards.set_peer_endpoints({peer_card(0, false), peer_card(1, false)});
  CHECK(port.carrier.joined == (std::vector<uint32_t>{0x800, 0x801}));
  CHECK_EQ(port.cards.landing(0).va, 0x10000u);
}

void a_grant_takes_room_of_the_card_and_a_number() {
  CardPort port(test::one_send(test::kMessageBytes), 1);
  port.cards.set_peer_endpoints({peer_card(0, true), peer_card(1, true)});
  port.begin();
  CHECK_EQ(port.carrier.posted.size(), 1u);
  const WorkRequest& grant = port.carrier.posted[0];
  CHECK(grant.kind == WorkKind::clear_to_send);
  CHECK_EQ(grant.va, 0x10000u);  // the first place of the sender's ring
  CHECK_EQ(grant.rkey, 0x33u);
  CHECK_EQ(grant.grant_va, 0x5000u);
  CHECK_EQ(grant.grant_rkey, 0x77u);
  port.carried.on_message(0, static_cast<uint32_t>(grant.index), test::kMessageBytes, 50);
  CHECK(port.failure.none());
  CHECK(port.ops.finished());
  CHECK_EQ(port.queue_pairs[0].counters.rx_messages, 1);
  port.carried.on_message(0, static_cast<uint32_t>(grant.index), test::kMessageBytes, 60);
  CHECK_EQ(port.failure.reason(), std::string("rank 0 -> rank 1 (10.0.0.1 -> 10.0.0.2): a message of 2048 bytes names "
                                              "grant 1, which is not under way"));
}

void a_card_without_room_ends_the_run() {
  CardPort port(test::one_send(test::kMessageBytes), 1);
  port.carrier.full = true;
  port.begin();
  CHECK_EQ(port.carrier.posted.size(), 0u);
  CHECK(port.failure.reason().find("lower scale.bytes") != std::string::npos);
}

void what_goes_to_a_card_names_its_grant() {
  CardPort port(test::one_send(test::kMessageBytes), 0);
  port.cards.set_peer_endpoints({peer_card(0, false), peer_card(1, false)});
  port.begin();
  port.carried.on_grant(0, {0x7000, 2048, 0x44, 0, 12}, 30);
  CHECK_EQ(port.carrier.posted.size(), 1u);
  CHECK_EQ(port.carrier.posted[0].va, 0x7000u);
  CHECK_EQ(port.carrier.posted[0].rkey, 0x44u);
  CHECK_EQ(port.carrier.posted[0].imm, 12u);
  CHECK_EQ(port.queue_pairs[0].counters.tx_messages, 1);
  port.carried.on_carried(0, port.carrier.posted[0], 80);
  CHECK(port.ops.finished());
  CHECK_EQ(port.records.completed()[0].first_tx_ns, 30);
}

void one_sided_messages_are_counted_by_what_closes_them() {
  CardPort port(test::one_send(2 * test::kMessageBytes, 2, Handshake::one_sided), 1);
  port.begin();
  CHECK(port.carrier.watched == std::vector<uint32_t>{0});
  port.carried.on_closing(0, 0, ~uint64_t{2}, 70);
  CHECK(port.ops.finished());
  CHECK_EQ(port.records.completed()[0].rx_messages, 2);
  CHECK_EQ(port.queue_pairs[0].counters.rx_payload_bytes, 2 * test::kMessageBytes);
}

void a_probe_is_a_write_and_its_fault_a_peer_out_of_reach() {
  CardPort port(test::one_send(4096, 1), 0);
  port.probing.start();
  port.probing.send_writes(0, [&](uint32_t qp, const WorkRequest& request) { port.cards.post(qp, request, 0); });
  CHECK_EQ(port.carrier.posted.size(), 1u);
  CHECK(port.carrier.posted[0].kind == WorkKind::probe);
  CHECK_EQ(port.carrier.posted[0].bytes, test::kMtu);
  port.carried.on_carrier_fault(0, "retries exceeded");
  CHECK(port.failure.none());
  CHECK(!port.probing.under_way());
  port.carried.on_carrier_fault(0, "retries exceeded");
  CHECK_EQ(port.failure.reason(), std::string("rank 0 -> rank 1 (10.0.0.1 -> 10.0.0.2): retries exceeded"));
}

}  // namespace

int main() {
  peers_join_by_the_numbers_they_chose();
  a_grant_takes_room_of_the_card_and_a_number();
  a_card_without_room_ends_the_run();
  what_goes_to_a_card_names_its_grant();
  one_sided_messages_are_counted_by_what_closes_them();
  a_probe_is_a_write_and_its_fault_a_peer_out_of_reach();
  return test::failures();
}
