#include "virtual/twin.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/prefetch.h"
#include "base/time_wheel.h"
#include "plan/planes.h"
#include "virtual/twin_ports.h"
#include "virtual/twin_segments.h"

namespace etloop {

namespace {

bool any_pauses(const EnginePlan& plan) {
  return std::any_of(plan.ports.begin(), plan.ports.end(), [](const PlannedPort& port) { return !port.pauses.empty(); });
}

constexpr uint8_t kEcnMask = 0x03;
constexpr int64_t kMostWaitingBytes = 6 << 20;  // queued in a card's priority before UDP streams hold back

class Network final : public VirtualPorts, public FabricSink, public TwinCards {
 public:
  Network(const EnginePlan& plan, const FabricConfig& config, const TwinParams& params)
      : plan_(plan),
        params_(params),
        stop_(params.stop, kTurnsPerLook),
        fabric_(config, *this, kNever),
        series_(fabric_, config, params.sample_interval_ns, params.most_samples),
        streams_(params.streams),
        cores_(plan, clock_, *this, outcome_, *params.memory),
        transfers_(params.source),
        has_rare_(!params.streams.empty() || params.source != nullptr || any_pauses(plan)),
        port_of_(config.attachments.size(), -1),
        flows_(params.memory),
        frames_(params.memory),
        heading_(params.memory),
        pending_(event_spacing_ns(config.switches)) {
    ports_.reserve(plan.ports.size());
    for (size_t p = 0; p < plan.ports.size(); ++p) {
      const auto index = static_cast<int32_t>(p);
      ports_.push_back({.card = CardPort(*this, index), .attachment = params.attachment_of_port[p]});
      port_of_[ports_[p].attachment] = index;
      if (plan.ports[p].planes > 1) planes_.add(config.attachments[ports_[p].attachment].end, index);
      for (size_t a = 0; a < plan.ports[p].addresses.size(); ++a) {
        place_of_[plan.ports[p].addresses[a]] = {index, static_cast<uint16_t>(a)};
      }
    }
  }

  TwinOutcome run() {
    outcome_.damaged_packets.assign(plan_.ports.size(), 0);
    outcome_.trimmed_packets.assign(plan_.ports.size(), 0);
    if (!cores_.make(params_.receive_buffer_bytes)) return std::move(outcome_);
    if (params_.probe_first) {
      cores_.start_probe();
      drive([&] { return cores_.probed(); });
      // Late duplicates of probes would count as received by the job but not as sent.
      if (outcome_.failure.empty()) drain();
    }
    if (outcome_.failure.empty()) replay();
    const Nanos end_ns = clock_.now_ns;
    streams_.end();
    pauses_.end();
    if (outcome_.failure.empty()) drain();
    cores_.collect();
    outcome_.end_ns = end_ns;
    for (size_t s = 0; s < fabric_.switches(); ++s) outcome_.switches.push_back(fabric_.counters(s, clock_.now_ns));
    for (size_t a = 0; a < port_of_.size(); ++a) outcome_.cards.push_back(fabric_.card(a, clock_.now_ns));
    for (const SwitchCounters& counters : outcome_.switches) {
      for (const SwitchPortCounters& port : counters.ports) outcome_.hops += port.tx_packets;
    }
    outcome_.hops += outcome_.packets;
    outcome_.sample_interval_ns = series_.interval_ns();
    outcome_.samples = series_.rows();
    outcome_.streams = streams_.counters();
    return std::move(outcome_);
  }

  // ---- the cores' side

  TxPort& port(int32_t index) override { return ports_[static_cast<size_t>(index)].card; }

