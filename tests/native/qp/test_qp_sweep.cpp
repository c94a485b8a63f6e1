// Every way to recover over links that lose, repeat and reorder as a seed says: what is posted is carried out exactly
// once and in order, and nothing stalls. 200 seeds a mode; 10,000 with ETLOOP_FULL set. A failure prints its seed.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <utility>

#include "support/check.h"
#include "support/qp_link.h"

using namespace etloop;
using namespace etloop::test;

namespace {

struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  bool one_in_million(uint32_t chance) { return below(1'000'000) < chance; }
};

struct Mode {
  const char* name;
  bool selective;
  bool accept;
  bool trims = false;  // of what is lost half arrives, cut
};
constexpr Mode kModes[] = {{"go-back-N", false, false},
                           {"go-back-N, out of order accepted", false, true},
                           {"selective repeat", true, false},
                           {"selective repeat, out of order accepted", true, true},
                           {"go-back-N, trimmed packets answered", false, false, true},
                           {"selective repeat, trimmed packets answered", true, false, true}};

struct Flying {
  Nanos due_ns;
  uint64_t order;
  bool to_b;
  wire::Packet packet;
  std::vector<uint8_t> content;
  bool cut;
  bool operator<(const Flying& other) const {
    return due_ns != other.due_ns ? due_ns > other.due_ns : order > other.order;
  }
};

constexpr Nanos kLatencyNs = 1'000;
constexpr Nanos kPacketNs = 80;
constexpr uint32_t kSlotBytes = 8192;

// One direction's work and what must come of it.
struct Work {
  std::vector<uint32_t> immediates;
  std::vector<std::vector<uint8_t>> read_into;
  std::vector<uint8_t> source;
  uint32_t adds = 0;
  uint32_t posted = 0;
};

