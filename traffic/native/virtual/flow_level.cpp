#include "virtual/flow_level.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/instant_guard.h"
#include "base/prefetch.h"
#include "base/time_wheel.h"
#include "core/core.h"
#include "core/message_carrier.h"
#include "virtual/alike_ranks.h"
#include "virtual/message_bits.h"
#include "virtual/stream_departures.h"

namespace etloop {

namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kTurnsPerLook = 64;
// Number of streams per port above which turn order is ignored: the streams then end at the same time, which is cheap to process,
// and a turn is long compared with a latency.
constexpr int32_t kMostInTurn = 16;
// Number of concurrent flows above which the tolerance is increased tenfold.
constexpr int64_t kCrowd = 4096;
constexpr double kCrowdTolerance = 10;
constexpr double kWidestGridNs = 1e9;
constexpr size_t kPrefetchDistance = 4;
// Longest latencies that the slots of the wheel of events cover.
constexpr Nanos kLatenciesPerWheel = 8;
// Smaller jobs take milliseconds with all their ranks.
constexpr size_t kFewestFolded = 64;

// An event, ordered by time, then by insertion.
struct Due {
  Nanos at_ns;
  uint64_t order;  // of `TimeWheel`
  enum class Kind : uint8_t { grant, arrival, acknowledgement } kind;
  CarriedMessage message;  // for a grant: connection, tag and index
};

class FlowLevel final : public MessageCarrier {
 public:
  // `alike`: the ranks to run, over its network; nullptr: all ranks.
  FlowLevel(const EnginePlan& plan, const FlowNetwork& network, const FlowLevelParams& params, const AlikeRanks* alike)
      : plan_(plan),
        alike_(alike),
        network_(alike == nullptr ? network : alike->network()),
        params_(params),
        stop_(params.stop, kTurnsPerLook),
        bits_(plan),
        shares_(network.link_bps),
        due_(spacing_ns(network)),
        instant_(most_turns_at_an_instant(plan.ports.size())),
        transfers_(params.source) {
    stream_of_way_.assign(network_.delays.size(), kNone);
    first_way_.reserve(plan.connections.size() + 1);
    uint32_t way = 0;
    for (const PlannedConnection& c : plan.connections) {
      first_way_.push_back(way);
      way += ways_of(c);
    }
    outcome_.link_bytes.assign(network_.link_bps.size(), 0);
    turns_.resize(network_.link_bps.size());
  }

  FlowLevelOutcome run() {
    auto core = Core::make_carried(plan_, *this, alike_ == nullptr ? std::span<const uint32_t>() : alike_->run());
    if (!core) {
      outcome_.failure = core.error().text;
      return std::move(outcome_);
    }
    core_ = *std::move(core);
    transfers_.begin(*core_, 0);
    core_->start(0);
    while (step()) {
    }
    write_records();
    if (alike_ != nullptr) alike_->spread(outcome_.link_bytes);
    outcome_.ranks_run = static_cast<int64_t>(alike_ == nullptr ? plan_.ranks.size() : alike_->run().size());
    outcome_.end_ns = now_ns_;
    outcome_.looks = shares_.looks();
    outcome_.loosened = shares_.loosened();
    return std::move(outcome_);
  }

  void carry(const CarriedMessage& message, uint32_t queue_pair, Nanos now) override;
  void carry_grant(int32_t received_on, uint32_t tag, uint32_t index, Nanos now) override {
    const int32_t connection = alike_ == nullptr ? received_on : alike_->sent_on(received_on);
    const Nanos latency_ns = latency_of(first_way_[static_cast<size_t>(connection)], [&] { return bits_.of_grant(connection); });
    if (latency_ns == 0) {
      core_->carried().on_granted(connection, tag, index, now);
    } else {
      wait(now + latency_ns, Due::Kind::grant, {0, 0, connection, 0, tag, index, false});
    }
  }

 private:
  // A queue pair with messages to send.
  struct Stream {
    uint32_t way = 0;
    uint32_t flow = kNone;  // in `shares_`
    uint32_t head = kNone;  // first of its messages
    uint32_t tail = kNone;
    int32_t port = -1;      // link on which queue pairs take turns; -1: inside a host, or over no link
    double head_bits = 0;   // whole first message
    double left_bits = 0;   // rest of it, at `since_ns`
    double rate_bps = 0;
    Nanos since_ns = 0;
    bool touched = false;   // changed since rates were settled
    bool is_fresh = false;  // its first message began since then, after an idle time
  };
  struct Queued {
    CarriedMessage message;
    uint32_t next;
  };
  // Turn order of a port: its streams, those that begin now, those already placed in turn, and the offset of the last one in
  // packets of the smallest size among them.
  struct Turns {
    int32_t live = 0;
    int32_t fresh = 0;
    int32_t begun = 0;
    double ahead = 0;
    double packet_bits = 0;
  };