  Result<FlowId> add_flow(int32_t index, uint16_t address, const IpAddress& dst_ip, uint16_t src_port,
                          uint8_t traffic_class) override {
    const size_t addresses = plan_.ports[static_cast<size_t>(index)].addresses.size();
    const size_t own = static_cast<size_t>(index) + address / addresses;
    const PlannedPort& planned = plan_.ports[own];
    const auto place = place_of_.find(dst_ip);
    if (place == place_of_.end()) return Error{"no port of the plan has the address of a peer"};
    TwinFlow made;
    made.src_ip = planned.addresses[address % addresses];
    made.source = params_.attachment_of_port[own];
    made.dst_ip = dst_ip;
    made.src_port = src_port;
    made.traffic_class = traffic_class;
    made.dst_port = place->second.port;
    const PlannedPort& to = plan_.ports[static_cast<size_t>(made.dst_port)];
    made.dst_address = static_cast<uint16_t>(place->second.address + static_cast<size_t>(to.plane) * to.addresses.size());
    made.destination = params_.attachment_of_port[static_cast<size_t>(made.dst_port)];
    made.key = key_of(made.src_ip, dst_ip, src_port);
    const int64_t on_link_bytes = dst_ip.is_v4() ? kLinkBytesIpv4 : kLinkBytesIpv6;
    made.around_bytes = static_cast<uint32_t>(on_link_bytes - kLineOverheadBytes) + planned.tag_bytes;
    made.around_bytes += segments_.add_flow(planned, dst_ip);
    flows_.push_back(made);
    return static_cast<FlowId>(flows_.size() - 1);
  }

  void wake(int32_t index, Nanos due_ns) override {
    // Overdue work waits for the card, which will wake the core.
    TwinPort& own = ports_[static_cast<size_t>(index)];
    if (due_ns <= clock_.now_ns && own.waiting) return;
    if (due_ns == kNever || due_ns >= own.wake_ns) return;
    own.wake_ns = due_ns;
    const auto port = static_cast<uint32_t>(index);
    pending_.push({due_ns, 0, kNoTwinFrame, port, false, false, 0});
  }

  TxResult send(int32_t port, const PacketRun& run) override;
  TxResult send_built(int32_t port, const BuiltPacket& built) override;
  // A card holds only its next packets: then queue pairs take turns, and answers, which it makes itself, do not wait.
  bool has_room(uint32_t attachment, uint8_t traffic_class) const {
    return fabric_.waiting_frames(attachment, traffic_class >> 2) <= 1;
  }
  bool full_for(int32_t port, uint32_t attachment, uint8_t traffic_class) {
    const bool full = !has_room(attachment, traffic_class);
    ports_[static_cast<size_t>(port)].note_room(full, port_at(plan_, port).planes);
    return full;
  }
  bool holds(int32_t port, FlowId flow) override {
    TwinPort& own = ports_[static_cast<size_t>(port)];
    if (own.asked != flow) {
      own.asked = flow;
      own.asked_class = flows_[flow].traffic_class;
    }
    return full_for(port, own.attachment, own.asked_class);
  }

  uint32_t planes_up(int32_t port) const override { return ports_[static_cast<size_t>(port)].planes_up; }
  uint32_t open_planes(int32_t port, FlowId first, const ClassMarks& marks) override {
    const TwinFlow* flow = &flows_[first];
    const uint8_t traffic_class = class_of(*flow, marks);
    uint32_t open = 0;
    for (uint32_t k = 0; k < port_at(plan_, port).planes; ++k) open |= uint32_t{has_room(flow[k].source, traffic_class)} << k;
    ports_[static_cast<size_t>(port)].waiting |= open == 0;
    return open;
  }

  // ---- the network's side

