#include "virtual/sim.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/crc32.h"
#include "base/line_clock.h"
#include "plan/queue_deal.h"
#include "virtual/egress_queue.h"
#include "virtual/receiver_link.h"

namespace etloop {

namespace {

// SplitMix64 (Steele, Lea, Flood 2014): small, well mixed and portable.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  bool one_in_million(uint32_t per_million) { return per_million != 0 && next() % 1'000'000 < per_million; }

 private:
  uint64_t state_;
};

// A packet in flight: headers and inline payload as bytes; pattern payload only as a length.
struct Frame {
  wire::IpFlow flow;
  std::array<uint8_t, kMostStoredBytes> bytes{};  // ports send no other content
  uint32_t stored = 0;
  uint32_t datagram_bytes = 0;
  uint32_t icrc = 0;
  uint8_t traffic_class = 0;
  bool inline_payload = false;
  bool built = false;  // of another transport: `icrc` covers the stored bytes and the length
  bool answer = false;  // an acknowledgement or a grant, not data of the job
  uint64_t queue_pair = 0;  // key for the turns on a fair link
  bool has_hop = false;
  etloop_cc_hop hop{};  // data packet: its egress queue; acknowledgement: the echoed one
};

struct Pending {
  Nanos due_ns;
  uint64_t order;
  int32_t port;
  int32_t frame;  // -1: wake-up only
  int64_t link_bytes = 0;  // above 0: must still pass the receiver's link, with so many bytes
  bool at_switch = false;
  bool held_link = false;  // it has passed a fair link, which is free now
};

class Network;

class SimPort final : public TxPort {
 public:
  SimPort(Network& network, int32_t port) : network_(network), port_(port) {}
  FlowId add_flow(const IpAddress& src_ip, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
    flows_.push_back({src_ip, dst_ip, src_port, wire::kRoceUdpPort});
    classes_.push_back(traffic_class);
    return static_cast<FlowId>(flows_.size() - 1);
  }
  TxResult send(const PacketRun& run) override;
  TxResult send_built(const BuiltPacket& built) override;
  std::string last_error() const override { return {}; }
  uint32_t max_run(uint32_t) const override { return 16; }

 private:
  Network& network_;
  int32_t port_;
  std::vector<wire::IpFlow> flows_;
  std::vector<uint8_t> classes_;  // by flow
};

class Network final : public VirtualPorts {
 public:
  Network(const EnginePlan& plan, const SimParams& params)
      : plan_(plan), params_(params), random_(params.seed), cores_(plan, clock_, *this, outcome_) {
    sender_links_.resize(plan.ports.size());
    receiver_links_.resize(plan.ports.size());
    for (const PlannedPort& port : plan.ports) fair_links_.emplace_back(port.link_bps);
    wake_ns_.assign(plan.ports.size(), kNever);
    const auto has_segments = [](const PlannedPort& port) { return !port.segments.empty(); };
    if (std::any_of(plan.ports.begin(), plan.ports.end(), has_segments)) outer_bytes_ = usid::kOuterHeaderBytes;
    if (params.queue_capacity_bytes > 0) make_switch();
    for (size_t p = 0; p < plan.ports.size(); ++p) {
      if (plan.ports[p].queue > 0) continue;  // represented by the port's first queue
      for (size_t a = 0; a < plan.ports[p].addresses.size(); ++a) {
        place_of_[plan.ports[p].addresses[a]] = {static_cast<int32_t>(p), static_cast<uint16_t>(a)};
      }
    }
  }

  SimOutcome run() {
    for (size_t p = 0; p < plan_.ports.size(); ++p) ports_.push_back(std::make_unique<SimPort>(*this, static_cast<int32_t>(p)));
    if (!cores_.make(params_.receive_buffer_bytes)) return std::move(outcome_);
    if (params_.probe_first) probe();
    if (outcome_.failure.empty()) replay();
    cores_.collect();
    for (const EgressQueue& queue : queues_) {
      outcome_.marked += queue.counters().marked;
      outcome_.queue_dropped += queue.counters().dropped;
    }
    return std::move(outcome_);
  }

