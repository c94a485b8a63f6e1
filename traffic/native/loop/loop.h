// The loop of a port, one thread: receive a batch, step the core, run timers, transmit. It shares only atomics and the
// append-only record log below with other threads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/instant_guard.h"
#include "core/core.h"
#include "core/pause_timer.h"
#include "loop/loop_board.h"
#include "loop/realtime_keeper.h"
#include "loop/send_allowance.h"
#include "loop/thread_place.h"
#include "loop/turn_watch.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "port/device_port.h"

namespace etloop {

enum class LoopState : uint8_t { open, probing, ready, running, done, failed, stopped };

struct LoopConfig {
  PortConfig port;
  std::vector<PortConfig> planes;  // planes of a multi-plane card, including `port`; empty: a single port
  // How long an idle loop polls before it sleeps; 0 if the host has fewer cores than busy threads.
  Nanos spin_ns = 0;
  ThreadPlace place;
  SendLimits limits;
};

struct LoopStatus {
  LoopState state;
  int64_t ops_done;
  int64_t ops_total;
  int64_t wire_tx_bytes;
  int64_t wire_rx_bytes;
  Nanos last_progress_ns;
};

// An op that another thread posts to a rank of the port, see `Ops::post`.
struct PostedOp {
  int32_t rank;
  int32_t op;
  int64_t bytes;
  int32_t id;
};

class PortLoop {
 public:
  // Open the port and start the thread.
  static Result<std::unique_ptr<PortLoop>> open(std::shared_ptr<const EnginePlan> plan, std::shared_ptr<LoopBoard> board,
                                                int32_t port, const LoopConfig& config);
  ~PortLoop();
  PortLoop(const PortLoop&) = delete;
  PortLoop& operator=(const PortLoop&) = delete;

  // Endpoints on cards must be exchanged between peers: call `join` before `start_probe`, and only if some endpoint is on a card.
  std::vector<Endpoint> endpoints() const { return core_->endpoints(); }
  void join(std::vector<Endpoint> peers);
  // Whether `join` is done, or was not needed.
  bool joined() const { return progress_.joined.load(std::memory_order_acquire); }
  void start_probe();
  // Let the ops of these ranks be posted, those that are here, and signal every completed op to an event descriptor; call before
  // `start`.
  void expect_posts(std::vector<int32_t> ranks, int signal_fd);
  // Begin ops of ranks that are here and expected posts; `last`: no more will follow.
  void post(std::span<const PostedOp> ops, bool last);
  void start(Nanos start_ns);
  void request_waits();
  // Ask the thread to end, without waiting: several ports end in parallel.
  void begin_stop();
  void stop();

  LoopStatus status() const;
  // Valid once the state is failed: the core's failure, and why the kernel lost packets before it, which may be the cause.
  std::string failure() const {
    const std::string loss = port_->link_loss();
    return loss.empty() ? core_->failure() : core_->failure() + "; before, " + loss;
  }
  int32_t failed_connection() const { return core_->failed_connection(); }
  // Records [0, published_records()) are final and may be read while the loop runs.
  size_t published_records() const { return progress_.records.load(std::memory_order_acquire); }
  // Contiguous published records from `first`.
  std::span<const OpRecord> records(size_t first) const { return core_->records().piece(first, published_records()); }
  // Release the records before `end`, which were read; called by the reading thread.
  void release_records(size_t end) { progress_.read_records.store(end, std::memory_order_release); }
  size_t released_records() const { return progress_.read_records.load(std::memory_order_relaxed); }
  // True once after request_waits(): `out` has the answer.
  bool take_waits(std::vector<WaitRecord>& out);
  // Valid once the state is ready or later.
  const Prober& prober() const { return core_->probing().prober(); }
  // After stop(): the core with its counters.
  const Core& core() const { return *core_; }
  // By plane of its card; one row for a single port.
  std::vector<PortRecord> counters() const;
  int64_t receive_buffer_bytes() const { return port_->receive_buffer_bytes(); }
  std::vector<std::string> degraded() const;
  std::vector<std::string> capabilities() const;
  // After stop(): late turns of its thread.
  const std::vector<LateTurn>& late_turns() const { return watch_.late(); }
  bool realtime() const { return realtime_.load(std::memory_order_acquire); }