  void deliver(size_t attachment, const SwitchFrame& frame, Nanos at_ns) override {
    const bool misrouted = frame.segmented && !reached(attachment, frame);
    const bool damaged = misrouted || frame.corrupted || (frame.trimmed && !names_packet(frame));
    if ((frame.handle & kOfStream) != 0) {
      if (damaged || frame.trimmed) streams_.lost(heading_[frame.handle & ~kOfStream].flow);
      free_frames_.push_back(frame.handle & ~kOfStream);
      return;
    }
    --job_frames_;
    if (frame.trimmed && !damaged) cut(frame);
    const auto port = static_cast<uint32_t>(port_of_[attachment]);
    const auto traffic_class = static_cast<uint8_t>(frame.dscp << 2 | frame.ecn);
    pending_.push({at_ns, 0, frame.handle, port, damaged, frame.trimmed, traffic_class});
  }
  // Whether a frame's segments routed it to its destination host, which removes the outer header.
  bool reached(size_t attachment, const SwitchFrame& frame) const {
    const TwinFlow& flow = flows_[heading_[frame.handle].flow];
    const usid::End& end = plan_.ports[static_cast<size_t>(flow.dst_port)].segment_end;
    return flow.destination == attachment && segments_.is_for(end, frame.handle);
  }
  usid::Head segment_of(const SwitchFrame& frame) override { return segments_.head(frame.handle); }
  usid::Head next_segment(const SwitchFrame& frame) override { return segments_.next(frame.handle); }
  // Trim the stored frame to the length that the switch left.
  void cut(const SwitchFrame& on_link) {
    TwinFrame& frame = frames_[on_link.handle];
    const auto left = static_cast<uint32_t>(on_link.frame_bytes) - flows_[heading_[on_link.handle].flow].around_bytes;
    frame.datagram_bytes = std::min(frame.datagram_bytes, left);
    frame.stored = static_cast<uint8_t>(std::min<uint32_t>(frame.stored, left));
  }
  void pause(size_t, uint8_t, uint16_t, Nanos) override {}
  void release(const SwitchFrame& frame) override {
    const uint32_t handle = frame.handle & ~kOfStream;
    if (handle == frame.handle) --job_frames_;
    else streams_.lost(heading_[handle].flow);
    free_frames_.push_back(handle);
  }
  uint64_t hash_key(const SwitchFrame& frame, HashFields fields) override {
    const uint32_t handle = frame.handle & ~kOfStream;
    if (handle != frame.handle) {
      const TwinStream& of = streams_.stream(heading_[handle].flow);
      return etloop::hash_key(headers_of(of.src_ip, of.dst_ip, of.src_udp_port, of.udp_port), fields);
    }
    const TwinFlow& flow = flows_[heading_[handle].flow];
    const uint16_t dst_port = plan_.ports[static_cast<size_t>(flow.dst_port)].udp_port;
    HashedHeaders headers = headers_of(flow.src_ip, flow.dst_ip, frames_[handle].src_port, dst_port);
    if (frame.segmented) return etloop::hash_key(segments_.hashed(flow, handle, headers), fields);
    if (dst_port == wire::kRoceUdpPort) headers.dest_qp = heading_[handle].dest_qpn;
    return etloop::hash_key(headers, fields);
  }
  void link_news(const FabricEnd& end, LinkNews news, Nanos at_ns) override {
    outcome_.link_steps.push_back({end, news, at_ns});
    const int32_t port = planes_.heard_of(end, news);
    if (port < 0) return;
    ready_.push_back(first_plane(plan_, port));
    ports_[static_cast<size_t>(ready_.back())].hear_of_plane(port - ready_.back(), news == LinkNews::up);
  }
  void card_sends(size_t attachment, Nanos) override {
    if (port_of_[attachment] < 0) return;
    const int32_t port = first_plane(plan_, port_of_[attachment]);
    if (!ports_[static_cast<size_t>(port)].waiting) return;
    ports_[static_cast<size_t>(port)].waiting = false;
    ready_.push_back(port);
  }

 private:
  static constexpr uint32_t kOfStream = 1U << 31;  // in a frame's handle: of a UDP stream, not of the job
  static constexpr uint32_t kTurnsPerLook = 1 << 12;
  static constexpr size_t kReadBytes = 64;  // bytes of a frame read at arrival

  void replay() {
    outcome_.start_ns = clock_.now_ns;
    // Probing all queue pairs at once is an incast of its own, and not part of the job.
    outcome_.packets = 0;
    std::fill(outcome_.damaged_packets.begin(), outcome_.damaged_packets.end(), 0);
    std::fill(outcome_.trimmed_packets.begin(), outcome_.trimmed_packets.end(), 0);
    fabric_.begin(clock_.now_ns);
    series_.begin_again();
    for (const LinkChange& change : params_.link_changes) {
      fabric_.set_link_later(change.end, change.up, clock_.now_ns + change.at_ns);
    }
    streams_.begin(clock_.now_ns);
    pauses_.begin(plan_, params_.attachment_of_port, clock_.now_ns);
    noted_ = outcome_.records.size();
    transfers_.begin(cores_, clock_.now_ns);
    cores_.start();
    const bool over = drive([&] { return cores_.finished(); });
    if (over || !outcome_.failure.empty()) return;
    if (outcome_.too_many_packets) {
      outcome_.failure = "the job takes more packets than were allowed";
    } else if (clock_.now_ns >= params_.limit_ns) {
      outcome_.failure = "the time limit was reached";
    } else {
      outcome_.failure = "no event is left: the job waits for itself";
    }
  }

  // Deliver what is in flight after the probes or the last rank, however deep it is queued, so that every packet is accounted
  // for. A stuck network keeps what it holds.
  void drain() {
    TwinDraining draining(free_frames_.size(), clock_.now_ns);
    drive([&] { return draining.is_over(free_frames_.size(), frames_.size(), clock_.now_ns); });
    outcome_.too_many_packets = false;
  }

