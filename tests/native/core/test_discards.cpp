// A hostile datagram a row, for each transport: it is counted under its reason and no other, and nothing else comes of it: no
// queue pair counts it, nothing fails, and nothing leaves but a NACK of UET that refuses it.
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/core.h"
#include "support/check.h"
#include "support/exchanges.h"
#include "support/failure_of.h"
#include "wire/mrc.h"
#include "wire/uet.h"
#include "wire/wire.h"

using namespace etloop;

namespace {

constexpr uint32_t kReceivingQpn = 0x110;  // of port 0, whose peer is on port 1
constexpr uint32_t kUnknownQpn = 0x1FF;

struct Hostile {
  std::vector<uint8_t> bytes;
  IpAddress from = IpAddress::v4(0x0A000002);
  bool trimmed = false;
};

struct Row {
  const char* why;
  std::function<void(Hostile&)> spoil;
  Discard reason;
};

class Silence final : public TxPort {
 public:
  TxResult send(const PacketRun&) override { return ++sent, TxResult::sent; }
  TxResult send_built(const BuiltPacket& built) override {
    // Type of a packet of UET; others answer nothing.
    nacks += static_cast<wire::uet::PdsType>(built.headers[0] >> 3) == wire::uet::PdsType::nack ? 1 : 0;
    return ++sent, TxResult::sent;
  }
  std::string last_error() const override { return {}; }
  uint32_t max_run(uint32_t) const override { return 1; }
  int sent = 0;
  int nacks = 0;
};

class Still final : public Clock {
 public:
  Nanos now() override { return 1'000; }
};

EnginePlan plan_of(TransportKind kind) {
  EnginePlan plan = test::exchanges(1);
  plan.transport.kind = kind;
  plan.transport.recovery.trimming.answer = TrimAnswer::nak;
  plan.transport.recovery.initial_psn = 1'000;
  return plan;
}

std::unique_ptr<Core> core_of(const EnginePlan& plan) {
  test::FlowCounter flows;
  auto made = Core::make(plan, 0, 1 << 20, flows.opener());
  CHECK_EQ(test::failure_of(made), std::string());
  return *std::move(made);
}

bool counts_alike(const std::vector<FlowRecord>& one, const std::vector<FlowRecord>& other) {
  for (size_t i = 0; i < one.size(); ++i) {
#define ETLOOP_FIELD(name) \
  if (one[i].name != other[i].name) return false;
    ETLOOP_QUEUE_PAIR_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
  }
  return one.size() == other.size();
}

void is_discarded(TransportKind kind, const Row& row, const std::vector<uint8_t>& good) {
  const int before = test::failures();
  const EnginePlan plan = plan_of(kind);
  const std::unique_ptr<Core> made = core_of(plan);
  Core& core = *made;
  Hostile hostile{.bytes = good};
  row.spoil(hostile);
  Datagram datagram;
  datagram.bytes = hostile.bytes;
  datagram.datagram_bytes = static_cast<uint32_t>(hostile.bytes.size());
  datagram.src_ip = hostile.from;
  datagram.src_port = 50'000;
  datagram.traffic_class = 2;
  datagram.trimmed = hostile.trimmed;
  const std::vector<FlowRecord> counted = core.flows();
  core.on_datagram(datagram, 1'000);
  Silence port;
  Still clock;
  core.transmit(port, clock, 8);
  const DiscardCounts found = core.arrivals().discards;
  CHECK_EQ(found.of(row.reason), 1);
  CHECK_EQ(found.total(), 1);
  // A peer's packet that was cut came all the same; what remains of it is not asked for.
  CHECK_EQ(core.arrivals().trimmed, row.reason == Discard::late_trimmed ? 1 : 0);
  CHECK(counts_alike(counted, core.flows()));
  CHECK_EQ(port.sent, port.nacks);
  CHECK_EQ(core.failure(), std::string());
  PortRecord record{};
  found.add_to(record);
  CHECK_EQ(record.foreign_datagrams, static_cast<size_t>(row.reason) < kForeignReasons ? 1 : 0);
  CHECK_EQ(discard_fields(record)[static_cast<size_t>(row.reason)], 1);
  if (test::failures() > before) std::cerr << "transport " << static_cast<int>(kind) << ": " << row.why << '\n';
}

// What every transport with a BTH discards alike.
std::vector<Row> bth_rows(uint8_t unknown_opcode) {
  return {
      {"fewer bytes than a BTH", [](Hostile& it) { it.bytes.resize(11); }, Discard::too_short},
      {"nothing at all", [](Hostile& it) { it.bytes.clear(); }, Discard::too_short},
      {"fewer bytes than its opcode's headers", [](Hostile& it) { it.bytes.resize(24); }, Discard::too_short},
      {"a version of the transport that is none", [](Hostile& it) { it.bytes[1] |= 0x03; }, Discard::bad_version},
      {"an opcode that is none", [=](Hostile& it) { it.bytes[0] = unknown_opcode; }, Discard::unknown_opcode},
      {"no whole words", [](Hostile& it) { it.bytes.push_back(0); }, Discard::bad_length},
      {"another partition", [](Hostile& it) { it.bytes[2] = 0x12; }, Discard::wrong_p_key},
      {"a queue pair that is not here",
       [](Hostile& it) { it.bytes[6] = kUnknownQpn >> 8, it.bytes[7] = kUnknownQpn & 0xFF; }, Discard::unknown_qp},
      {"another host than the peer", [](Hostile& it) { it.from = IpAddress::v4(0x0A000063); }, Discard::wrong_peer},
      {"cut before it says whose it is", [](Hostile& it) { it.trimmed = true, it.bytes.resize(8); }, Discard::late_trimmed},
      {"the same of a stranger",
       [](Hostile& it) { it.trimmed = true, it.bytes.resize(8), it.from = IpAddress::v4(0x0A000063); }, Discard::cut_off},
      {"cut, and of another partition", [](Hostile& it) { it.trimmed = true, it.bytes[2] = 0; }, Discard::wrong_p_key},
      {"cut, and of no queue pair", [](Hostile& it) { it.trimmed = true, it.bytes[7] ^= 0xFF; }, Discard::unknown_qp},
      {"cut, and of another host",
       [](Hostile& it) { it.trimmed = true, it.from = IpAddress::v4(0x0A000063); }, Discard::wrong_peer},
  };
}

std::vector<uint8_t> rocev2_write() {
  wire::Packet packet;
  packet.opcode = wire::Opcode::write_only;
  packet.dest_qpn = kReceivingQpn;
  packet.psn = 1'000;
  packet.payload_bytes = packet.dma_bytes = 64;
  std::vector<uint8_t> bytes(wire::datagram_bytes(packet.opcode, packet.payload_bytes));
  wire::encode_headers(packet, bytes);
  return bytes;
}

void rocev2_discards() {
  std::vector<Row> rows = bth_rows(0x1F);
  rows.push_back({"more pad than payload", [](Hostile& it) { it.bytes[1] |= 0x30, it.bytes.resize(32); }, Discard::bad_length});
  rows.push_back({"an opcode of MRC", [](Hostile& it) { it.bytes[0] = 0xCA; }, Discard::unknown_opcode});
  rows.push_back({"a datagram with a key that no probe has",
                  [](Hostile& it) {
                    wire::Packet probe;
                    probe.opcode = wire::Opcode::ud_send_only;
                    probe.dest_qpn = kReceivingQpn;
                    probe.qkey = 0x1234;
                    probe.payload_bytes = 4;
                    it.bytes.assign(wire::datagram_bytes(probe.opcode, probe.payload_bytes), 0);
                    wire::encode_headers(probe, it.bytes);
                  },
                  Discard::unasked});
  for (const Row& row : rows) is_discarded(TransportKind::roce, row, rocev2_write());
}

std::vector<uint8_t> mrc_bytes(const wire::mrc::Packet& packet, size_t payload_bytes) {
  std::vector<uint8_t> bytes(wire::mrc::kMaxHeaderBytes);
  bytes.resize(wire::mrc::encode_headers(packet, bytes));
  bytes.resize(bytes.size() + payload_bytes + wire::mrc::kIcrcBytes);
  return bytes;
}

std::vector<uint8_t> mrc_write() {
  wire::mrc::Write write;
  write.reth.dma_bytes = write.payload_bytes = 64;
  wire::mrc::Packet packet;
  packet.bth.opcode = wire::mrc::Opcode::write_only;
  packet.bth.dest_qpn = kReceivingQpn;
  packet.bth.psn = 1'000;
  packet.body = write;
  return mrc_bytes(packet, 64);
}

void mrc_discards() {
  std::vector<Row> rows = bth_rows(0xD0);
  rows.push_back({"an opcode of RoCEv2", [](Hostile& it) { it.bytes[0] = 0x0A; }, Discard::unknown_opcode});
  rows.push_back({"another length than its header says", [](Hostile& it) { it.bytes.resize(it.bytes.size() - 4); },
                  Discard::bad_length});
  const auto endpoint = [](uint32_t qpn, wire::mrc::EndpointOp op) {
    return [=](Hostile& it) {
      wire::mrc::Packet asked;
      asked.bth.opcode = wire::mrc::Opcode::endpoint_request;
      asked.bth.dest_qpn = qpn;
      wire::mrc::Erth erth;
      erth.op = op;
      asked.body = erth;
      it.bytes = mrc_bytes(asked, 0);
    };
  };
  rows.push_back({"a request of the endpoint, to a queue pair", endpoint(kReceivingQpn, wire::mrc::EndpointOp::entropy_probe),
                  Discard::unasked});
  rows.push_back({"the planes of a card that has one", endpoint(wire::mrc::kEndpointQpn, wire::mrc::EndpointOp::port_status),
                  Discard::unasked});
  rows.push_back({"a request of the endpoint of a stranger",
                  [=](Hostile& it) {
                    endpoint(wire::mrc::kEndpointQpn, wire::mrc::EndpointOp::entropy_probe)(it);
                    it.from = IpAddress::v4(0x0A000063);
                  },
                  Discard::wrong_peer});
  rows.push_back({"a NACK with a reason that is none",
                  [](Hostile& it) {
                    wire::mrc::Packet nack;
                    nack.bth.opcode = wire::mrc::Opcode::nack;
                    nack.bth.dest_qpn = kReceivingQpn;
                    wire::mrc::Neth neth;
                    neth.reason = static_cast<wire::mrc::NackReason>(0x77);
                    nack.body = neth;
                    it.bytes = mrc_bytes(nack, 0);
                  },
                  Discard::unknown_opcode});
  for (const Row& row : rows) is_discarded(TransportKind::mrc, row, mrc_write());
}

std::vector<uint8_t> uet_bytes(const wire::uet::Packet& packet) {
  std::vector<uint8_t> bytes(wire::uet::kMaxHeaderBytes);
  bytes.resize(wire::uet::encode_headers(packet, bytes));
  bytes.resize(bytes.size() + packet.payload_bytes);
  return bytes;
}

wire::uet::Packet first_packet(bool syn, uint32_t qpn) {
  wire::uet::Packet packet;
  wire::uet::Request request;
  request.syn = syn;
  request.psn = 1'000;
  request.spdcid = 7;
  if (!syn) request.dpdcid = 0x3333;
  packet.pds = request;
  wire::uet::StandardRequest message;
  message.start.opcode = wire::uet::Operation::write;
  message.start.som = message.start.eom = true;
  message.memory_key = uint64_t{qpn} << 32;
  message.message_length = 64;
  packet.ses = message;
  packet.payload_bytes = 64;
  return packet;
}

template <typename Header>
std::function<void(Hostile&)> says(const Header& header) {
  return [=](Hostile& it) {
    wire::uet::Packet packet;
    packet.pds = header;
    it.bytes = uet_bytes(packet);
  };
}

void uet_discards() {
  wire::uet::Ack ack;
  ack.dpdcid = 0x3333;
  wire::uet::Nack nack;
  nack.nack_code = wire::uet::NackCode::trimmed;
  nack.dpdcid = 0x3333;
  wire::uet::Control probe;
  probe.control_type = wire::uet::ControlType::probe;
  probe.dpdcid = 0x3333;
  wire::uet::Control credit = probe;
  credit.control_type = wire::uet::ControlType::credit;
  wire::uet::Control early = probe;
  early.syn = true;
  wire::uet::Idempotent idempotent;
  idempotent.next_header = wire::uet::NextHeader::none;
  wire::uet::Unreliable unreliable;
  unreliable.next_header = wire::uet::NextHeader::none;
  wire::uet::Request bare;
  bare.next_header = wire::uet::NextHeader::none;
  bare.syn = true;
  const Row rows[] = {
      {"nothing at all", [](Hostile& it) { it.bytes.clear(); }, Discard::too_short},
      {"fewer bytes than its type's header", [](Hostile& it) { it.bytes.resize(8); }, Discard::too_short},
      {"fewer bytes than the header that follows", [](Hostile& it) { it.bytes.resize(40); }, Discard::too_short},
      {"a type that is none", [](Hostile& it) { it.bytes[0] = 31 << 3; }, Discard::unknown_opcode},
      {"an encrypted packet", [](Hostile& it) { it.bytes[0] = 1 << 3; }, Discard::unknown_opcode},
      {"a following header that is none", [](Hostile& it) { it.bytes[0] |= 0x07; }, Discard::unknown_opcode},
      {"reserved bits of a request", [](Hostile& it) { it.bytes[1] |= 0x60; }, Discard::reserved_bits},
      {"a version of semantics that is none", [](Hostile& it) { it.bytes[13] |= 0x40; }, Discard::bad_version},
      {"a short header of a message that goes on",
       [](Hostile& it) {
         wire::uet::Packet packet = first_packet(true, kReceivingQpn);
         std::get<wire::uet::Request>(packet.pds).next_header = wire::uet::NextHeader::small;
         wire::uet::SmallRequest small;
         small.start.som = true;
         packet.ses = small;
         it.bytes = uet_bytes(packet);
       },
       Discard::bad_length},
      {"a SYN for a queue pair that is not here",
       [](Hostile& it) { it.bytes = uet_bytes(first_packet(true, kUnknownQpn)); }, Discard::unknown_qp},
      {"a SYN of another host", [](Hostile& it) { it.from = IpAddress::v4(0x0A000063); }, Discard::wrong_peer},
      {"a packet of no context", [](Hostile& it) { it.bytes = uet_bytes(first_packet(false, kReceivingQpn)); },
       Discard::unknown_qp},
      {"a request without a message", says(bare), Discard::unasked},
      {"an ACK of no context", says(ack), Discard::unknown_qp},
      {"a NACK of no context", says(nack), Discard::unknown_qp},
      {"a probe of no context", says(probe), Discard::unknown_qp},
      {"a probe before its context", says(early), Discard::unknown_qp},
      {"credit of no context", says(credit), Discard::unknown_qp},
      {"idempotent delivery", says(idempotent), Discard::unasked},
      {"unreliable delivery", says(unreliable), Discard::unasked},
      {"cut before it says whose it is", [](Hostile& it) { it.trimmed = true, it.bytes.resize(6); }, Discard::late_trimmed},
      {"the same of a stranger",
       [](Hostile& it) { it.trimmed = true, it.bytes.resize(6), it.from = IpAddress::v4(0x0A000063); }, Discard::cut_off},
      {"an answer that was cut",
       [=](Hostile& it) {
         wire::uet::Ack told = ack;
         told.type = wire::uet::PdsType::ack_cc;
         told.state = wire::uet::AckState{};
         says(told)(it);
         it.bytes.resize(16);
         it.trimmed = true;
       },
       Discard::late_trimmed},
      {"cut, and of no context",
       [](Hostile& it) {
         it.bytes = uet_bytes(first_packet(false, kReceivingQpn));
         it.bytes.resize(16);
         it.trimmed = true;
       },
       Discard::unknown_qp},
  };
  for (const Row& row : rows) is_discarded(TransportKind::uet, row, uet_bytes(first_packet(true, kReceivingQpn)));
}

int64_t counted_by(const Core& core) {
  int64_t sum = 0;
  for (const FlowRecord& flow : core.flows()) {
#define ETLOOP_FIELD(name) sum += flow.name;
    ETLOOP_QUEUE_PAIR_COUNTERS(ETLOOP_FIELD)
#undef ETLOOP_FIELD
  }
  return sum;
}

// Probes and control packets of a queue pair are the only ones that are taken and not counted.
bool is_probe(TransportKind kind, std::span<const uint8_t> bytes) {
  if (bytes.empty() || kind == TransportKind::roce) return false;
  if (kind == TransportKind::mrc) return static_cast<wire::mrc::Opcode>(bytes[0]) == wire::mrc::Opcode::probe;
  return static_cast<wire::uet::PdsType>(bytes[0] >> 3) == wire::uet::PdsType::control;
}

// Packets with changed bytes, one after the other, at another core once one has ended its run: each is discarded for one reason,
// and then no queue pair counts it; or it is taken, and then one does. So what was discarded is the sum of the reasons.
void all_are_accounted_for(TransportKind kind, const std::vector<uint8_t>& good, uint64_t seed) {
  const int before = test::failures();
  const EnginePlan plan = plan_of(kind);
  std::unique_ptr<Core> made = core_of(plan);
  uint64_t state = seed;
  const auto draw = [&state](uint64_t bound) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % bound;
  };
  int64_t discards = 0;
  for (int i = 0; i < 3'000 && test::failures() == before; ++i) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t times = draw(4); times > 0; --times) bytes[draw(bytes.size())] = static_cast<uint8_t>(draw(256));
    if (draw(8) == 0) bytes.resize(draw(bytes.size()));
    Datagram datagram;
    datagram.bytes = bytes;
    datagram.datagram_bytes = static_cast<uint32_t>(bytes.size());
    datagram.src_ip = IpAddress::v4(draw(16) == 0 ? 0x0A000063 : 0x0A000002);
    datagram.trimmed = draw(16) == 0;
    if (!made->failure().empty()) made = core_of(plan);
    Core& core = *made;
    const int64_t counted = counted_by(core);
    const ArrivalCounts was = core.arrivals();
    core.on_datagram(datagram, 1'000);
    const ArrivalCounts now = core.arrivals();
    const int64_t discarded = now.discards.total() - was.discards.total();
    discards += discarded;
    CHECK(discarded == 0 || discarded == 1);
    PortRecord record{};
    now.discards.add_to(record);
    const int64_t* reasons = discard_fields(record);
    CHECK_EQ(std::accumulate(reasons, reasons + kForeignReasons, int64_t{0}), record.foreign_datagrams);
    CHECK_EQ(std::accumulate(reasons, reasons + kDiscardReasons, int64_t{0}), was.discards.total() + discarded);
    if (discarded == 1) CHECK_EQ(counted_by(core), counted);
    if (discarded == 0 && !is_probe(kind, bytes)) CHECK(counted_by(core) + now.trimmed > counted + was.trimmed);
  }
  CHECK(discards > 500);
  if (test::failures() > before) std::cerr << "transport " << static_cast<int>(kind) << ", seed " << seed << '\n';
}

}  // namespace

int main() {
  rocev2_discards();
  mrc_discards();
  uet_discards();
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    all_are_accounted_for(TransportKind::roce, rocev2_write(), seed);
    all_are_accounted_for(TransportKind::mrc, mrc_write(), seed);
    all_are_accounted_for(TransportKind::uet, uet_bytes(first_packet(true, kReceivingQpn)), seed);
  }
  return test::failures();
}