  Nanos queue_delay_ns() override {
    if (params_.queue_delay_ns == 0) return 0;
    return static_cast<Nanos>(random_.next() % static_cast<uint64_t>(params_.queue_delay_ns + 1));
  }
  Nanos answer_patience_ns() const override { return params_.answer_patience_ns; }
  // Whether the port accepts more now; otherwise its core is woken when it does.
  bool takes_more(int32_t port) {
    const Nanos free_ns = sender_links_[link_of(port)].free_ns() - params_.transmit_queue_ns;
    if (params_.transmit_queue_ns == 0 || free_ns <= clock_.now_ns) return true;
    wake(port, free_ns);
    return false;
  }
  TxPort& port(int32_t index) override { return *ports_[static_cast<size_t>(index)]; }
  Result<FlowId> add_flow(int32_t index, uint16_t address, const IpAddress& dst_ip, uint16_t src_port,
                          uint8_t traffic_class) override {
    const IpAddress src_ip = plan_.ports[static_cast<size_t>(index)].addresses[address];
    return ports_[static_cast<size_t>(index)]->add_flow(src_ip, dst_ip, src_port, traffic_class);
  }
  void wake(int32_t port, Nanos due_ns) override {
    Nanos& scheduled = wake_ns_[static_cast<size_t>(port)];
    if (due_ns == kNever || due_ns >= scheduled) return;
    scheduled = due_ns;
    push({due_ns, order_++, port, -1, 0});
  }
  bool dead(int32_t port) const override { return port == params_.dying_port && clock_.now_ns >= params_.dies_at_ns; }
  void transmit(int32_t port, const wire::IpFlow& flow, const wire::Packet& packet, uint8_t traffic_class,
                bool corrupt_icrc);
  void transmit_built(int32_t port, const wire::IpFlow& flow, const BuiltPacket& built, uint8_t traffic_class);

 private:
  struct Place {
    int32_t port;
    uint16_t address;
  };

  using End = std::pair<IpAddress, uint32_t>;  // address and queue pair number

  // Queues that share addresses share their port's link, identified by the first queue.
  size_t link_of(int32_t port) const {
    const PlannedPort& planned = plan_.ports[static_cast<size_t>(port)];
    return static_cast<size_t>(port) - static_cast<size_t>(std::max(planned.queue, 0));
  }
  // Return the queue that a packet arrives at.
  int32_t steered(int32_t port, uint32_t dest_qpn) {
    const PlannedPort& planned = plan_.ports[static_cast<size_t>(port)];
    if (!is_dealt(planned)) return port;
    if (!random_.one_in_million(params_.misdirect_per_million)) return carrier_of(plan_, port, dest_qpn);
    return port + static_cast<int32_t>(random_.next() % planned.queues);
  }

  void make_switch() {
    for (const PlannedPort& port : plan_.ports) {
      queues_.emplace_back(EgressParams{port.link_bps, params_.queue_capacity_bytes, params_.mark_from_bytes,
                                        params_.mark_all_bytes, params_.mark_per_million});
    }
    if (!params_.telemetry) return;
    for (const PlannedConnection& c : plan_.connections) {
      for (int32_t q = c.first_qp; q < c.first_qp + c.qp_count; ++q) {
        const PlannedQp& qp = plan_.qps[static_cast<size_t>(q)];
        data_end_[{c.src_ip, qp.src_qpn}] = {c.dst_ip, qp.dst_qpn};
      }
    }
  }

  // A frame has reached the switch: enqueue it at its egress port, or drop it.
  void pass_switch(const Pending& pending) {
    Frame& frame = frames_[static_cast<size_t>(pending.frame)];
    EgressQueue& queue = queues_[link_of(pending.port)];
    const auto draw = static_cast<uint32_t>(random_.next() % 1'000'000);
    const auto verdict = queue.arrive(frame_bytes(frame), clock_.now_ns, draw);
    if (!verdict.admitted) {
      free_frames_.push_back(pending.frame);
      return;
    }
    constexpr uint8_t kEcnMask = 0x03;
    if (verdict.mark && (frame.traffic_class & kEcnMask) != 0) frame.traffic_class |= kEcnMask;
    if (params_.telemetry && !frame.has_hop) {
      frame.has_hop = true;
      frame.hop = verdict.hop;
    }
    push({verdict.departs_ns + params_.latency_ns - params_.latency_ns / 2, order_++, pending.port, pending.frame});
  }

