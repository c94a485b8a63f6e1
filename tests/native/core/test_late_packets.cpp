// Two ends in virtual time: a copy of every packet arrives again when its purpose is over, whole and trimmed. Each copy is
// counted once, as received: by its queue pair, or under the reason for its kind, and never as foreign. The same copies at the
// ends of another run are foreign there, or refused by a queue pair.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/core.h"
#include "support/check.h"
#include "support/exchanges.h"
#include "support/failure_of.h"
#include "wire/uet.h"

using namespace etloop;

namespace {

constexpr Nanos kLatencyNs = 2'000;
constexpr Nanos kRestNs = 1'000;  // contexts close in the middle of the job
constexpr size_t kCutBytes = 16;

struct Sent {
  size_t to;
  std::vector<uint8_t> bytes;
  uint16_t src_port;
  Nanos due_ns;
};

class Ends final : public Clock {
 public:
  explicit Ends(const EnginePlan& plan) : plan_(plan), ports_{Port(*this, 0), Port(*this, 1)} {
    for (size_t number = 0; number < 2; ++number) {
      auto made = Core::make(plan, static_cast<int32_t>(number), 1 << 20, flows_[number].opener());
      CHECK_EQ(test::failure_of(made), std::string());
      if (made) cores_[number] = std::move(*made);
    }
  }

  Nanos now() override { return now_ns_; }