  // Process events until `over`, a failure, a limit, or no event is left.
  template <typename Over>
  bool drive(Over over) {
    while (!over()) {
      if (stop_.seen()) {
        outcome_.failure = "stopped";
        return false;
      }
      const Nanos host_ns = pending_.next_ns();
      const Nanos network_ns = fabric_.next_event();
      // Streams, pauses and a source are rare: one comparison decides about all of them.
      const Nanos rare_ns = rare_due_ns();
      const Nanos next_ns = std::min({host_ns, network_ns, rare_ns});
      if (next_ns == kNever || (rare_ns != kNever && is_over_but_for_endless_loads())) return false;
      if (next_ns > params_.limit_ns) {
        clock_.now_ns = params_.limit_ns;
        return false;
      }
      while (series_.due_ns() <= next_ns) series_.sample();
      clock_.now_ns = std::max(clock_.now_ns, next_ns);
      if (rare_ns <= next_ns) [[unlikely]] {
        if (!act_on_rare(next_ns)) return false;
        continue;
      }
      if (network_ns <= host_ns) {
        run_network();
        if (!give_turns()) return false;
        continue;
      }
      const TwinPending next = pending_.pop();
      prefetch_next();
      if (next.handle != kNoTwinFrame) {
        deliver_to_core(next);
      } else if (ports_[next.port].wake_ns == next.at_ns) {
        ports_[next.port].wake_ns = kNever;
      }
      cores_.turn(first_plane(plan_, static_cast<int32_t>(next.port)));
      if (!give_turns()) return false;
      if (too_many()) return false;
    }
    return true;
  }

  Nanos rare_due_ns() const {
    if (!has_rare_) [[likely]] return kNever;
    return std::min({streams_.due_ns(), pauses_.due_ns(), transfers_.due_ns()});
  }

  // Whether only streams and pauses, which have no end, are left.
  bool is_over_but_for_endless_loads() const {
    const bool is_endless = streams_.due_ns() != kNever || pauses_.due_ns() != kNever;
    return is_endless && transfers_.due_ns() == kNever && job_is_idle();
  }

  // Act for the source, a pause or the streams, whichever acts at `next_ns`. False: the run ends.
  [[gnu::noinline]] bool act_on_rare(Nanos next_ns) {
    if (transfers_.due_ns() <= next_ns) {
      transfers_.act(cores_, clock_.now_ns);
      return true;
    }
    if (pauses_.due_ns() <= next_ns) {
      pauses_.send_due(clock_.now_ns, [this](uint32_t attachment, const PauseRule& rule) {
        fabric_.pause_from_host(attachment, rule.priority, rule.quanta, clock_.now_ns);
      });
      return give_turns();
    }
    send_streams();
    return give_turns() && !too_many();
  }

  bool too_many() {
    outcome_.too_many_packets = params_.most_packets > 0 && outcome_.packets > params_.most_packets;
    return outcome_.too_many_packets;
  }

  // Whether the job has nothing in flight or scheduled. Streams and pauses continue forever.
  bool job_is_idle() const {
    return job_frames_ == 0 && pending_.next_ns() == kNever &&
           std::none_of(ports_.begin(), ports_.end(), [](const TwinPort& port) { return port.waiting; });
  }

  void send_streams() {
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (!streams_.is_due(i, clock_.now_ns)) continue;
      const int64_t due = streams_.look(i, clock_.now_ns);
      int64_t sent = 0;
      while (sent < due && send_datagram(i)) ++sent;
      streams_.sent(i, sent);
    }
  }

  // Send one datagram of a stream. False: no room in the card.
  bool send_datagram(size_t stream) {
    const TwinStream& own = streams_.stream(stream);
    SwitchFrame on_link;
    on_link.frame_bytes = frame_bytes_of(own);
    on_link.dscp = own.traffic_class >> 2;
    on_link.ecn = own.traffic_class & kEcnMask;
    const auto waiting = static_cast<int64_t>(fabric_.waiting_frames(own.from, on_link.dscp));
    if (waiting * on_link.frame_bytes > kMostWaitingBytes) return false;
    on_link.destination = own.to;
    on_link.flow_key = key_of(own.src_ip, own.dst_ip, own.src_udp_port, own.udp_port);
    on_link.entropy = own.src_udp_port;
    const uint32_t handle = take_frame();
    heading_[handle].flow = static_cast<uint32_t>(stream);
    on_link.handle = handle | kOfStream;
    if (!fabric_.from_host(own.from, on_link, clock_.now_ns)) {
      free_frames_.push_back(handle);
      return false;
    }
    ++outcome_.packets;
    return true;
  }