  // Emulate a receiving NIC: keep the telemetry of data, and echo it in the next acknowledgement.
  std::span<const etloop_cc_hop> echo_telemetry(const Frame& frame, const wire::Packet& packet) {
    if (!params_.telemetry || !frame.has_hop) return {};
    if (packet.opcode == wire::Opcode::acknowledge) return {&frame.hop, 1};
    seen_hops_[{frame.flow.dst_ip, packet.dest_qpn}] = frame.hop;
    return {};
  }
  void attach_telemetry(Frame& frame, const wire::Packet& packet) {
    if (!params_.telemetry || packet.opcode != wire::Opcode::acknowledge) return;
    const auto end = data_end_.find({frame.flow.dst_ip, packet.dest_qpn});
    if (end == data_end_.end()) return;
    const auto seen = seen_hops_.find(end->second);
    frame.has_hop = seen != seen_hops_.end();
    if (frame.has_hop) frame.hop = seen->second;
  }

  void sample_queue() {
    if (params_.sampled_port < 0 || params_.sample_interval_ns <= 0 || queues_.empty()) return;
    EgressQueue& queue = queues_[link_of(params_.sampled_port)];
    for (; next_sample_ns_ <= clock_.now_ns; next_sample_ns_ += params_.sample_interval_ns) {
      const auto& counters = queue.counters();
      outcome_.queue.push_back({next_sample_ns_, queue.queued_bytes(next_sample_ns_), counters.bytes, counters.marked,
                                counters.dropped});
    }
  }

  // Bytes on the link: Ethernet with FCS, preamble and gap; IP; UDP.
  int64_t frame_bytes(const Frame& frame) const {
    return frame.datagram_bytes + (frame.flow.dst_ip.is_v4() ? kLinkBytesIpv4 : kLinkBytesIpv6) + outer_bytes_;
  }

  void probe() {
    cores_.start_probe();
    drive([&] { return cores_.probed(); });
  }

  void replay() {
    cores_.start();
    const bool over = drive([&] { return cores_.finished(); });
    if (!over && outcome_.failure.empty()) {
      outcome_.failure = clock_.now_ns >= params_.limit_ns ? "the time limit was reached"
                                                           : "no event is left: the job waits for itself";
    }
  }

  // A packet's first bit arrives at the receiver's link.
  void reach_link(const Pending& arriving) {
    const size_t port = link_of(arriving.port);
    if (!params_.fair_links) {
      const Nanos passed_ns = receiver_links_[port].take(arriving.link_bytes, plan_.ports[port].link_bps, arriving.due_ns);
      push({passed_ns, arriving.order, arriving.port, arriving.frame});
      return;
    }
    const Frame& frame = frames_[static_cast<size_t>(arriving.frame)];
    FairLink& link = fair_links_[port];
    if (frame.answer) {
      push({link.pass(arriving.link_bytes, clock_.now_ns), arriving.order, arriving.port, arriving.frame});
      return;
    }
    const LinkItem item{arriving.frame, arriving.link_bytes, arriving.order};
    if (const auto passed_ns = link.arrive(item, frame.queue_pair, clock_.now_ns)) {
      push({*passed_ns, arriving.order, arriving.port, arriving.frame, 0, false, true});
    }
  }
  void leave_link(int32_t port) {
    const auto next = fair_links_[link_of(port)].next(clock_.now_ns);
    if (next) push({next->second, next->first.order, port, next->first.frame, 0, false, true});
  }

  // Process events until `over`, a failure, the limit, or no event is left.
  template <typename Over>
  bool drive(Over over) {
    while (!over()) {
      if (pending_.empty()) return false;
      std::pop_heap(pending_.begin(), pending_.end(), later);
      const Pending next = pending_.back();
      pending_.pop_back();
      if (next.due_ns > params_.limit_ns) {
        clock_.now_ns = params_.limit_ns;
        return false;
      }
      clock_.now_ns = std::max(clock_.now_ns, next.due_ns);
      if (next.link_bytes > 0) {
        reach_link(next);
        continue;
      }
      if (next.held_link) leave_link(next.port);
      sample_queue();
      if (next.at_switch) {
        pass_switch(next);
        continue;
      }
      if (next.frame >= 0) {
        deliver(next.port, next.frame);
      } else {
        if (wake_ns_[static_cast<size_t>(next.port)] == next.due_ns) wake_ns_[static_cast<size_t>(next.port)] = kNever;
      }
      cores_.turn(next.port);
      if (!outcome_.failure.empty()) return false;
    }
    return true;
  }