 private:
  PortLoop(std::shared_ptr<const EnginePlan> plan, std::shared_ptr<LoopBoard> board, int32_t port, const LoopConfig& config)
      : plan_(std::move(plan)), board_(std::move(board)), index_(static_cast<size_t>(port)),
        links_(*board_, index_), config_(config) {
    departing_.allowance = SendAllowance(config.limits);
  }
  // Progress for other threads.
  struct Progress {
    std::atomic<size_t> records{0};
    std::atomic<size_t> read_records{0};  // written by the reading thread
    std::atomic<int64_t> ops_done{0};
    std::atomic<int64_t> wire_tx_bytes{0};
    std::atomic<int64_t> wire_rx_bytes{0};
    std::atomic<Nanos> last_ns{0};
    std::atomic<bool> joined{true};  // endpoints on cards are joined
  };
  enum Command : uint32_t { kProbe = 1, kStart = 2, kWaits = 4, kStop = 8, kJoin = 16, kPost = 32 };
  Result<void> open_port();
  void run();
  bool handle_commands(uint32_t commands);
  bool process_handed_over();
  void publish();
  void signal_arrivals(size_t before, size_t records);
  void settle_state();
  void begin_posted();
  void send_pauses(Nanos now);
  bool transmit(Clock& clock, Nanos now);
  void idle(Nanos now, Nanos& idle_since_ns);
  void share_core(Nanos now);
  void command(Command what);

  std::shared_ptr<const EnginePlan> plan_;
  std::shared_ptr<LoopBoard> board_;
  size_t index_;
  LoopLinks links_;
  LoopConfig config_;
  std::unique_ptr<DevicePort> port_;
  std::unique_ptr<Core> core_;
  std::thread thread_;
  std::vector<std::string> place_refused_;  // written before open() returns
  std::atomic<bool> realtime_{false};
  RealtimeShare share_;
  std::unique_ptr<RealtimeKeeper> keeper_;  // exists before realtime_ is set
  TurnWatch watch_;  // owned by the loop until it is joined

  std::atomic<uint32_t> commands_{0};
  std::atomic<Nanos> start_ns_{0};
  std::atomic<LoopState> state_{LoopState::open};
  Progress progress_;
  std::atomic<bool> waits_ready_{false};
  std::vector<Endpoint> peers_;    // written before kJoin
  InstantGuard overdue_{most_turns_at_an_instant(0)};  // guards the core's due time
  // Ops of other threads on their way to the loop.
  struct Posts {
    std::vector<int32_t> ranks;  // written before kStart
    int requested_fd = -1;       // written before kStart
    int signal_fd = -1;          // owned by the loop
    std::mutex lock;
    std::vector<PostedOp> waiting;
    bool last = false;
  };
  Posts posts_;
  // Conditions of departures other than the core; owned by the loop.
  struct Departing {
    PauseTimer pauses;
    SendAllowance allowance{SendLimits{}};
  };
  Departing departing_;
  // Conditions for the end of the loop; owned by it.
  struct Leaving {
    Nanos last_received_ns = 0;
    Nanos by_ns = kNever;        // latest end; kNever: not requested
    bool only_receives = false;  // the run was aborted
    Nanos at_ns() const;
  };
  Leaving leaving_;
  std::vector<WaitRecord> waits_;  // written by the loop before waits_ready_, read after
  // Owned by the loop until it is joined.
  struct TurnCounts {
    int64_t all = 0;
    int64_t idle = 0;
    int64_t blocked_ns = 0;
  };
  TurnCounts turns_;
};

// Return the processors this process may run on, ascending.
std::vector<int32_t> usable_processors();

}  // namespace etloop