  // The whole job, and so long afterwards that every context is closed.
  void run() {
    for (const auto& core : cores_) core->start_probe();
    turn_until([this] { return cores_[0]->probing().prober().over() && cores_[1]->probing().prober().over(); });
    for (const auto& core : cores_) core->start(now_ns_ + 1'000);
    turn_until([this] { return cores_[0]->finished() && cores_[1]->finished(); });
    CHECK(cores_[0]->finished() && cores_[1]->finished());
    const Nanos until_ns = now_ns_ + 1'000 * kRestNs;
    turn_until([&] { return now_ns_ >= until_ns; });
  }

  void receive(const Sent& sent, bool cut) {
    std::vector<uint8_t> bytes = sent.bytes;
    if (cut) bytes.resize(std::min(bytes.size(), kCutBytes));
    Datagram datagram;
    datagram.bytes = bytes;
    datagram.datagram_bytes = static_cast<uint32_t>(bytes.size());
    datagram.src_ip = plan_.ports[1 - sent.to].addresses[0];
    datagram.src_port = sent.src_port;
    datagram.traffic_class = 2;
    datagram.trimmed = cut;
    cores_[sent.to]->on_datagram(datagram, now_ns_);
  }

  const Core& core(size_t number) const { return *cores_[number]; }
  const std::vector<Sent>& sent() const { return sent_; }
  int64_t count(Discard reason) const {
    return cores_[0]->arrivals().discards.of(reason) + cores_[1]->arrivals().discards.of(reason);
  }
  int64_t foreign() const { return cores_[0]->arrivals().discards.foreign() + cores_[1]->arrivals().discards.foreign(); }
  int64_t trimmed() const { return cores_[0]->arrivals().trimmed + cores_[1]->arrivals().trimmed; }

 private:
  class Port final : public TxPort {
   public:
    Port(Ends& ends, size_t number) : ends_(ends), number_(number) {}
    TxResult send(const PacketRun&) override { return TxResult::failed; }
    TxResult send_built(const BuiltPacket& built) override { return ends_.take(number_, built), TxResult::sent; }
    std::string last_error() const override { return "a packet of RoCEv2"; }
    uint32_t max_run(uint32_t) const override { return 1; }

   private:
    Ends& ends_;
    size_t number_;
  };

  void take(size_t from, const BuiltPacket& built) {
    Sent sent{1 - from, {built.headers.begin(), built.headers.end()}, built.src_port, now_ns_ + kLatencyNs};
    sent.bytes.resize(built.datagram_bytes());
    if (built.payload != nullptr) {
      std::copy_n(built.payload, built.payload_bytes, sent.bytes.begin() + static_cast<int64_t>(built.headers.size()));
    }
    sent_.push_back(std::move(sent));
  }

  template <typename Over>
  void turn_until(const Over& over) {
    for (int turns = 0; turns < 100'000 && !over(); ++turns) {
      for (size_t number = 0; number < 2; ++number) {
        cores_[number]->on_time(now_ns_);
        cores_[number]->issue(now_ns_);
        while (cores_[number]->transmit(ports_[number], *this, 8)) {
        }
      }
      Nanos next_ns = std::min(cores_[0]->next_deadline(), cores_[1]->next_deadline());
      if (arrived_ < sent_.size()) next_ns = std::min(next_ns, sent_[arrived_].due_ns);
      if (next_ns == kNever) return;
      now_ns_ = std::max(now_ns_, next_ns);
      for (; arrived_ < sent_.size() && sent_[arrived_].due_ns <= now_ns_; ++arrived_) receive(Sent(sent_[arrived_]), false);
    }
  }

  const EnginePlan& plan_;
  std::array<test::FlowCounter, 2> flows_;
  std::array<Port, 2> ports_;
  std::array<std::unique_ptr<Core>, 2> cores_;
  std::vector<Sent> sent_;
  size_t arrived_ = 0;
  Nanos now_ns_ = 1'000;
};

struct Kind {
  const char* name;
  TransportKind kind;
  DeliveryOrder order = DeliveryOrder::any;
  bool sends = false;
  bool granted = false;
};

EnginePlan plan_of(const Kind& kind) {
  EnginePlan plan = test::exchanges(3);
  for (Program& program : plan.programs) program.message_bytes = {20 * test::kMessageBytes, 20 * test::kMessageBytes};
  plan.transport.kind = kind.kind;
  plan.transport.multipath.uet.order = kind.order;
  plan.transport.multipath.uet.sends = kind.sends;
  plan.transport.multipath.uet.credit.granted = kind.granted;
  plan.transport.multipath.entropy_values = kind.order == DeliveryOrder::sent ? 1 : 16;
  plan.transport.multipath.uet.close_after_ns = kRestNs;
  plan.transport.window_packets = 64;
  plan.transport.timeout_ns = 1'000'000;
  plan.transport.recovery.timeout_floor_ns = 50'000;
  plan.transport.recovery.initial_psn = 0xFFFFF0;
  plan.transport.recovery.trimming.answer = TrimAnswer::nak;
  return plan;
}

// Numbers of queue pairs and packets are drawn anew for every run.
EnginePlan another_run(EnginePlan plan) {
  plan.transport.recovery.initial_psn = 0x123456;
  for (PlannedQp& qp : plan.qps) qp.src_qpn += 0x1000, qp.dst_qpn += 0x1000;
  for (PlannedPort& port : plan.ports) port.qpn_base += 0x1000;
  return plan;
}

int64_t counted_by(const Core& core) {
  int64_t sum = core.arrivals().trimmed + core.arrivals().discards.total();
  for (const FlowRecord& flow : core.flows()) {
#define ETLOOP_FIELD(name) sum += flow.name;
    ETLOOP_QUEUE_PAIR_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
  }
  return sum;
}

void every_late_copy_is_received(const Kind& kind) {
  const EnginePlan plan = plan_of(kind);
  CHECK_EQ(validate(plan), std::string());
  Ends ends(plan);
  ends.run();
  CHECK_EQ(ends.foreign(), 0);
  const bool closes = kind.kind == TransportKind::uet;
  const std::vector<Sent> copies = ends.sent();
  CHECK(copies.size() > 100);
  int64_t uncounted = 0;
  for (const Sent& copy : copies) {
    const int64_t before = counted_by(ends.core(copy.to));
    ends.receive(copy, false);
    uncounted += counted_by(ends.core(copy.to)) == before ? 1 : 0;
  }
  CHECK_EQ(ends.foreign(), 0);
  for (const Discard reason : {Discard::late_request, Discard::late_ack, Discard::late_control}) {
    CHECK_EQ(ends.count(reason) > 0, closes);
  }
  const int64_t trimmed = ends.trimmed();
  for (const Sent& copy : copies) ends.receive(copy, true);
  CHECK_EQ(ends.foreign(), 0);
  const auto cut = std::ranges::count_if(copies, [](const Sent& copy) { return copy.bytes.size() > kCutBytes; });
  CHECK_EQ(ends.trimmed() - trimmed, cut);
  // Probes and control packets that a queue pair takes are in its port's count alone.
  CHECK(uncounted < static_cast<int64_t>(copies.size()) / 10);
}

// What contexts of other ends say: a NACK for a context that is closed, by whom it was opened.
void a_late_nack_is_received() {
  const EnginePlan plan = plan_of({"UET", TransportKind::uet});
  Ends ends(plan);
  ends.run();
  for (const Sent& sent : std::vector<Sent>(ends.sent())) {
    wire::uet::Packet packet;
    if (wire::uet::decode(sent.bytes, static_cast<uint32_t>(sent.bytes.size()), packet) != wire::uet::Malformed::none) continue;
    const auto* ack = std::get_if<wire::uet::Ack>(&packet.pds);
    if (ack == nullptr) continue;
    wire::uet::Packet refusal;
    wire::uet::Nack nack;
    nack.nack_code = wire::uet::NackCode::invalid_dpdcid;
    nack.psn = ack->cack_psn;
    nack.dpdcid = ack->dpdcid;
    refusal.pds = nack;
    Sent said = sent;
    said.bytes.assign(wire::uet::kMaxHeaderBytes, 0);
    said.bytes.resize(wire::uet::encode_headers(refusal, said.bytes));
    ends.receive(said, false);
  }
  CHECK(ends.count(Discard::late_nak) > 0);
  CHECK_EQ(ends.foreign(), 0);
}

void packets_of_another_run_are_none_of_this_one(const Kind& kind) {
  const EnginePlan before = plan_of(kind);
  const EnginePlan plan = another_run(before);
  CHECK_EQ(validate(plan), std::string());
  Ends earlier(before);
  Ends ends(plan);
  earlier.run();
  ends.run();
  CHECK_EQ(ends.foreign(), 0);
  for (const Sent& copy : earlier.sent()) ends.receive(copy, false);
  CHECK(ends.foreign() > static_cast<int64_t>(earlier.sent().size()) / 2);
  for (const Discard reason : {Discard::late_request, Discard::late_ack, Discard::late_nak, Discard::late_control}) {
    CHECK_EQ(ends.count(reason), 0);
  }
}

}  // namespace

int main() {
  constexpr Kind kKinds[] = {{"MRC", TransportKind::mrc},
                             {"UET, unordered", TransportKind::uet},
                             {"UET, ordered", TransportKind::uet, DeliveryOrder::sent},
                             {"UET, sends", TransportKind::uet, DeliveryOrder::any, true},
                             {"UET, credit", TransportKind::uet, DeliveryOrder::any, false, true}};
  for (const Kind& kind : kKinds) {
    const int before = test::failures();
    every_late_copy_is_received(kind);
    packets_of_another_run_are_none_of_this_one(kind);
    if (test::failures() > before) std::cerr << kind.name << '\n';
  }
  a_late_nack_is_received();
  return test::failures();
}