  void deliver(int32_t port, int32_t frame_index) {
    const Frame frame = frames_[static_cast<size_t>(frame_index)];
    free_frames_.push_back(frame_index);
    if (dead(port)) return;
    const std::span<const uint8_t> bytes(frame.bytes.data(), frame.stored);
    if (frame.built) {
      deliver_built(port, frame);
      return;
    }
    wire::Packet packet;
    if (wire::decode(bytes, frame.datagram_bytes, packet) == wire::Malformed::none) {
      if (!frame.inline_payload) packet.payload = nullptr;  // pattern
      if (wire::icrc(frame.flow, 0, packet) != frame.icrc) {
        ++outcome_.bad_icrc;
        return;
      }
    } else {
      ++outcome_.bad_icrc;
      return;
    }
    const Place place = place_of_.at(frame.flow.dst_ip);
    Datagram datagram{bytes, frame.datagram_bytes, frame.flow.src_ip, frame.flow.src_port, place.address, frame.traffic_class,
                      false, echo_telemetry(frame, packet)};
    cores_.on_datagram(port, datagram);
  }

  static uint32_t check_of(const Frame& frame) {
    const auto state = crc32::update(crc32::kInitial, std::span(frame.bytes).first(frame.stored));
    return crc32::shift(state, frame.datagram_bytes);
  }
  void deliver_built(int32_t port, const Frame& frame) {
    if (check_of(frame) != frame.icrc) {
      ++outcome_.bad_icrc;
      return;
    }
    const std::span<const uint8_t> bytes(frame.bytes.data(), frame.stored);
    const Place place = place_of_.at(frame.flow.dst_ip);
    cores_.on_datagram(port, Datagram{bytes, frame.datagram_bytes, frame.flow.src_ip, frame.flow.src_port, place.address,
                                      frame.traffic_class, false, {}});
  }

  // Send a frame on the port's link, with the random faults of its path.
  void carry(int32_t port, Frame& frame, uint32_t dest_qpn);

  void push(const Pending& pending) {
    pending_.push_back(pending);
    std::push_heap(pending_.begin(), pending_.end(), later);
  }
  static bool later(const Pending& a, const Pending& b) {
    return a.due_ns != b.due_ns ? a.due_ns > b.due_ns : a.order > b.order;
  }

  int32_t store(const Frame& frame) {
    if (free_frames_.empty()) {
      frames_.push_back(frame);
      return static_cast<int32_t>(frames_.size() - 1);
    }
    const int32_t index = free_frames_.back();
    free_frames_.pop_back();
    frames_[static_cast<size_t>(index)] = frame;
    return index;
  }

