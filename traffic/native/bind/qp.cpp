// Python's view of one queue pair, for tests against independent implementations. The caller carries the datagrams and supplies
// the time.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/columns.h"
#include "qp/qp.h"
#include "wire/frame_builder.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace etloop {
namespace {

constexpr std::array<std::pair<const char*, WorkKind>, 8> kKinds{{
    {"write", WorkKind::write},
    {"write_imm", WorkKind::write_imm},
    {"send", WorkKind::send},
    {"send_imm", WorkKind::send_imm},
    {"read", WorkKind::read},
    {"fetch_add", WorkKind::fetch_add},
    {"compare_swap", WorkKind::compare_swap},
    {"data", WorkKind::data},
}};

nb::bytes bytes_from(const std::vector<uint8_t>& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

// (address of the message, bytes, immediate or None, whether it is a SEND)
using Message = std::tuple<uint64_t, uint32_t, std::optional<uint32_t>, bool>;
// (mark, flushed, bytes that a READ returned, value before an atomic)
using Completion = std::tuple<uint32_t, bool, nb::bytes, uint64_t>;

class BoundQp {
 public:
  BoundQp(uint32_t local_qpn, uint32_t remote_qpn, const TransportSettings& params, uint64_t memory_va, uint32_t memory_rkey,
          size_t memory_bytes)
      : memory_(memory_va, memory_rkey, memory_bytes),
        qp_(local_qpn, remote_qpn, 0, params, QpResources{(local_qpn << 8) | 1, &memory_, &receives_}) {
    qp_.set_window(params.window_packets == 0 ? 64 : params.window_packets);
  }

  uint32_t post(const std::string& kind, uint64_t va, uint32_t rkey, const nb::bytes& content, uint32_t read_bytes,
                uint32_t imm) {
    WorkRequest request;
    request.kind = kind_of(kind);
    request.va = va;
    request.rkey = rkey;
    request.imm = imm;
    request.lane = next_mark_++;
    request.bytes = static_cast<uint32_t>(content.size());
    const auto* begin = static_cast<const uint8_t*>(content.data());
    buffers_.emplace_back(begin, begin + content.size());
    if (request.kind == WorkKind::read) {
      request.bytes = read_bytes;
      buffers_.back().resize(read_bytes);
      request.into = buffers_.back().data();
    } else if (content.size() > 0) {
      request.source = buffers_.back().data();
    }
    qp_.post(request);
    return request.lane;
  }

  uint32_t post_atomic(const std::string& kind, uint64_t va, uint32_t rkey, uint64_t swap_add, uint64_t compare) {
    WorkRequest request;
    request.kind = kind_of(kind);
    request.va = va;
    request.rkey = rkey;
    request.swap_add = swap_add;
    request.compare = compare;
    request.lane = next_mark_++;
    buffers_.emplace_back();
    qp_.post(request);
    return request.lane;
  }

  void post_receive(uint32_t bytes) { receives_.post({0, bytes, nullptr}); }

  std::vector<nb::bytes> datagrams(const wire::IpFlow& flow, Nanos now) {
    std::vector<nb::bytes> out;
    while (qp_.answer_due()) {
      const PacketRun run = qp_.answer();
      out.push_back(encode(flow, run.head));
      qp_.answer_sent(run);
    }
    while (qp_.has_run()) {
      const PacketRun run = qp_.next_run(1);
      out.push_back(encode(flow, run.head));
      qp_.run_sent(run, now);
    }
    return out;
  }

  void on_datagram(const nb::bytes& datagram, Nanos now) {
    wire::Packet packet;
    const std::span bytes(static_cast<const uint8_t*>(datagram.data()), datagram.size());
    if (wire::decode(bytes, bytes.size(), packet) != wire::Malformed::none || packet.dest_qpn != qp_.local_qpn()) return;
    switch (wire::shape(packet.opcode).role) {
      case wire::Role::write:
      case wire::Role::send:
      case wire::Role::read:
      case wire::Role::atomic: {
        Delivered delivered;
        for (bool whole = qp_.on_request(packet, delivered); whole; whole = qp_.next_delivered(delivered)) {
          messages_.emplace_back(delivered.va, delivered.bytes,
                                 delivered.has_imm ? std::optional(delivered.imm) : std::nullopt, delivered.is_send);
        }
        return;
      }
      case wire::Role::response:
      case wire::Role::acknowledgement: qp_.on_answer(packet, now); return;
      case wire::Role::notification:
      case wire::Role::datagram:
      case wire::Role::unknown: return;
    }
  }

  std::vector<Message> messages() { return std::exchange(messages_, {}); }

  std::vector<Completion> completions() {
    std::vector<Completion> out;
    WorkRequest done;
    while (qp_.pop_completed(done)) {
      const bool read = done.kind == WorkKind::read && !done.flushed;
      out.emplace_back(done.lane, done.flushed, bytes_from(read ? buffers_[done.lane] : std::vector<uint8_t>{}),
                       done.original);
    }
    return out;
  }

  nb::bytes memory(size_t offset, size_t bytes) { return bytes_from(copy_of(slice(offset, bytes))); }
  void set_memory(size_t offset, const nb::bytes& content) {
    const auto* begin = static_cast<const uint8_t*>(content.data());
    std::copy(begin, begin + content.size(), slice(offset, content.size()).begin());
  }
  std::optional<Nanos> deadline() const { return qp_.deadline() == kNever ? std::nullopt : std::optional(qp_.deadline()); }
  void on_timer(Nanos now) { qp_.on_timer(now); }
  std::string fault() const { return qp_.fault() == QpFault::none ? "" : describe(qp_.fault()); }
  nb::bytes counters() const { return nb::bytes(&qp_.counters, sizeof qp_.counters); }
  uint32_t pattern_rkey() const { return (qp_.local_qpn() << 8) | 1; }

 private:
  static WorkKind kind_of(const std::string& name) {
    for (const auto& [known, kind] : kKinds) {
      if (name == known) return kind;
    }
    throw nb::value_error("no such kind of request");
  }
  static nb::bytes encode(const wire::IpFlow& flow, const wire::Packet& packet) {
    std::vector<uint8_t> out(wire::datagram_bytes(packet.opcode, packet.payload_bytes) + wire::kMaxHeaderBytes);
    out.resize(build_datagram(flow, 0, packet, out));
    return bytes_from(out);
  }
  std::span<uint8_t> slice(size_t offset, size_t bytes) {
    if (offset > memory_.bytes().size() || bytes > memory_.bytes().size() - offset) throw nb::value_error("outside the memory");
    return memory_.bytes().subspan(offset, bytes);
  }
  static std::vector<uint8_t> copy_of(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

  MemoryRegion memory_;
  ReceiveQueue receives_;
  Qp qp_;
  std::deque<std::vector<uint8_t>> buffers_;  // by mark
  std::vector<Message> messages_;
  uint32_t next_mark_ = 0;
};

}  // namespace

void bind_qp(nb::module_& module) {
  nb::class_<BoundQp>(module, "QueuePair")
      .def("__init__",
           [](BoundQp* place, uint32_t local_qpn, uint32_t remote_qpn, nb::handle settings, uint64_t memory_va,
              uint32_t memory_rkey, size_t memory_bytes) {
             new (place) BoundQp(local_qpn, remote_qpn, read_settings<TransportSettings>(settings), memory_va, memory_rkey,
                                 memory_bytes);
           },
           "local_qpn"_a, "remote_qpn"_a, "settings"_a, "memory_va"_a = 0x7F00'0000'0000, "memory_rkey"_a = 0x77,
           "memory_bytes"_a = 1 << 20)
      .def("post", &BoundQp::post, "kind"_a, "va"_a = 0, "rkey"_a = 0, "content"_a = nb::bytes("", 0), "read_bytes"_a = 0,
           "imm"_a = 0)
      .def("post_atomic", &BoundQp::post_atomic, "kind"_a, "va"_a, "rkey"_a, "swap_add"_a, "compare"_a = 0)
      .def("post_receive", &BoundQp::post_receive, "room_bytes"_a)
      .def("datagrams", &BoundQp::datagrams, "flow"_a, "now_ns"_a)
      .def("on_datagram", &BoundQp::on_datagram, "datagram"_a, "now_ns"_a)
      .def("messages", &BoundQp::messages)
      .def("completions", &BoundQp::completions)
      .def("memory", &BoundQp::memory, "offset"_a, "count"_a)
      .def("set_memory", &BoundQp::set_memory, "offset"_a, "content"_a)
      .def("deadline", &BoundQp::deadline)
      .def("on_timer", &BoundQp::on_timer, "now_ns"_a)
      .def("counters", &BoundQp::counters)
      .def_prop_ro("fault", &BoundQp::fault)
      .def_prop_ro("pattern_rkey", &BoundQp::pattern_rkey);
}

}  // namespace etloop
