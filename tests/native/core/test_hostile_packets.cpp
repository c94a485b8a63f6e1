// Whole ends of MRC and UET whose packets a network spoils as a seed says: lost, repeated, out of order, cut down by a switch,
// cut short, and with bytes changed behind every check. Without changed bytes the job ends whole. With them it may fail, by name,
// or wait for ever for what a forged acknowledgement took away; but nothing is read beyond its end (the sanitized build), no
// message is complete of which bytes are missing, and what is no packet is counted.
// 60 seeds a kind; 10,000 with ETLOOP_FULL set. A failure prints its seed.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <queue>
#include <string>
#include <vector>

#include "core/core.h"
#include "support/check.h"
#include "support/exchanges.h"
#include "support/failure_of.h"
#include "wire/mrc.h"
#include "wire/uet.h"

using namespace etloop;

namespace {

constexpr Nanos kLatencyNs = 2'000;
constexpr Nanos kMostNs = 2'000'000'000;
constexpr int kMostEvents = 200'000;
constexpr int32_t kIterations = 3;
constexpr int64_t kOpBytes = 20 * test::kMessageBytes + 777;

struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  bool percent(uint32_t chance) { return below(100) < chance; }
};

struct Spoils {
  const char* name;
  uint32_t lost, repeated, late, trimmed, shortened, changed;  // percent of packets
};
constexpr Spoils kSpoils[] = {
    {"loses, repeats and reorders", 3, 3, 10, 0, 0, 0},
    {"trims", 1, 1, 5, 5, 0, 0},
    {"cuts short and changes bytes", 1, 3, 5, 3, 3, 15},
};

struct Flying {
  Nanos due_ns;
  uint64_t order;
  size_t to;
  std::vector<uint8_t> bytes;
  uint32_t datagram_bytes;
  uint16_t src_port;
  bool trimmed;
  bool operator<(const Flying& other) const {
    return due_ns != other.due_ns ? due_ns > other.due_ns : order > other.order;
  }
};

class Network;

class Port final : public TxPort {
 public:
  Port(Network& network, size_t number) : network_(network), number_(number) {}
  TxResult send(const PacketRun&) override { return TxResult::failed; }
  TxResult send_built(const BuiltPacket& built) override;
  std::string last_error() const override { return "a packet of RoCEv2"; }
  uint32_t max_run(uint32_t) const override { return 1; }

 private:
  Network& network_;
  size_t number_;
};

class Network final : public Clock {
 public:
  Network(const EnginePlan& plan, const Spoils& spoils, uint64_t seed)
      : plan_(plan), spoils_(spoils), random_{seed}, ports_{Port(*this, 0), Port(*this, 1)} {
    for (size_t number = 0; number < 2; ++number) {
      auto made = Core::make(plan, static_cast<int32_t>(number), 1 << 20, flows_[number].opener());
      CHECK_EQ(test::failure_of(made), std::string());
      if (made) cores_[number] = std::move(*made);
    }
  }

  Nanos now() override { return now_ns_; }

