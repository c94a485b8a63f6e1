#include "port/verbs/verbs_port.h"

#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/core.h"
#include "port/system_clock.h"
#include "wire/wire.h"

namespace etloop {

namespace {

constexpr uint32_t kMostDepth = 128;
constexpr uint32_t kLeastDepth = 16;
constexpr size_t kRingBytes = kCardRingSlots * kGrantWireBytes;
constexpr size_t kClosingsBytes = kCardClosings * sizeof(uint64_t);
constexpr size_t kScratchBytes = 64;
constexpr int32_t kMostReads = 16;
constexpr uint64_t kReceiveMark = uint64_t{1} << 63;
constexpr size_t kPage = 4096;

// Return the card's code of an acknowledgement timeout: the smallest t with 4.096 us * 2^t at least the requested one.
uint8_t timeout_code(Nanos timeout_ns) {
  uint8_t code = 1;
  while (code < 31 && (Nanos{4096} << code) < timeout_ns) ++code;
  return code;
}

uint32_t mtu_code(uint32_t path_mtu) { return static_cast<uint32_t>(std::countr_zero(path_mtu)) - 7; }

std::string pair_text(const verbs::QueuePair* pair) { return "queue pair " + std::to_string(pair->number); }

}  // namespace

std::vector<std::string> unmet_by_a_card(const PortConfig& config, bool has_faults) {
  std::vector<std::string> unmet;
  if (config.capture != nullptr) unmet.emplace_back("a card's packets cannot be captured here; the capture stays empty");
  if (has_faults || config.drop_per_million > 0) {
    unmet.emplace_back("faults of the scenario do not reach a card's packets");
  }
  if (config.vlan_id >= 0) {
    unmet.emplace_back("a card tags its frames by the VLAN interface that has its address, not by transport.vlan");
  }
  return unmet;
}

void VerbsPort::SendRing::push(const WorkRequest& request) {
  if (tail - head == slots.size()) {
    std::vector<WorkRequest> larger(std::max<size_t>(16, slots.size() * 2));
    for (uint64_t at_position = head; at_position != tail; ++at_position) {
      larger[at_position & (larger.size() - 1)] = at(at_position);
    }
    slots = std::move(larger);
  }
  at(tail++) = request;
}

Result<std::unique_ptr<VerbsPort>> VerbsPort::open(const VerbsPortConfig& config) {
  std::unique_ptr<VerbsPort> port(new VerbsPort);
  port->config_ = config;
  auto device = verbs::OpenDevice::open(config.device);
  if (!device) return device.error();
  port->device_ = *std::move(device);
  if (const auto suited = port->suits(); !suited) return suited.error();
  if (const auto laid_out = port->lay_out(); !laid_out) return laid_out.error();
  return port;
}

Result<std::unique_ptr<Core>> VerbsPort::make_core(const EnginePlan& plan, int32_t port) {
  return Core::make(plan, port, *this);
}

size_t VerbsPort::receive_into(Core& core, size_t budget) { return receive(core.carried(), budget); }

bool VerbsPort::transmit_from(Core& core, Clock& clock, size_t) {
  if (core.probing().under_way()) core.send_probes(clock.now());
  return false;
}

// Check that the device supports the plan.
Result<void> VerbsPort::suits() {
  verbs::OpenDevice& device = *device_;
  if (config_.transport.path_mtu_bytes > device.active_mtu()) {
    return Error{"RDMA device " + device.name() + " carries a path MTU of " + std::to_string(device.active_mtu()) +
                 " bytes and " + std::to_string(config_.transport.path_mtu_bytes) +
                 " are asked for; raise the MTU of its network interface or lower transport.path_mtu"};
  }
  for (const IpAddress& address : config_.addresses) {
    const int32_t given = config_.gid_index;
    const Result<uint32_t> index =
        given >= 0 ? device.checked_gid_index(static_cast<uint32_t>(given), address) : device.gid_index(address);
    if (!index) return index.error();
    gid_of_address_.push_back(*index);
  }
  if (config_.needs.one_sided && (device.attributes().atomics == 0 || device.attributes().most_reads_in < 1)) {
    return Error{"RDMA device " + device.name() +
                 " has no atomics, by which one-sided collectives end; choose others under collectives in the scenario"};
  }
  if (config_.needs.largest_message_bytes > static_cast<int64_t>(kMostDataBytes)) {
    return Error{"messages of up to " + std::to_string(config_.needs.largest_message_bytes >> 20) +
                 " MiB do not fit the " + std::to_string(kMostDataBytes >> 20) + " MiB of memory that RDMA device " +
                 device.name() + " is given; lower scale.bytes"};
  }
  const size_t ends = std::max<size_t>(1, config_.needs.sending_ends + config_.needs.receiving_ends);
  const auto most = static_cast<size_t>(std::max(device.attributes().most_completions, 0));
  const auto most_requests = static_cast<uint32_t>(std::max(device.attributes().most_requests, 0));
  const auto share = static_cast<uint32_t>(std::min<size_t>(most / (2 * ends), kMostDepth));
  send_depth_ = receive_depth_ = std::min(share, most_requests);
  if (send_depth_ < kLeastDepth) {
    return Error{"RDMA device " + device.name() + " has room for " + std::to_string(most) + " completions, too few for " +
                 std::to_string(ends) + " queue pair ends; lower transport.qps_per_connection or place fewer ranks on the port"};
  }
  return {};
}

// Layout of the region: data | rings | words for closings | outgoing grants | scratch.
Result<void> VerbsPort::lay_out() {
  const CarrierNeeds& needs = config_.needs;
  verbs::OpenDevice& device = *device_;
  data_bytes_ = std::clamp(4 * static_cast<size_t>(needs.largest_message_bytes), kLeastDataBytes, kMostDataBytes);
  const size_t rings = needs.sending_connections * kRingBytes;
  const size_t closings = needs.one_sided ? needs.receiving_connections * kClosingsBytes : 0;
  const size_t outgoing = needs.receiving_connections * send_depth_ * kGrantWireBytes;
  const size_t small = (outgoing + kScratchBytes + kPage - 1) / kPage * kPage;
  const uint32_t remote_access = verbs::kRemoteWrite | (needs.one_sided ? verbs::kRemoteAtomic : 0);
  if (auto done = device.register_region(data_bytes_ + rings + closings + small, remote_access); !done) return done;
  rings_ = device.region().data() + data_bytes_;
  closings_ = rings_ + rings;
  outgoing_ = closings_ + closings;
  scratch_ = outgoing_ + outgoing;
  std::memset(device.region().data(), wire::kPatternByte, data_bytes_);
  const size_t ends = std::max<size_t>(1, needs.sending_ends + needs.receiving_ends);
  const size_t entries = ends * (send_depth_ + receive_depth_);
  if (auto done = device.make_queue(static_cast<int>(entries)); !done) return done;
  ends_.reserve(ends);
  degraded_.push_back("RDMA device " + device.name() +
                      " carries the transport: congestion control, pacing, timers, UDP source ports and packet counters are "
                      "the card's own, and it is unknown whether the device under test kept the traffic class");
  degraded_.insert(degraded_.end(), config_.unmet.begin(), config_.unmet.end());
  return {};
}

Result<void> VerbsPort::add_end(const EndSettings& settings) {
  End end;
  end.settings = settings;
  end.gid_index = gid_of_address_[settings.address];
  const verbs::Capacities wanted{send_depth_, settings.sends_data ? 1 : receive_depth_, 1, 1, 0};
  const auto pair = device_->make_pair(wanted);
  if (!pair) return pair.error();
  end.pair = *pair;
  verbs::PairAttributes attributes{};
  attributes.state = verbs::kInit;
  attributes.port = verbs::kDevicePort;
  attributes.access = verbs::kLocalWrite | verbs::kRemoteWrite | (config_.needs.one_sided ? verbs::kRemoteAtomic : 0);
  constexpr uint32_t kMask = verbs::kSetState | verbs::kSetPkeyIndex | verbs::kSetPort | verbs::kSetAccess;
  if (const int result = device_->verbs().modify_qp(end.pair, &attributes, kMask); result != 0) {
    return Error{pair_text(end.pair) + " of RDMA device " + device_->name() + " cannot be set up: " + std::strerror(result) +
                 "; check the device's driver"};
  }
  if (settings.ordinal == 0) give_memory(end);
  const auto index = static_cast<uint32_t>(ends_.size());
  ends_.push_back(std::move(end));
  for (uint32_t i = 0; !settings.sends_data && i < receive_depth_; ++i) {
    if (!post_receive(ends_.back(), index)) {
      return Error{pair_text(ends_.back().pair) + " of RDMA device " + device_->name() + " takes no receives; check its driver"};
    }
  }
  return {};
}

// Grants of a connection and closings of its ops use the memory of its first queue pair's ends.
void VerbsPort::give_memory(End& end) {
  if (end.settings.sends_data) {
    end.ring = rings_ + kRingBytes * rings_given_++;
    return;
  }
  end.outgoing = outgoing_ + kGrantWireBytes * send_depth_ * outgoing_given_++;
  if (!config_.needs.one_sided) return;
  end.closings = reinterpret_cast<uint64_t*>(closings_ + kClosingsBytes * closings_given_++);
  end.read_closings.assign(kCardClosings, 0);
}

bool VerbsPort::post_receive(End& end, uint32_t index) {
  verbs::ReceiveRequest request{};
  request.mark = kReceiveMark | index;
  verbs::ReceiveRequest* refused = nullptr;
  return end.pair->context->operations.post_recv(end.pair, &request, &refused) == 0;
}

Endpoint VerbsPort::endpoint(uint32_t index) const {
  const End& end = ends_[index];
  const uint8_t* at = end.settings.sends_data ? end.ring : device_->region().data();
  return {end.settings.connection, end.settings.ordinal,          end.settings.sends_data,
          end.pair->number,        reinterpret_cast<uint64_t>(at), device_->rkey(),
          reinterpret_cast<uint64_t>(end.closings)};
}

Result<void> VerbsPort::connect(uint32_t index, const Endpoint& peer) {
  End& end = ends_[index];
  const TransportSettings& transport = config_.transport;
  verbs::PairAttributes attributes{};
  attributes.state = verbs::kReadyToReceive;
  attributes.path_mtu = mtu_code(transport.path_mtu_bytes);
  attributes.destination_pair = peer.qpn;
  attributes.receive_psn = attributes.send_psn = transport.recovery.initial_psn;
  const verbs::DeviceAttributes& can = device_->attributes();
  attributes.reads_in = static_cast<uint8_t>(std::clamp(can.most_reads_in, 0, kMostReads));
  const auto reads_out = static_cast<int32_t>(std::min(transport.recovery.outstanding_reads, 16U));
  attributes.reads_out = static_cast<uint8_t>(std::clamp(can.most_reads_out, 0, reads_out));
  attributes.min_rnr_timer = static_cast<uint8_t>(transport.recovery.min_rnr_timer_code);
  attributes.timeout = timeout_code(transport.timeout_ns);
  attributes.retries = static_cast<uint8_t>(std::min<uint32_t>(transport.retry_limit, 7));
  attributes.rnr_retries = static_cast<uint8_t>(std::min<uint32_t>(transport.recovery.rnr_retry_limit, 7));
  attributes.address.is_global = 1;
  attributes.address.port = verbs::kDevicePort;
  std::memcpy(attributes.address.route.destination.raw, end.settings.peer_ip.bytes.data(), 16);
  attributes.address.route.gid_index = static_cast<uint8_t>(end.gid_index);
  attributes.address.route.hop_limit = 64;
  attributes.address.route.traffic_class = end.settings.traffic_class;
  constexpr uint32_t kToReceive = verbs::kSetState | verbs::kSetAddress | verbs::kSetPathMtu | verbs::kSetDestinationPair |
                                  verbs::kSetReceivePsn | verbs::kSetReadsIn | verbs::kSetMinRnrTimer;
  constexpr uint32_t kToSend = verbs::kSetState | verbs::kSetTimeout | verbs::kSetRetries | verbs::kSetRnrRetries |
                               verbs::kSetSendPsn | verbs::kSetReadsOut;
  int result = device_->verbs().modify_qp(end.pair, &attributes, static_cast<int>(kToReceive));
  if (result == 0) {
    attributes.state = verbs::kReadyToSend;
    result = device_->verbs().modify_qp(end.pair, &attributes, static_cast<int>(kToSend));
  }
  if (result != 0) {
    return Error{pair_text(end.pair) + " of RDMA device " + device_->name() + " cannot be joined to " +
                 end.settings.peer_ip.text() + ": " + std::strerror(result) +
                 "; see that the address is reachable from the device's network interface"};
  }
  end.connected = true;
  if (end.ring != nullptr) polled_.push_back(index);
  return {};
}

uint64_t VerbsPort::room(uint32_t, uint32_t bytes, uint32_t& rkey) {
  rkey = device_->rkey();
  if (bytes > data_bytes_) return 0;
  if (next_room_ + bytes > data_bytes_) next_room_ = 0;
  const uint64_t at = next_room_;
  next_room_ += (bytes + kPage - 1) / kPage * kPage;
  return reinterpret_cast<uint64_t>(device_->region().data()) + at;
}

void VerbsPort::post(uint32_t index, const WorkRequest& request) {
  ends_[index].sending.push(request);
  flush(index);
}

// Fill `posted` for the card; `piece` references its content.
void VerbsPort::fill(const WorkRequest& request, End& end, verbs::SendRequest& posted, verbs::Piece& piece) {
  piece = {reinterpret_cast<uint64_t>(device_->region().data()), request.bytes, device_->lkey()};
  posted.flags = verbs::kSignaled;
  posted.opcode = verbs::kWrite;
  posted.remote_address = request.va;
  posted.pieces = &piece;
  posted.piece_count = request.bytes > 0 ? 1 : 0;
  if (request.kind == WorkKind::fetch_add) {
    posted.opcode = verbs::kFetchAdd;
    posted.atomic = {request.swap_add, 0, request.rkey};
    piece.address = reinterpret_cast<uint64_t>(scratch_);
    return;
  }
  posted.remote_rkey = request.rkey;
  if (request.kind == WorkKind::clear_to_send) {
    uint8_t* const at = end.outgoing + (end.sent_grants % send_depth_) * kGrantWireBytes;
    put_grant({request.grant_va, request.grant_bytes, request.grant_rkey, request.grant_tag, request.index},
              std::span<uint8_t, kGrantWireBytes>(at, kGrantWireBytes));
    piece.address = reinterpret_cast<uint64_t>(at);
  } else if (request.kind == WorkKind::write_imm) {
    posted.opcode = verbs::kWriteWithImmediate;
    posted.immediate = htonl(request.imm);
  }
}

void VerbsPort::flush(uint32_t index) {
  End& end = ends_[index];
  SendRing& ring = end.sending;
  while (ring.posted < ring.tail && ring.posted - ring.head < send_depth_) {
    const WorkRequest& request = ring.at(ring.posted);
    verbs::Piece piece{};
    verbs::SendRequest posted{};
    posted.mark = index;
    fill(request, end, posted, piece);
    verbs::SendRequest* refused = nullptr;
    const int result = end.pair->context->operations.post_send(end.pair, &posted, &refused);
    if (result == ENOMEM && ring.posted != ring.head) return;  // the queue is full; a completion makes room
    if (result != 0) {
      if (post_error_.empty()) {
        post_error_ = pair_text(end.pair) + " refuses a message: " + std::strerror(result);
        post_error_end_ = index;
      }
      return;
    }
    if (request.kind == WorkKind::clear_to_send) ++end.sent_grants;
    ++ring.posted;
    ++counters_.tx_calls;
    counters_.tx_bytes += request.bytes;
  }
}

void VerbsPort::complete(const verbs::Completion& done, CarrierSink& sink, Nanos now) {
  const auto index = static_cast<uint32_t>(done.mark);
  End& end = ends_[index];
  if (done.status != 0) {
    sink.on_carrier_fault(index, pair_text(end.pair) + " of RDMA device " + device_->name() + ": " +
                                     device_->verbs().wc_status_str(done.status) + " (vendor code " +
                                     std::to_string(done.vendor_error) + ")");
    return;
  }
  if ((done.mark & kReceiveMark) != 0) {
    counters_.rx_bytes += done.bytes;
    if (!post_receive(end, index)) {
      sink.on_carrier_fault(index, pair_text(end.pair) + " takes no further receives");
      return;
    }
    sink.on_message(index, ntohl(done.immediate), done.bytes, now);
    return;
  }
  const WorkRequest request = end.sending.at(end.sending.head++);
  flush(index);
  sink.on_carried(index, request, now);
}

size_t VerbsPort::receive(CarrierSink& sink, size_t budget) {
  if (!post_error_.empty()) {
    sink.on_carrier_fault(post_error_end_, post_error_);
    post_error_.clear();
  }
  size_t taken = 0;
  while (taken < budget && (seen_ > 0 || poll_card() > 0)) {
    const Nanos now = monotonic_ns();
    for (size_t i = 0; i < seen_; ++i) complete(done_[i], sink, now);
    taken += seen_;
    seen_ = 0;
  }
  taken += take_grants(sink, monotonic_ns());
  return watched_.empty() ? taken : taken + take_closings(sink, monotonic_ns());
}

size_t VerbsPort::poll_card() {
  verbs::CompletionQueue* const queue = device_->queue();
  const int count = queue->context->operations.poll_cq(queue, static_cast<int>(done_.size()), done_.data());
  ++counters_.rx_calls;
  seen_ = static_cast<size_t>(std::max(count, 0));
  return seen_;
}

size_t VerbsPort::take_grants(CarrierSink& sink, Nanos now) {
  size_t taken = 0;
  for (const uint32_t index : polled_) {
    End& end = ends_[index];
    while (true) {
      uint8_t* const slot = end.ring + ((end.next_grant - 1) % kCardRingSlots) * kGrantWireBytes;
      const uint64_t number =
          std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(slot + kGrantNumberOffset)).load(std::memory_order_acquire);
      if (number < end.next_grant) break;
      if (number > end.next_grant) {
        sink.on_carrier_fault(index, "grant " + std::to_string(number) + " has overwritten grant " +
                                         std::to_string(end.next_grant) + " before it was read");
        return taken;
      }
      ++end.next_grant;
      ++taken;
      sink.on_grant(index, read_grant(std::span<const uint8_t, kGrantWireBytes>(slot, kGrantWireBytes)), now);
    }
  }
  return taken;
}