  bool step();
  bool over();
  bool advances();
  void start_transfers();
  void write_records();
  void arrive(CarriedMessage message, Nanos now);
  int32_t received_on(int32_t connection) const { return alike_ == nullptr ? connection : alike_->received_on(connection); }
  void deliver(Nanos now);
  void deliver(const Due& due, Nanos now);
  void expect_delivery(size_t i) const;
  void depart_due(Nanos now);
  void expect_departure(size_t i) const;
  void depart(uint32_t stream, Nanos now);
  Turns* turns_of(const Stream& stream);
  void take_turns();
  void credit_active_stream(Stream& stream);
  void end_turns();
  void count_live(const Stream& stream, int32_t by);
  void settle(Nanos now);
  void schedule(uint32_t stream);
  static Nanos on_grid(Nanos at_ns, double step_ns);
  double tolerance() const;
  void touch(uint32_t stream);
  uint32_t open_stream(int32_t connection, uint32_t way);
  void wait(Nanos at_ns, Due::Kind kind, const CarriedMessage& message);
  // Latency of a packet from its last bit sent to its last bit received; `bits`, its size, is evaluated only if switches store
  // it.
  template <typename Bits>
  Nanos latency_of(uint32_t way, Bits bits) const {
    const FlowNetwork::Delay& delay = network_.delays[way];
    if (delay.store_ns_per_bit == 0) return delay.latency_ns;
    return delay.latency_ns + static_cast<Nanos>(std::ceil(delay.store_ns_per_bit * static_cast<double>(bits())));
  }
  void count_bytes(const Stream& stream);
  static Nanos spacing_ns(const FlowNetwork& network) {
    Nanos longest_ns = 0;
    for (const FlowNetwork::Delay& delay : network.delays) longest_ns = std::max(longest_ns, delay.latency_ns);
    return longest_ns * kLatenciesPerWheel / static_cast<Nanos>(TimeWheel<Due>::kSlots);
  }