  // Run the network while its events are next, and no card wakes its core.
  void run_network() {
    for (uint32_t turn = 0; turn < kTurnsPerLook; ++turn) {
      fabric_.advance(clock_.now_ns);
      const Nanos next_ns = fabric_.next_event();
      if (next_ns > pending_.next_ns() || next_ns >= std::min(series_.due_ns(), rare_due_ns())) return;
      if (next_ns > params_.limit_ns || next_ns == kNever) return;
      if (!ready_.empty()) return;
      clock_.now_ns = std::max(clock_.now_ns, next_ns);
    }
  }

  // Let cores take a turn whose cards have room again.
  [[gnu::always_inline]] bool give_turns() {
    while (!ready_.empty() && outcome_.failure.empty()) {
      const int32_t port = ready_.back();
      ready_.pop_back();
      cores_.turn(port);
    }
    if (transfers_.present()) [[unlikely]] note_records();
    if (!fabric_.stalled().empty()) [[unlikely]] outcome_.failure = fabric_.stalled();
    return outcome_.failure.empty();
  }

  void note_records() {
    for (; noted_ < outcome_.records.size(); ++noted_) transfers_.note(outcome_.records[noted_]);
  }

  // Prefetch the state for the next frame: it is rarely cached.
  void prefetch_next() const {
    if (pending_.empty() || pending_.front().handle == kNoTwinFrame) return;
    const TwinPending& next = pending_.front();
    prefetch(&frames_[next.handle], kReadBytes);
    prefetch(&flows_[heading_[next.handle].flow]);
    cores_.expect_datagram(first_plane(plan_, static_cast<int32_t>(next.port)), heading_[next.handle].dest_qpn);
  }

  // Whether enough of a trimmed frame is left for a host that recognizes such frames.
  bool names_packet(const SwitchFrame& frame) const {
    if (!plan_.transport.recovery.trimming.dscps.contains(frame.dscp) || (frame.handle & kOfStream) != 0) return false;
    const TwinFlow& flow = flows_[heading_[frame.handle].flow];
    return frame.frame_bytes >= static_cast<int32_t>(flow.around_bytes + wire::kBthBytes);
  }

  void deliver_to_core(const TwinPending& arrival) {
    const TwinFrame& frame = frames_[arrival.handle];
    free_frames_.push_back(arrival.handle);
    if (frame.corrupted || arrival.damaged) {
      ++outcome_.damaged_packets[arrival.port];
      return;
    }
    if (arrival.trimmed) ++outcome_.trimmed_packets[arrival.port];
    const TwinFlow& flow = flows_[heading_[arrival.handle].flow];
    const std::span<const uint8_t> bytes(frame.bytes.data(), frame.stored);
    const Datagram datagram{bytes, frame.datagram_bytes, flow.src_ip, frame.src_port, flow.dst_address,
                            static_cast<uint8_t>(arrival.traffic_class), arrival.trimmed, {}};
    cores_.on_datagram(first_plane(plan_, static_cast<int32_t>(arrival.port)), datagram);
  }

  uint32_t take_frame() {
    if (free_frames_.empty()) {
      frames_.emplace_back();
      heading_.emplace_back();
      return static_cast<uint32_t>(frames_.size() - 1);
    }
    const uint32_t handle = free_frames_.back();
    free_frames_.pop_back();
    return handle;
  }

