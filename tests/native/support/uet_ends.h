// Two ends of a queue pair over UET in one test, and what they say to each other.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "support/check.h"
#include "uet/endpoint.h"

namespace etloop::test::uet_ends {

using namespace etloop::wire::uet;
using uet::Endpoint;
using uet::Outgoing;
using uet::PdcIds;

constexpr uint32_t kRkey = 0x1234;
constexpr uint32_t kMtu = 1024;
constexpr uint32_t kFirst = 0xFFFFFE;  // sequence numbers wrap soon
constexpr Nanos kRest = 50'000;

inline TransportSettings params() {
  TransportSettings made;
  made.kind = TransportKind::uet;
  made.multipath.uet.close_after_ns = kRest;
  made.multipath.entropy_values = 16;
  made.path_mtu_bytes = kMtu;
  made.timeout_ns = 1'000'000;
  made.recovery.timeout_floor_ns = 100'000;
  made.recovery.initial_psn = kFirst;
  made.recovery.trimming.answer = TrimAnswer::nak;
  return made;
}

struct End {
  End(uint32_t local, uint32_t remote, const TransportSettings& made)
      : counters{counted(local)},
        paths(made.multipath, 50'000),
        end(remote, paths, kRkey, made, counters, *std::pmr::new_delete_resource()) {
    end.attach(ids, 0);
  }
  static FlowRecord counted(uint32_t local) {
    FlowRecord record{};
    record.local_qpn = local;
    return record;
  }
  PdcIds ids{8};
  FlowRecord counters;
  multipath::PathStates paths;
  Endpoint end;
};

inline WorkRequest message(uint32_t bytes, uint32_t imm = 7) {
  WorkRequest request;
  request.kind = WorkKind::write_imm;
  request.bytes = bytes;
  request.imm = imm;
  request.va = 0x10000;
  request.rkey = kRkey;
  return request;
}

// Two ends, and what one says to the other.
struct Pair {
  explicit Pair(const TransportSettings& made = params()) : a(5, 6, made), b(6, 5, made) {}
  End a;
  End b;
  std::vector<uint32_t> delivered;  // at b, by immediate

  std::vector<Outgoing> send_all(Nanos now) {
    std::vector<Outgoing> sent;
    while (a.end.has_run()) {
      sent.push_back(a.end.next());
      a.end.sent(sent.back(), now);
    }
    return sent;
  }
  void arrive(const Outgoing& packet) {
    if (const auto* request = std::get_if<Request>(&packet.packet.pds)) {
      b.end.responder.on_request(*request, std::get<StandardRequest>(packet.packet.ses), packet.packet.payload_bytes, nullptr,
                                 {packet.entropy, false});
    } else {
      b.end.responder.on_control(std::get<Control>(packet.packet.pds), {packet.entropy, false});
    }
    Delivered one;
    while (b.end.next_delivered(one)) delivered.push_back(one.imm);
  }
  std::vector<Packet> answers() {
    std::vector<Packet> out;
    while (b.end.answer_due()) {
      out.push_back(b.end.answer().packet);
      b.end.answer_sent();
    }
    return out;
  }
  void answer(const Packet& packet, Nanos now) {
    if (const auto* ack = std::get_if<Ack>(&packet.pds)) {
      a.end.requester.on_ack(*ack, std::get_if<Response>(&packet.ses), now);
    } else {
      a.end.requester.on_nack(std::get<Nack>(packet.pds), now);
    }
  }
  // Sends a message and brings it over.
  void exchange(uint32_t bytes, Nanos now) {
    a.end.post(message(bytes));
    for (const Outgoing& packet : send_all(now)) arrive(packet);
    for (const Packet& packet : answers()) answer(packet, now + 1000);
  }
  // From now on the peer is silent, until the sender gives up.
  QpFault silence() {
    for (int round = 0; round < 400 && a.end.fault() == QpFault::none; ++round) {
      const Nanos due = a.end.deadline();
      if (due == kNever) break;
      a.end.on_timer(due);
      send_all(due);
      if (a.end.probe_due(due)) a.end.probe_sent(a.end.probe(), due);
    }
    return a.end.fault();
  }
  // Closes the context of a.
  Outgoing close(Nanos now) {
    a.end.on_timer(now);
    CHECK(a.end.probe_due(now));
    const Outgoing command = a.end.probe();
    a.end.probe_sent(command, now);
    return command;
  }
};

inline const Request& request_of(const Outgoing& packet) { return std::get<Request>(packet.packet.pds); }

}  // namespace etloop::test::uet_ends