size_t VerbsPort::take_closings(CarrierSink& sink, Nanos now) {
  size_t taken = 0;
  for (size_t i = 0; i < watched_.size();) {
    const Watched watched = watched_[i];
    End& end = ends_[watched.end];
    const size_t slot = watched.tag % kCardClosings;
    const uint64_t word = std::atomic_ref<uint64_t>(end.closings[slot]).load(std::memory_order_acquire);
    if (word == end.read_closings[slot]) {
      ++i;
      continue;
    }
    // Read only: the card's atomics need not be atomic with the CPU's.
    const uint64_t added = word - end.read_closings[slot];
    end.read_closings[slot] = word;
    watched_[i] = watched_.back();
    watched_.pop_back();
    ++taken;
    sink.on_closing(watched.end, watched.tag, added, now);  // may add watches
  }
  return taken;
}

void VerbsPort::wait(Nanos timeout_ns, int wake_fd) {
  verbs::CompletionQueue* const queue = device_->queue();
  if (queue->context->operations.req_notify_cq(queue, 0) != 0) return;
  // Completions before the request take effect cause no event.
  if (seen_ > 0 || poll_card() > 0) return;
  const Nanos longest = polled_.empty() && watched_.empty() ? timeout_ns : std::min(timeout_ns, kRingPollNs);
  std::array<pollfd, 2> watched{{{device_->channel()->fd, POLLIN, 0}, {wake_fd, POLLIN, 0}}};
  const timespec limit{longest / 1'000'000'000, longest % 1'000'000'000};
  const int ready = ppoll(watched.data(), wake_fd >= 0 ? 2 : 1, longest == kNever ? nullptr : &limit, nullptr);
  if (ready <= 0) return;
  if ((watched[0].revents & POLLIN) != 0) {
    verbs::CompletionQueue* notified = nullptr;
    void* user = nullptr;
    if (device_->verbs().get_cq_event(device_->channel(), &notified, &user) == 0) device_->verbs().ack_cq_events(notified, 1);
  }
  if (wake_fd >= 0 && (watched[1].revents & POLLIN) != 0) {
    uint64_t drained = 0;
    [[maybe_unused]] const ssize_t got = read(wake_fd, &drained, sizeof drained);
  }
}

}  // namespace etloop