  const EnginePlan& plan_;
  const TwinParams& params_;
  StopSign stop_;
  VirtualClock clock_;
  TwinOutcome outcome_;
  SoftFabric fabric_;
  TwinSeries series_;
  TwinStreams streams_;
  TwinPauses pauses_;
  CoreSet cores_;
  TransferTurns transfers_;
  bool has_rare_;  // streams, pauses or a source
  size_t noted_ = 0;  // records that the source knows of
  std::map<IpAddress, TwinPlace> place_of_;
  std::vector<int32_t> port_of_;  // by attachment; -1: not a port of the plan
  TwinPlanes planes_;
  std::pmr::vector<TwinFlow> flows_;
  std::vector<TwinPort> ports_;
  std::pmr::vector<TwinFrame> frames_;
  std::pmr::vector<TwinHeading> heading_;  // by frame
  TwinSegments segments_;
  std::vector<uint32_t> free_frames_;
  int64_t job_frames_ = 0;  // in cards, on links and in switches, without those of streams
  TimeWheel<TwinPending> pending_;  // arrivals at ports, and wake-ups of their cores
  std::vector<int32_t> ready_;  // ports whose card has room again
};

TxResult Network::send(int32_t port, const PacketRun& run) {
  const uint32_t attachment = ports_[static_cast<size_t>(port)].attachment;
  const uint8_t traffic_class =
      run.traffic_class == kFlowClass ? flows_[run.flow].traffic_class : static_cast<uint8_t>(run.traffic_class);
  SwitchFrame on_link;
  on_link.dscp = traffic_class >> 2;
  on_link.ecn = traffic_class & kEcnMask;
  if (!answers(run.head.opcode) && full_for(port, attachment, traffic_class)) return TxResult::held;
  const TwinFlow& flow = flows_[run.flow];
  on_link.destination = flow.destination;
  on_link.flow_key = flow.key;
  on_link.entropy = flow.src_port;
  wire::Packet packet = run.head;
  for (uint32_t i = 0; i < run.count; ++i) {
    packet.psn = (run.head.psn + i) & wire::kPsnMask;
    if (run.count > 1) packet.ack_req = run.ack_every != 0 && (packet.psn + 1) % run.ack_every == 0;
    const uint32_t handle = take_frame();
    TwinFrame& frame = frames_[handle];
    heading_[handle] = {run.flow, run.head.dest_qpn};
    frame.src_port = flow.src_port;
    frame.stored = static_cast<uint8_t>(wire::encode_headers(packet, frame.bytes));
    frame.datagram_bytes = static_cast<uint32_t>(wire::datagram_bytes(packet.opcode, packet.payload_bytes));
    frame.corrupted = run.corrupt_icrc;
    if (packet.payload != nullptr) frame.append({packet.payload, packet.payload_bytes});
    on_link.handle = handle;
    on_link.frame_bytes = static_cast<int32_t>(frame.datagram_bytes + flow.around_bytes);
    ++outcome_.packets;
    ++job_frames_;
    fabric_.from_host(attachment, on_link, clock_.now_ns);
  }
  return TxResult::sent;
}

TxResult Network::send_built(int32_t port, const BuiltPacket& built) {
  const TwinFlow& flow = flows_[built.flow];
  const uint32_t attachment = flow.source;
  const uint8_t traffic_class = class_of(flow, built.marks);
  if (!built.answers && full_for(port, attachment, traffic_class)) return TxResult::held;
  SwitchFrame on_link;
  on_link.dscp = traffic_class >> 2;
  on_link.ecn = traffic_class & kEcnMask;
  on_link.destination = flow.destination;
  const uint32_t handle = take_frame();
  on_link.segmented = segments_.put(built.flow, handle, built.src_port);
  if (on_link.segmented) {
    on_link.flow_key = flow_key(segments_.outer(flow, handle));  // switches find no entropy in the encapsulated ports
  } else {
    on_link.entropy = built.src_port;
    on_link.flow_key = key_of(flow.src_ip, flow.dst_ip, built.src_port, plan_.ports[static_cast<size_t>(flow.dst_port)].udp_port);
  }
  TwinFrame& frame = frames_[handle];
  heading_[handle] = {built.flow, built.dest_qpn};
  frame.src_port = built.src_port;
  frame.corrupted = built.corrupt_icrc;
  frame.stored = 0;
  frame.append(built.headers);
  frame.datagram_bytes = static_cast<uint32_t>(built.datagram_bytes());
  if (built.payload != nullptr) frame.append({built.payload, built.payload_bytes});
  on_link.handle = handle;
  on_link.frame_bytes = static_cast<int32_t>(frame.datagram_bytes + flow.around_bytes);
  ++outcome_.packets;
  ++job_frames_;
  fabric_.from_host(attachment, on_link, clock_.now_ns);
  return TxResult::sent;
}

}  // namespace

TwinOutcome run_twin(const EnginePlan& plan, const FabricConfig& network, const TwinParams& params) {
  Network twin(plan, network, params);
  return twin.run();
}

}  // namespace etloop