  const EnginePlan& plan_;
  const AlikeRanks* alike_;  // nullptr: every rank is run
  const FlowNetwork& network_;
  const FlowLevelParams& params_;
  StopSign stop_;
  MessageBits bits_;
  FairShares shares_;
  std::unique_ptr<Core> core_;
  std::vector<uint32_t> first_way_;      // by connection
  std::vector<uint32_t> stream_of_way_;  // kNone: nothing to send
  std::vector<Stream> streams_;
  std::vector<uint32_t> free_streams_;
  std::vector<uint32_t> stream_of_flow_;
  std::vector<uint32_t> touched_;
  std::vector<Turns> turns_;  // by first link
  std::vector<Queued> queued_;
  std::vector<uint32_t> free_queued_;
  StreamDepartures departures_;
  TimeWheel<Due> due_;
  std::vector<Due> delivered_;       // due now
  std::vector<uint32_t> departing_;  // streams whose first message is sent now
  int64_t live_ = 0;
  Nanos now_ns_ = 0;
  InstantGuard instant_;
  TransferTurns transfers_;
  size_t noted_ = 0;  // records that the source knows of
  FlowLevelOutcome outcome_;
};

void FlowLevel::carry(const CarriedMessage& message, uint32_t queue_pair, Nanos now) {
  ++outcome_.messages;
  const uint32_t way = first_way_[static_cast<size_t>(message.connection)] + queue_pair;
  uint32_t item;
  if (free_queued_.empty()) {
    item = static_cast<uint32_t>(queued_.size());
    queued_.push_back({message, kNone});
  } else {
    item = free_queued_.back();
    free_queued_.pop_back();
    queued_[item] = {message, kNone};
  }
  const uint32_t number = stream_of_way_[way] != kNone ? stream_of_way_[way] : open_stream(message.connection, way);
  Stream& stream = streams_[number];
  if (stream.tail == kNone) {
    stream.head = item;
    stream.head_bits = stream.left_bits = static_cast<double>(bits_.of(message));
    stream.since_ns = now;
    stream.is_fresh = true;
    touch(number);
  } else {
    queued_[stream.tail].next = item;
  }
  stream.tail = item;
}

uint32_t FlowLevel::open_stream(int32_t connection, uint32_t way) {
  uint32_t number;
  if (free_streams_.empty()) {
    number = static_cast<uint32_t>(streams_.size());
    streams_.emplace_back();
  } else {
    number = free_streams_.back();
    free_streams_.pop_back();
    streams_[number] = Stream{};
  }
  Stream& stream = streams_[number];
  stream.way = way;
  const auto first = static_cast<size_t>(network_.way_offsets[way]);
  const auto last = static_cast<size_t>(network_.way_offsets[way + 1]);
  stream.flow = shares_.begin(std::span(network_.parts).subspan(first, last - first));
  stream.rate_bps = shares_.rate_bps(stream.flow);
  const bool on_wire = plan_.connections[static_cast<size_t>(connection)].path == Path::wire;
  stream.port = on_wire && first < last ? network_.parts[first].link : -1;
  if (stream.flow >= stream_of_flow_.size()) stream_of_flow_.resize(stream.flow + 1, kNone);
  stream_of_flow_[stream.flow] = number;
  stream_of_way_[way] = number;
  count_live(stream, 1);
  outcome_.most_live_flows = std::max(outcome_.most_live_flows, live_);
  return number;
}

void FlowLevel::count_live(const Stream& stream, int32_t by) {
  live_ += by;
  const auto first = static_cast<size_t>(network_.way_offsets[stream.way]);
  if (first < static_cast<size_t>(network_.way_offsets[stream.way + 1])) {
    turns_[static_cast<size_t>(network_.parts[first].link)].live += by;
  }
}

void FlowLevel::touch(uint32_t number) {
  if (streams_[number].touched) return;
  streams_[number].touched = true;
  touched_.push_back(number);
}

void FlowLevel::wait(Nanos at_ns, Due::Kind kind, const CarriedMessage& message) {
  due_.push({at_ns, 0, kind, message});
}

// The first message of a stream is sent: begin the next one, and schedule the events at receiver and sender.
void FlowLevel::depart(uint32_t number, Nanos now) {
  Stream& stream = streams_[number];
  const uint32_t item = stream.head;
  const uint32_t way = stream.way;
  const CarriedMessage message = queued_[item].message;
  count_bytes(stream);
  // Departure times are on a grid: the excess or deficit of bits is carried over to the next message.
  const double elapsed_bits = stream.rate_bps * static_cast<double>(now - stream.since_ns) / 1e9;
  const double ahead_bits = std::isfinite(elapsed_bits) ? elapsed_bits - stream.left_bits : 0.0;
  stream.head = queued_[item].next;
  free_queued_.push_back(item);
  stream.since_ns = now;
  if (stream.head == kNone) {
    stream.tail = kNone;
  } else {
    stream.head_bits = static_cast<double>(bits_.of(queued_[stream.head].message));
    stream.left_bits = std::max(stream.head_bits - ahead_bits, 0.0);
  }
  touch(number);
  // Store and forward: each switch sends a packet once it has all of it; the last packet of a message follows others of that
  // size, if any. The lanes may begin streams, which moves this one.
  const Nanos latency_ns = latency_of(way, [&] { return bits_.of_packet(message); });
  core_->carried().on_left(message, now);
  if (latency_ns == 0) {
    arrive(message, now);
    core_->carried().on_acknowledged(message, now);
    return;
  }
  // Inside a host a message completes for its sender when it is sent (core/message_paths.h).
  const bool on_wire = plan_.connections[static_cast<size_t>(message.connection)].path == Path::wire;
  const Nanos answer_ns = latency_of(way, [&] { return bits_.of_answer(message.connection); });
  const Nanos acknowledged_ns = now + (on_wire ? latency_ns + answer_ns : 0);
  wait(now + latency_ns, Due::Kind::arrival, message);
  wait(acknowledged_ns, Due::Kind::acknowledgement, message);
}

// Count the first message of a stream on its links.
void FlowLevel::count_bytes(const Stream& stream) {
  const auto bytes = static_cast<int64_t>(stream.head_bits) / 8;
  const auto first = static_cast<size_t>(network_.way_offsets[stream.way]);
  const auto last = static_cast<size_t>(network_.way_offsets[stream.way + 1]);
  for (size_t p = first; p < last; ++p) {
    const LinkShare& share = network_.parts[p];
    outcome_.link_bytes[static_cast<size_t>(share.link)] +=
        share.part == 1 ? bytes : std::llround(static_cast<double>(bytes) * static_cast<double>(share.part));
  }
}

void FlowLevel::deliver(Nanos now) {
  while (due_.next_ns() <= now) {
    delivered_.clear();
    while (due_.next_ns() <= now) delivered_.push_back(due_.pop());
    for (size_t i = 0; i < delivered_.size(); ++i) {
      expect_delivery(i);
      deliver(delivered_[i], now);
    }
  }
}

void FlowLevel::deliver(const Due& due, Nanos now) {
  switch (due.kind) {
    case Due::Kind::grant: core_->carried().on_granted(due.message.connection, due.message.tag, due.message.index, now); break;
    case Due::Kind::arrival: arrive(due.message, now); break;
    case Due::Kind::acknowledgement: core_->carried().on_acknowledged(due.message, now); break;
  }
}

// Prefetch the state that the next deliveries need: a large job has thousands at one instant, and its state exceeds the caches.
void FlowLevel::expect_delivery(size_t i) const {
  const Lanes& lanes = core_->carried().lanes();
  for (size_t step = 1; step <= 3; ++step) {
    const size_t at = i + (4 - step) * kPrefetchDistance;
    if (at >= delivered_.size()) continue;
    const Due& due = delivered_[at];
    if (due.kind == Due::Kind::acknowledgement) {
      if (step == 3) lanes.expect_lane(due.message.lane);
      continue;
    }
    const bool receives = due.kind == Due::Kind::arrival;
    const int32_t connection = receives ? received_on(due.message.connection) : due.message.connection;
    if (step == 1) lanes.expect_end(connection);
    else if (step == 2) lanes.expect_list(connection, receives);
    else lanes.expect_lane(connection, due.message.tag, receives);
  }
}

// End every first message that is sent by now.
void FlowLevel::depart_due(Nanos now) {
  departing_.clear();
  while (departures_.next() <= now) {
    departing_.push_back(departures_.first());
    departures_.remove(departures_.first());
  }
  for (size_t i = 0; i < departing_.size(); ++i) {
    expect_departure(i);
    depart(departing_[i], now);
  }
}

// Prefetch the state that the next departures need, as `expect_delivery`.
void FlowLevel::expect_departure(size_t i) const {
  const auto ahead = [&](size_t turns) -> const Stream* {
    const size_t at = i + turns * kPrefetchDistance;
    return at < departing_.size() ? &streams_[departing_[at]] : nullptr;
  };
  if (const Stream* stream = ahead(3); stream != nullptr) prefetch(stream, sizeof(Stream));
  if (const Stream* stream = ahead(2); stream != nullptr) {
    prefetch(&queued_[stream->head], sizeof(Queued));
    prefetch(&network_.delays[stream->way]);
    prefetch(&network_.way_offsets[stream->way]);
  }
  if (const Stream* stream = ahead(1); stream != nullptr) {
    const CarriedMessage& message = queued_[stream->head].message;
    prefetch(&plan_.connections[static_cast<size_t>(message.connection)], sizeof(PlannedConnection));
    if (message.reports_departure) core_->carried().lanes().expect_lane(message.lane);
  }
}

// Return the turn order of the stream's port, where queue pairs alternate per packet; nullptr: none.
FlowLevel::Turns* FlowLevel::turns_of(const Stream& stream) {
  return stream.head == kNone || stream.port < 0 ? nullptr : &turns_[static_cast<size_t>(stream.port)];
}

// Model packet interleaving: of f messages that begin at once, the first ends f - 1 packets before the last, and streams already
// active have a turn before each. This desynchronizes the channels of a ring, so that each waits for its latency while others
// send; fair shares alone would keep them synchronized forever. Sizes are shifted so that messages end one packet after each
// other: size i is size i - 1 plus 1 / (f - i) of a packet; new streams start behind by the share of the k active ones in a turn.
// The gain of one stream is the loss of the others.
void FlowLevel::take_turns() {
  for (const uint32_t number : touched_) {
    const Stream& stream = streams_[number];
    Turns* turns = stream.is_fresh ? turns_of(stream) : nullptr;
    if (turns == nullptr) continue;
    const auto bits = static_cast<double>(bits_.of_packet(queued_[stream.head].message));
    turns->packet_bits = turns->fresh++ == 0 ? bits : std::min(turns->packet_bits, bits);
  }
  for (const uint32_t number : touched_) {
    Stream& stream = streams_[number];
    Turns* turns = stream.is_fresh ? turns_of(stream) : nullptr;
    if (turns == nullptr || turns->live > kMostInTurn) continue;
    const double others = turns->live - turns->fresh;
    const int32_t left = turns->fresh - turns->begun;
    turns->ahead = turns->begun == 0 ? others / turns->live + 1.0 / left - 1 : turns->ahead + 1.0 / left;
    ++turns->begun;
    stream.left_bits += turns->ahead * turns->packet_bits;
  }
}

// Credit streams that were active when others began, after their rates changed.
void FlowLevel::credit_active_stream(Stream& stream) {
  const Turns* turns = stream.is_fresh ? nullptr : turns_of(stream);
  if (turns == nullptr || turns->begun == 0) return;
  const double gained = static_cast<double>(turns->begun) / turns->live;
  stream.left_bits = std::max(stream.left_bits - gained * turns->packet_bits, 0.0);
}

void FlowLevel::end_turns() {
  for (const uint32_t number : touched_) {
    Stream& stream = streams_[number];
    if (Turns* turns = stream.is_fresh ? turns_of(stream) : nullptr; turns != nullptr) turns->fresh = turns->begun = 0;
    stream.is_fresh = false;
  }
}

// End the flows of idle streams, recompute the shares, and schedule the end of each stream's first message. Called after all
// events of a time: a stream that continues at once is unaffected.
void FlowLevel::settle(Nanos now) {
  for (const uint32_t number : touched_) {
    Stream& stream = streams_[number];
    if (stream.head != kNone) continue;
    shares_.end(stream.flow);
    stream_of_flow_[stream.flow] = kNone;
    stream_of_way_[stream.way] = kNone;
    free_streams_.push_back(number);
    count_live(stream, -1);
  }
  take_turns();
  ++outcome_.settlings;
  for (const uint32_t flow : shares_.settle(tolerance())) {
    const uint32_t number = stream_of_flow_[flow];
    if (number == kNone) continue;
    Stream& stream = streams_[number];
    const double elapsed_bits = stream.rate_bps * static_cast<double>(now - stream.since_ns) / 1e9;
    stream.left_bits = std::max(stream.left_bits - elapsed_bits, 0.0);
    credit_active_stream(stream);
    stream.since_ns = now;
    stream.rate_bps = shares_.rate_bps(flow);
    touch(number);
  }
  end_turns();
  for (const uint32_t number : touched_) {
    streams_[number].touched = false;
    if (streams_[number].head != kNone) schedule(number);
  }
  touched_.clear();
}

void FlowLevel::schedule(uint32_t number) {
  const Stream& stream = streams_[number];
  Nanos takes_ns = 0;
  if (stream.rate_bps != FairShares::kUnlimited && stream.left_bits > 0) {
    const double ns = std::ceil(stream.left_bits / stream.rate_bps * 1e9);
    // Times beyond the limit need not be distinguished.
    if (ns > static_cast<double>(params_.limit_ns)) {
      departures_.set(number, params_.limit_ns + 1);  // not on the grid, which may round it to before the limit
      return;
    }
    takes_ns = static_cast<Nanos>(ns);
  }
  const double step_ns = tolerance() * stream.head_bits / stream.rate_bps * 1e9;
  departures_.set(number, std::max(on_grid(stream.since_ns + takes_ns, step_ns), now_ns_));
}

// Round to a grid with the largest power of two up to `step_ns`: messages of similar length that end at similar times end
// together.
Nanos FlowLevel::on_grid(Nanos at_ns, double step_ns) {
  if (step_ns < 2 || step_ns > kWidestGridNs) return at_ns;
  const auto width_ns = static_cast<Nanos>(std::bit_floor(static_cast<uint64_t>(step_ns)));
  return (at_ns + width_ns / 2) & ~(width_ns - 1);
}

double FlowLevel::tolerance() const { return params_.tolerance * (live_ > kCrowd ? kCrowdTolerance : 1); }

bool FlowLevel::over() {
  if (!core_->failure().empty()) {
    outcome_.failure = core_->failure();
    return true;
  }
  if (core_->finished()) return true;
  if (params_.most_messages > 0 && outcome_.messages > params_.most_messages) {
    outcome_.failure = "more than " + std::to_string(params_.most_messages) + " messages";
    outcome_.too_many_messages = true;
    return true;
  }
  return false;
}

// Whether virtual time still advances; otherwise the run fails.
bool FlowLevel::advances() {
  if (instant_.passes(now_ns_, [this] { return core_->status().ops_done; })) return true;
  core_->stall(instant_, "the ranks", now_ns_);
  return !over();
}

void FlowLevel::start_transfers() {
  if (!transfers_.present()) return;
  RecordLog& records = core_->records();
  for (; noted_ < records.size(); ++noted_) {
    if (!transfers_.note(records[noted_])) outcome_.records.push_back(records[noted_]);
  }
  records.release(noted_);
  if (transfers_.due_ns() <= now_ns_) transfers_.act(*core_, now_ns_);
}

// Deliver a message to the rank that it is for, or that is run in its place.
void FlowLevel::arrive(CarriedMessage message, Nanos now) {
  message.connection = received_on(message.connection);
  core_->carried().on_arrived(message, now);
}

void FlowLevel::write_records() {
  const RecordLog& records = core_->records();
  // With transfers, those of the ranks of other jobs have been copied already.
  if (!transfers_.present()) outcome_.records.reserve(records.size());
  for (size_t i = transfers_.present() ? records.size() : 0; i < records.size(); ++i) {
    if (alike_ != nullptr) alike_->add_all(records[i], outcome_.records);
    else outcome_.records.push_back(records[i]);
  }
  if (outcome_.failure.empty()) return;
  for (const WaitRecord& wait : core_->waits()) {
    if (alike_ != nullptr) alike_->add_all(wait, outcome_.waits);
    else outcome_.waits.push_back(wait);
  }
}

// Process all events of the next time, including those they cause at that time.
bool FlowLevel::step() {
  if (stop_.seen()) {
    outcome_.failure = "stopped";
    return false;
  }
  const Nanos next_ns = std::min({core_->next_deadline(), departures_.next(), due_.next_ns(), transfers_.due_ns()});
  if (next_ns == kNever) {
    outcome_.failure = "no event is left: the job waits for itself";
    return false;
  }
  if (next_ns > params_.limit_ns) {
    now_ns_ = params_.limit_ns;
    outcome_.failure = "the time limit was reached";
    return false;
  }
  now_ns_ = std::max(now_ns_, next_ns);
  depart_due(now_ns_);
  deliver(now_ns_);
  do {
    if (!advances()) return false;
    core_->on_time(now_ns_);
    core_->issue(now_ns_);
    start_transfers();
  } while (core_->failure().empty() && std::min(core_->next_deadline(), transfers_.due_ns()) <= now_ns_);
  if (!touched_.empty()) settle(now_ns_);
  return !over();
}

}  // namespace