  void send(size_t from, const BuiltPacket& built) {
    const Nanos due_ns = now_ns_ + kLatencyNs + static_cast<Nanos>(random_.below(500));
    Flying packet{due_ns, order_++, 1 - from, {}, 0, built.src_port, false};
    packet.bytes.assign(built.headers.begin(), built.headers.end());
    packet.bytes.resize(built.datagram_bytes());
    if (built.payload != nullptr) {
      std::copy_n(built.payload, built.payload_bytes, packet.bytes.begin() + static_cast<int64_t>(built.headers.size()));
    }
    packet.datagram_bytes = static_cast<uint32_t>(packet.bytes.size());
    if (!started_) {
      fly(std::move(packet));
      return;
    }
    if (random_.percent(spoils_.changed)) {
      Flying changed = packet;
      for (uint64_t times = 1 + random_.below(4); times > 0; --times) {
        changed.bytes[random_.below(std::min<size_t>(changed.bytes.size(), 80))] = static_cast<uint8_t>(random_.next());
      }
      changed.due_ns += static_cast<Nanos>(random_.below(2'000));
      changed.order = order_++;
      fly(std::move(changed));
    }
    if (random_.percent(spoils_.shortened)) {
      Flying shortened = packet;
      shortened.bytes.resize(random_.below(shortened.bytes.size()));
      shortened.datagram_bytes = static_cast<uint32_t>(shortened.bytes.size());
      shortened.order = order_++;
      fly(std::move(shortened));
      return;
    }
    if (random_.percent(spoils_.lost)) return;
    if (built.payload_bytes > 0 && random_.percent(spoils_.trimmed)) {
      packet.trimmed = true;
      packet.bytes.resize(std::min<size_t>(packet.bytes.size(), random_.below(100)));
      packet.datagram_bytes = static_cast<uint32_t>(packet.bytes.size());  // as ports say it
    }
    if (random_.percent(spoils_.late)) packet.due_ns += static_cast<Nanos>(random_.below(20'000));
    if (random_.percent(spoils_.repeated)) {
      Flying again = packet;
      again.due_ns += static_cast<Nanos>(random_.below(50'000));
      again.order = order_++;
      fly(std::move(again));
    }
    fly(std::move(packet));
  }

  // Whether both ends came to the end of the job.
  bool run() {
    for (const auto& core : cores_) core->start_probe();
    turn_until([this] { return cores_[0]->probing().prober().over() && cores_[1]->probing().prober().over(); });
    CHECK(cores_[0]->probing().prober().over() && cores_[1]->probing().prober().over());
    started_ = true;
    for (const auto& core : cores_) core->start(now_ns_ + 1'000);
    turn_until([this] { return cores_[0]->finished() && cores_[1]->finished(); });
    return cores_[0]->finished() && cores_[1]->finished();
  }

  std::string failure() const { return cores_[0]->failure() + cores_[1]->failure(); }

  // Payload of messages that one end took for whole.
  int64_t completed_bytes(size_t end) const {
    int64_t bytes = 0;
    for (const FlowRecord& flow : cores_[end]->flows()) bytes += flow.rx_payload_bytes;
    return bytes;
  }
  // Whether what was discarded is what the reasons that a port reports come to.
  bool reasons_add_up(size_t end) const {
    PortRecord record{};
    cores_[end]->arrivals().discards.add_to(record);
    const int64_t* reasons = discard_fields(record);
    return std::accumulate(reasons, reasons + kDiscardReasons, int64_t{0}) == discards_[end] &&
           std::accumulate(reasons, reasons + kForeignReasons, int64_t{0}) == record.foreign_datagrams;
  }
  // All that came after the start, of whatever kind.
  int64_t arrived_bytes(size_t end) const { return arrived_bytes_[end]; }

 private:
  template <typename Over>
  void turn_until(const Over& over) {
    for (int events = 0; events < kMostEvents && now_ns_ < kMostNs && !over() && failure().empty(); ++events) {
      for (size_t number = 0; number < 2; ++number) {
        Core& core = *cores_[number];
        core.on_time(now_ns_);
        core.issue(now_ns_);
        while (core.transmit(ports_[number], *this, 8)) {
        }
      }
      Nanos next_ns = std::min(cores_[0]->next_deadline(), cores_[1]->next_deadline());
      if (!flying_.empty()) next_ns = std::min(next_ns, flying_.top().due_ns);
      if (next_ns == kNever) return;
      now_ns_ = std::max(now_ns_, next_ns);
      while (!flying_.empty() && flying_.top().due_ns <= now_ns_) land();
    }
  }

  void fly(Flying packet) { flying_.push(std::move(packet)); }

  void land() {
    const Flying packet = flying_.top();
    flying_.pop();
    Core& core = *cores_[packet.to];
    // Of exactly its size, so that the sanitized build sees who reads on.
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[packet.bytes.size()]);
    std::copy(packet.bytes.begin(), packet.bytes.end(), exact.get());
    Datagram datagram;
    datagram.bytes = std::span<const uint8_t>(exact.get(), packet.bytes.size());
    datagram.datagram_bytes = packet.datagram_bytes;
    datagram.src_ip = plan_.ports[1 - packet.to].addresses[0];
    datagram.src_port = packet.src_port;
    datagram.traffic_class = packet.order % 50 == 0 ? 3 : 2;
    datagram.trimmed = packet.trimmed;
    if (started_) arrived_bytes_[packet.to] += static_cast<int64_t>(packet.bytes.size());
    const ArrivalCounts before = core.arrivals();
    core.on_datagram(datagram, now_ns_);
    const ArrivalCounts after = core.arrivals();
    const int64_t discarded = after.discards.total() - before.discards.total();
    const int64_t trimmed = after.trimmed - before.trimmed;
    const bool cut_in_vain = after.discards.of(Discard::late_trimmed) != before.discards.of(Discard::late_trimmed);
    CHECK(discarded >= 0 && trimmed >= 0 && discarded + trimmed <= (cut_in_vain ? 2 : 1));
    // However late it comes, a packet of the run is no foreign one: it would look lost on the way.
    const bool as_sent = spoils_.changed == 0 && spoils_.shortened == 0;
    if (as_sent) CHECK_EQ(after.discards.foreign(), 0);
    if (as_sent && packet.trimmed && !is_readable(datagram)) CHECK_EQ(trimmed, 1);
    if (!packet.trimmed && !is_readable(datagram)) CHECK_EQ(discarded, 1);
    discards_[packet.to] += discarded;
  }

  bool is_readable(const Datagram& datagram) const {
    if (plan_.transport.kind == TransportKind::mrc) {
      wire::mrc::Packet packet;
      return wire::mrc::decode(datagram.bytes, datagram.datagram_bytes, packet) == wire::mrc::Malformed::none;
    }
    wire::uet::Packet packet;
    return wire::uet::decode(datagram.bytes, datagram.datagram_bytes, packet) == wire::uet::Malformed::none;
  }

  const EnginePlan& plan_;
  const Spoils& spoils_;
  Random random_;
  std::array<test::FlowCounter, 2> flows_;
  std::array<Port, 2> ports_;
  std::array<std::unique_ptr<Core>, 2> cores_;
  std::priority_queue<Flying> flying_;
  uint64_t order_ = 0;
  Nanos now_ns_ = 1'000;
  bool started_ = false;
  std::array<int64_t, 2> arrived_bytes_{};
  std::array<int64_t, 2> discards_{};
};

TxResult Port::send_built(const BuiltPacket& built) {
  network_.send(number_, built);
  return TxResult::sent;
}

struct Kind {
  const char* name;
  TransportKind kind;
  DeliveryOrder order = DeliveryOrder::any;
  bool sends = false;
};

EnginePlan plan_of(const Kind& kind) {
  EnginePlan plan = test::exchanges(kIterations);
  for (Program& program : plan.programs) program.message_bytes = {kOpBytes, kOpBytes};
  plan.transport.kind = kind.kind;
  plan.transport.multipath.uet.order = kind.order;
  plan.transport.multipath.uet.sends = kind.sends;
  plan.transport.multipath.entropy_values = kind.order == DeliveryOrder::sent ? 1 : 16;
  plan.transport.multipath.uet.close_after_ns = 30'000;
  plan.transport.window_packets = 64;
  plan.transport.timeout_ns = 1'000'000;
  plan.transport.recovery.timeout_floor_ns = 50'000;
  plan.transport.recovery.initial_psn = 0xFFFFF0;
  plan.transport.recovery.trimming.answer = TrimAnswer::nak;
  return plan;
}

void ends_hold(const Kind& kind, const Spoils& spoils, uint64_t seeds) {
  const EnginePlan plan = plan_of(kind);
  CHECK_EQ(validate(plan), std::string());
  const int64_t job_bytes = 2 * int64_t{kIterations} * kOpBytes;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const int before = test::failures();
    Network network(plan, spoils, seed);
    const bool ended = network.run();
    if (spoils.changed == 0) {
      CHECK_EQ(network.failure(), std::string());
      CHECK(ended);
      CHECK_EQ(network.completed_bytes(0), job_bytes);
      CHECK_EQ(network.completed_bytes(1), job_bytes);
    }
    for (const size_t end : {size_t{0}, size_t{1}}) {
      CHECK(network.completed_bytes(end) <= network.arrived_bytes(end));
      CHECK(network.completed_bytes(end) <= job_bytes);
      CHECK(network.reasons_add_up(end));
    }
    if (test::failures() > before) {
      std::cerr << kind.name << ", a network that " << spoils.name << ", seed " << seed << ": " << network.failure() << '\n';
      return;
    }
  }
}

}  // namespace

int main() {
  const uint64_t seeds = std::getenv("ETLOOP_FULL") != nullptr ? 10'000 : 60;
  constexpr Kind kKinds[] = {{"MRC", TransportKind::mrc},
                             {"UET, unordered", TransportKind::uet},
                             {"UET, ordered", TransportKind::uet, DeliveryOrder::sent},
                             {"UET, sends", TransportKind::uet, DeliveryOrder::any, true}};
  for (const Kind& kind : kKinds) {
    for (const Spoils& spoils : kSpoils) ends_hold(kind, spoils, seeds);
  }
  return test::failures();
}