class Run {
 public:
  Run(const Mode& mode, uint64_t seed)
      : random_{seed * std::size(kModes) + static_cast<uint64_t>(&mode - kModes)},
        link_(make_params(mode), true),
        trims_(mode.trims) {
    constexpr uint32_t kLosses[] = {100, 1'000, 10'000, 50'000};  // 0.01 to 5 %
    loss_ = kLosses[random_.below(4)];
    duplicate_ = static_cast<uint32_t>(random_.below(3)) * 10'000;
    reorder_ = static_cast<uint32_t>(random_.below(4)) * 20'000;
    reorder_ns_ = static_cast<Nanos>(random_.below(60)) * kPacketNs;
    post_all(link_.a, link_.b, work_a_);
    post_all(link_.b, link_.a, work_b_);
  }

  bool run() {
    for (int step = 0; step < 400'000; ++step) {
      send(link_.a, true);
      send(link_.b, false);
      if (over()) return correct(link_.b, work_a_) && correct(link_.a, work_b_);
      const Nanos timer_ns = std::min(link_.a.qp.deadline(), link_.b.qp.deadline());
      const Nanos packet_ns = air_.empty() ? kNever : air_.top().due_ns;
      if (std::min(timer_ns, packet_ns) == kNever) return false;  // nothing will ever happen
      now_ = std::max(now_, std::min(timer_ns, packet_ns));
      if (packet_ns <= timer_ns) {
        Flying arrived = air_.top();
        air_.pop();
        if (!arrived.content.empty()) arrived.packet.payload = arrived.content.data();
        End& to = arrived.to_b ? link_.b : link_.a;
        if (arrived.cut) {
          to.qp.on_trimmed({arrived.packet.opcode, arrived.packet.dest_qpn, arrived.packet.psn});
        } else {
          to.hear(arrived.packet, now_);
        }
      } else {
        link_.a.qp.on_timer(now_);
        link_.b.qp.on_timer(now_);
      }
    }
    return false;
  }

  FlowRecord counters() const { return link_.a.qp.counters; }

  std::string state() const {
    const FlowRecord& a = link_.a.qp.counters;
    return std::string(describe(link_.a.qp.fault())) + " / " + describe(link_.b.qp.fault()) + ", completed " +
           std::to_string(link_.a.completed.size()) + " of " + std::to_string(work_a_.posted) + " and " +
           std::to_string(link_.b.completed.size()) + " of " + std::to_string(work_b_.posted) + ", sent " +
           std::to_string(a.tx_packets) + ", again " + std::to_string(a.retransmitted_packets) + ", loss " +
           std::to_string(loss_) + ", time " + std::to_string(now_);
  }

 private:
  TransportSettings make_params(const Mode& mode) {
    constexpr uint32_t kWindows[] = {2, 16, 64, 256};
    constexpr uint32_t kMtus[] = {256, 1024, 4096};
    TransportSettings params = link_params(static_cast<uint32_t>(random_.next()) & wire::kPsnMask, kWindows[random_.below(4)],
                                         static_cast<uint32_t>(1 + random_.below(64)));
    params.path_mtu_bytes = kMtus[random_.below(3)];
    params.timeout_ns = 400'000;
    params.recovery.timeout_floor_ns = 20'000;
    params.retry_limit = 7;
    params.recovery.min_rnr_timer_code = 1;
    params.recovery.outstanding_reads = static_cast<uint32_t>(1 + random_.below(8));
    params.recovery.selective_repeat = mode.selective;
    params.recovery.accept_out_of_order = mode.accept;
    if (mode.trims) params.recovery.trimming.answer = mode.selective ? TrimAnswer::selective : TrimAnswer::nak;
    params.recovery.reorder_packets = static_cast<uint32_t>(4 + random_.below(60));
    return params;
  }

  void post_all(End& from, End& to, Work& work) {
    work.source.resize(20'000);
    for (uint8_t& byte : work.source) byte = static_cast<uint8_t>(random_.next());
    work.read_into.reserve(40);
    for (uint32_t i = 0; i < kSlotBytes; ++i) to.memory.bytes()[32'768 + i] = static_cast<uint8_t>(i * 13 + 5);
    for (uint32_t m = 0; m < 40; ++m) {
      WorkRequest request;
      request.rkey = kPatternKey;
      request.va = 0x7000;
      request.lane = m;
      switch (random_.below(6)) {
        case 0:
          request.kind = WorkKind::send_imm;
          request.imm = m;
          request.bytes = static_cast<uint32_t>(random_.below(9'000));
          break;
        case 1:
          request.kind = WorkKind::read;
          request.rkey = kMemoryKey;
          request.va = kMemoryBase + 32'768;
          request.bytes = static_cast<uint32_t>(random_.below(kSlotBytes));
          work.read_into.emplace_back(request.bytes);
          request.into = work.read_into.back().data();
          break;
        case 2:
          request.kind = WorkKind::fetch_add;
          request.rkey = kMemoryKey;
          request.va = kMemoryBase;
          request.swap_add = 1;
          ++work.adds;
          break;
        case 3:  // content that the test looks at: the last write of a place wins
          request.kind = WorkKind::write;
          request.rkey = kMemoryKey;
          request.va = kMemoryBase + 1024;
          request.bytes = 5'000;
          request.source = work.source.data() + m;
          last_offset_[&work == &work_a_ ? 0 : 1] = m;
          break;
        default:
          request.kind = WorkKind::write_imm;
          request.imm = m;
          request.bytes = static_cast<uint32_t>(random_.below(30'000));
      }
      if (request.kind == WorkKind::send_imm || request.kind == WorkKind::write_imm) {
        work.immediates.push_back(m);
        to.receives.post({});
      }
      from.qp.post(request);
      ++work.posted;
    }
  }

  void send(End& end, bool to_b) {
    Nanos& free_ns = free_ns_[to_b ? 1 : 0];
    while (end.qp.answer_due()) {
      const PacketRun run = end.qp.answer();
      end.qp.answer_sent(run);
      fly(run.head, to_b, free_ns);
    }
    for (int runs = 0; runs < 4 && end.qp.has_run() && free_ns <= now_ + 8 * kPacketNs; ++runs) {
      const PacketRun run = end.qp.next_run(8);
      end.qp.run_sent(run, now_);
      for (const auto& packet : unrolled(run)) fly(packet, to_b, free_ns);
    }
  }

  void fly(const wire::Packet& packet, bool to_b, Nanos& free_ns) {
    free_ns = std::max(free_ns, now_) + kPacketNs;
    const int copies = random_.one_in_million(duplicate_) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      if (random_.one_in_million(loss_)) {
        // What is left of it passes what waits.
        if (trims_ && random_.below(2) == 0) air_.push({now_ + kLatencyNs, order_++, to_b, packet, {}, true});
        continue;
      }
      const Nanos late_ns = random_.one_in_million(reorder_) ? reorder_ns_ : 0;
      Flying flying{free_ns + kLatencyNs + late_ns, order_++, to_b, packet, {}, false};
      if (packet.payload != nullptr) flying.content.assign(packet.payload, packet.payload + packet.payload_bytes);
      air_.push(std::move(flying));
    }
  }

  bool over() const {
    return link_.a.completed.size() == work_a_.posted && link_.b.completed.size() == work_b_.posted;
  }

  bool correct(const End& to, const Work& work) {
    std::vector<uint32_t> immediates;
    for (const Delivered& message : to.delivered) {
      if (message.has_imm) immediates.push_back(message.imm);
    }
    const End& from = &to == &link_.b ? link_.a : link_.b;
    for (uint32_t m = 0; m < from.completed.size(); ++m) {
      if (from.completed[m].lane != m || from.completed[m].flushed) return false;
    }
    for (const auto& into : work.read_into) {
      for (size_t i = 0; i < into.size(); ++i) {
        if (into[i] != static_cast<uint8_t>(i * 13 + 5)) return false;
      }
    }
    End& target = const_cast<End&>(to);
    uint64_t counter = 0;
    std::memcpy(&counter, target.memory.bytes().data(), sizeof counter);
    const uint32_t last = last_offset_[&work == &work_a_ ? 0 : 1];
    const bool written = last == UINT32_MAX || std::memcmp(target.memory.bytes().data() + 1024,
                                                           work.source.data() + last, 5'000) == 0;
    return immediates == work.immediates && counter == work.adds && written;
  }

  Random random_;
  Link link_;
  Work work_a_;
  Work work_b_;
  uint32_t last_offset_[2] = {UINT32_MAX, UINT32_MAX};
  std::priority_queue<Flying> air_;
  Nanos free_ns_[2] = {0, 0};
  Nanos now_ = 0;
  uint64_t order_ = 0;
  uint32_t loss_ = 0;
  bool trims_;
  uint32_t duplicate_ = 0;
  uint32_t reorder_ = 0;
  Nanos reorder_ns_ = 0;
};

}  // namespace

struct Totals {
  int64_t again = 0;
  int64_t naks = 0;
  int64_t timeouts = 0;
  int64_t early = 0;
  int64_t trimmed = 0;
  int64_t answered = 0;
};

int main(int count, char** arguments) {
  const uint64_t seeds = std::getenv("ETLOOP_FULL") != nullptr ? 10'000 : 200;
  const uint64_t only = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 0;
  Totals totals[std::size(kModes)];
  for (const Mode& mode : kModes) {
    Totals& total = totals[&mode - kModes];
    for (uint64_t seed = only != 0 ? only : 1; seed <= (only != 0 ? only : seeds); ++seed) {
      Run run(mode, seed);
      const bool good = run.run();
      CHECK(good);
      if (!good) std::cerr << "  seed " << seed << ", " << mode.name << ": " << run.state() << '\n';
      if (test::failures() > 8) return test::failures();
      const FlowRecord counters = run.counters();
      total.again += counters.retransmitted_packets;
      total.naks += counters.packet_seq_err;
      total.timeouts += counters.local_ack_timeout_err;
      total.early += counters.out_of_sequence;
      total.trimmed += counters.trimmed_received;
      total.answered += counters.trimmed_answered;
    }
    std::cout << mode.name << ": sent again " << total.again << ", NAKs " << total.naks << ", timeouts "
              << total.timeouts << ", early " << total.early << ", cut " << total.trimmed << ", answered " << total.answered
              << '\n';
  }
  if (only != 0) return test::failures();
  // The modes differ in what they are for, or the switches do nothing.
  CHECK(totals[2].again * 2 < totals[0].again);
  CHECK(totals[1].naks < totals[0].naks);
  for (const Totals& total : totals) CHECK(total.early > 1'000);
  for (const Totals& total : totals) CHECK_EQ(total.answered > 100, kModes[&total - totals].trims);
  CHECK(totals[4].timeouts < totals[0].timeouts);
  return test::failures();
}