std::string validate(const FlowNetwork& network, const EnginePlan& plan) {
  size_t ways = 0;
  for (const PlannedConnection& c : plan.connections) ways += ways_of(c);
  if (network.delays.size() != ways || network.way_offsets.size() != ways + 1 || network.way_offsets.front() != 0 ||
      network.way_offsets.back() != static_cast<int64_t>(network.parts.size())) {
    return "network: the plan has " + std::to_string(ways) + " ways, the network " + std::to_string(network.delays.size());
  }
  for (const int64_t link_bps : network.link_bps) {
    if (link_bps <= 0) return "network: a link without a rate";
  }
  std::vector<size_t> last_way(network.link_bps.size(), SIZE_MAX);
  for (size_t w = 0; w < ways; ++w) {
    if (network.way_offsets[w + 1] < network.way_offsets[w]) return "network: way offsets fall";
    const FlowNetwork::Delay& delay = network.delays[w];
    if (delay.latency_ns < 0 || delay.latency_ns > 60'000'000'000) return "network: a latency is out of range";
    if (!(delay.store_ns_per_bit >= 0 && delay.store_ns_per_bit <= 1e6)) return "network: a store is out of range";
    for (int64_t p = network.way_offsets[w]; p < network.way_offsets[w + 1]; ++p) {
      const LinkShare& share = network.parts[static_cast<size_t>(p)];
      if (share.link < 0 || static_cast<size_t>(share.link) >= network.link_bps.size()) return "network: a way over no link";
      if (!(share.part > 0 && share.part <= 1)) return "network: a part of a way is not in (0, 1]";
      if (std::exchange(last_way[static_cast<size_t>(share.link)], w) == w) return "network: a way takes a link twice";
    }
  }
  return {};
}

FlowLevelOutcome flow_level(const EnginePlan& plan, const FlowNetwork& network, const FlowLevelParams& params) {
  std::optional<AlikeRanks> alike;
  if (params.folds && params.source == nullptr && plan.ranks.size() >= kFewestFolded) alike = AlikeRanks::find(plan, network);
  FlowLevel level(plan, network, params, alike ? &*alike : nullptr);
  return level.run();
}

}  // namespace etloop