  const EnginePlan& plan_;
  int64_t outer_bytes_ = 0;  // per packet, if micro segments are used
  const SimParams& params_;
  Random random_;
  VirtualClock clock_;
  SimOutcome outcome_;
  CoreSet cores_;
  std::map<IpAddress, Place> place_of_;
  std::vector<std::unique_ptr<SimPort>> ports_;
  std::vector<LineClock> sender_links_;
  std::vector<LineClock> receiver_links_;
  std::vector<FairLink> fair_links_;
  std::vector<Nanos> wake_ns_;
  std::vector<Frame> frames_;
  std::vector<int32_t> free_frames_;
  std::vector<EgressQueue> queues_;          // by port; empty without a switch
  std::map<End, End> data_end_;              // sending end -> receiving end
  std::map<End, etloop_cc_hop> seen_hops_;   // by receiving end
  Nanos next_sample_ns_ = 0;
  std::vector<Pending> pending_;
  uint64_t order_ = 0;
};

TxResult SimPort::send(const PacketRun& run) {
  if (!network_.takes_more(port_)) return TxResult::would_block;
  wire::Packet packet = run.head;
  const uint8_t traffic_class =
      run.traffic_class == kFlowClass ? classes_[run.flow] : static_cast<uint8_t>(run.traffic_class);
  for (uint32_t i = 0; i < run.count; ++i) {
    packet.psn = (run.head.psn + i) & wire::kPsnMask;
    if (run.count > 1) {
      packet.ack_req = run.ack_every != 0 && (packet.psn + 1) % run.ack_every == 0;
    }
    network_.transmit(port_, flows_[run.flow], packet, traffic_class, run.corrupt_icrc);
  }
  return TxResult::sent;
}

void Network::transmit(int32_t port, const wire::IpFlow& flow, const wire::Packet& packet, uint8_t traffic_class,
                       bool corrupt_icrc) {
  if (dead(port)) return;
  ++outcome_.packets;
  Frame frame;
  frame.flow = flow;
  frame.stored = static_cast<uint32_t>(wire::encode_headers(packet, frame.bytes));
  frame.datagram_bytes = static_cast<uint32_t>(wire::datagram_bytes(packet.opcode, packet.payload_bytes));
  frame.icrc = wire::icrc(flow, 0, packet) ^ (corrupt_icrc ? 1U : 0U);
  frame.traffic_class = traffic_class;
  if (packet.payload != nullptr) {
    std::memcpy(frame.bytes.data() + frame.stored, packet.payload, packet.payload_bytes);
    frame.stored += packet.payload_bytes;
    frame.inline_payload = true;
  }
  frame.answer = frame.inline_payload || packet.opcode == wire::Opcode::acknowledge;
  attach_telemetry(frame, packet);
  carry(port, frame, packet.dest_qpn);
}

TxResult SimPort::send_built(const BuiltPacket& built) {
  if (!network_.takes_more(port_)) return TxResult::would_block;
  const int16_t traffic_class = built.marks.traffic_class;
  wire::IpFlow flow = flows_[built.flow];
  flow.src_port = built.src_port;
  network_.transmit_built(port_, flow, built,
                          traffic_class == kFlowClass ? classes_[built.flow] : static_cast<uint8_t>(traffic_class));
  return TxResult::sent;
}

void Network::transmit_built(int32_t port, const wire::IpFlow& flow, const BuiltPacket& built, uint8_t traffic_class) {
  if (dead(port)) return;
  ++outcome_.packets;
  Frame frame;
  frame.flow = flow;
  frame.built = true;
  frame.stored = static_cast<uint32_t>(built.headers.size());
  std::memcpy(frame.bytes.data(), built.headers.data(), built.headers.size());
  if (built.payload != nullptr) {
    std::memcpy(frame.bytes.data() + frame.stored, built.payload, built.payload_bytes);
    frame.stored += built.payload_bytes;
  }
  frame.datagram_bytes = static_cast<uint32_t>(built.datagram_bytes());
  frame.icrc = check_of(frame) ^ (built.corrupt_icrc ? 1U : 0U);
  frame.traffic_class = traffic_class;
  frame.answer = built.answers || built.payload != nullptr;
  carry(port, frame, built.dest_qpn);
}

void Network::carry(int32_t port, Frame& frame, uint32_t dest_qpn) {
  const wire::IpFlow& flow = frame.flow;
  const int64_t link_bps = plan_.ports[static_cast<size_t>(port)].link_bps;
  const int64_t bytes = frame_bytes(frame);
  const Nanos free_ns = sender_links_[link_of(port)].take(bytes, link_bps, clock_.now_ns);

  const auto place = place_of_.find(flow.dst_ip);
  if (place == place_of_.end() || random_.one_in_million(params_.loss_per_million)) {
    ++outcome_.lost;
    return;
  }
  const int32_t to = steered(place->second.port, dest_qpn);
  frame.queue_pair = uint64_t{place->second.address} << 32 | dest_qpn;
  const bool switched = !queues_.empty();
  Nanos arrival_ns = free_ns + (switched ? params_.latency_ns / 2 : params_.latency_ns);
  if (random_.one_in_million(params_.reorder_per_million)) {
    ++outcome_.reordered;
    arrival_ns += params_.reorder_delay_ns;
  }
  if (random_.one_in_million(params_.duplicate_per_million)) {
    ++outcome_.duplicated;
    push({arrival_ns + params_.latency_ns, order_++, to, store(frame), 0, switched});
  }
  if (random_.one_in_million(params_.corrupt_per_million)) {
    ++outcome_.corrupted;
    const uint64_t bit = random_.next() % (frame.stored * 8);
    frame.bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
  }
  if (params_.receiver_links) {
    // Cut-through: the packet takes its turn when its first bit arrives.
    const Nanos lasts_ns = LineSpan::of(bytes, plan_.ports[static_cast<size_t>(to)].link_bps).rounded_up_ns();
    push({std::max(arrival_ns - lasts_ns, clock_.now_ns), order_++, to, store(frame), bytes, false});
    return;
  }
  push({arrival_ns, order_++, to, store(frame), 0, switched});
}

}  // namespace

SimOutcome simulate(const EnginePlan& plan, const SimParams& params) {
  Network network(plan, params);
  return network.run();
}

}  // namespace etloop
