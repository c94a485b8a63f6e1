// One port's share of a run, without I/O: the ranks on it, their lanes, queue pairs and timers. Packets and time come in
// as arguments; packets go out through a TxPort; the same code runs on sockets and in virtual time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/fixed_row.h"
#include "base/ip_address.h"
#include "base/time.h"
#include "base/turnarounds.h"
#include "cc/ack_outcome.h"
#include "cc/etloop_cc.h"
#include "cc/flow_controls.h"
#include "cc/rate_series.h"
#include "core/carrier.h"
#include "core/events.h"
#include "core/faults.h"
#include "core/message.h"
#include "core/message_carrier.h"
#include "core/port.h"
#include "core/probe.h"
#include "core/rank.h"
#include "core/scale_up.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "qp/qp.h"
#include "qp/window_pools.h"
#include "wire/packet_run.h"

namespace etloop {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() = 0;
};

// Opens the five-tuple (local address index, peer, UDP source port) with its traffic class at the port. False: the text says why.
using FlowOpener = std::function<bool(uint16_t address, IpAddress dst_ip, uint16_t src_port, uint8_t traffic_class,
                                      FlowId& flow, std::string& error)>;

// Point-to-point receives are granted this many ahead of their RECV op (eager receives; docs/decisions.md).
inline constexpr size_t kEagerReceives = 16;

// Packets that one queue pair may have under way, whatever its peer offers.
inline constexpr uint32_t kMostWindow = 256;

struct CoreStatus {
  int64_t ops_done = 0;
  int64_t wire_tx_bytes = 0;
  int64_t wire_rx_bytes = 0;
  Nanos last_progress_ns = 0;
};

class Core final : public PortSink, public CarrierSink {
 public:
  // `receive_buffer_bytes` (least over the port's addresses) sizes the windows offered to peers.
  // What the queue pairs are made of comes from `memory`, which outlives the core.
  static std::unique_ptr<Core> make(const EnginePlan& plan, int32_t port, int64_t receive_buffer_bytes,
                                    const FlowOpener& open_flow, std::string& error,
                                    std::pmr::memory_resource& memory = *std::pmr::new_delete_resource());
  // The same over a network card that carries whole messages; `carrier` outlives the core.
  static std::unique_ptr<Core> make(const EnginePlan& plan, int32_t port, Carrier& carrier, std::string& error);
  // All ranks of the plan, on whatever port, without packets: `network` takes their messages and outlives the core.
  static std::unique_ptr<Core> make_carried(const EnginePlan& plan, MessageCarrier& network, std::string& error);

  // What peers must know of ends that were not ours to number; empty over packets.
  std::vector<Endpoint> endpoints() const;
  // What peers told of theirs, before the first packet. Ends that nothing is told of are as the plan has them.
  void set_peer_endpoints(const std::vector<Endpoint>& peers);

  // Before the start: acknowledgements of grants, for which nobody waits, may stay so long while there is data to send.
  // Far less than the peer waits before it repeats them.
  void set_answer_patience(Nanos patience_ns) {
    const Nanos peer_waits_ns = std::min(plan_.transport.timeout_floor_ns, plan_.transport.timeout_ns);
    answer_patience_ns_ = faults_ == nullptr ? std::min(patience_ns, peer_waits_ns / 16) : 0;
  }

  void start_probe() { prober_.start(); }
  const Prober& prober() const { return prober_; }
  bool probing() const { return prober_.running() && !prober_.over(); }
  void start(Nanos start_ns);
  // Before the start: the way to ranks of the same host on other ports.
  void join(ScaleUpLinks& links) { links_ = &links; }

  void on_datagram(const Datagram& datagram, Nanos now) override;
  // A datagram for the queue pair of this number comes next.
  void expect_datagram(uint32_t dest_qpn) const;
  void on_grant(uint32_t end, const ClearToSend& grant, Nanos now) override;
  void on_message(uint32_t end, uint32_t number, uint32_t bytes, Nanos now) override;
  void on_closing(uint32_t end, uint32_t tag, uint64_t added, Nanos now) override;
  void on_carried(uint32_t end, const WorkRequest& request, Nanos now) override;
  void on_carrier_fault(uint32_t end, const std::string& reason) override;
  // Another port of the host hands something over; it takes effect when it is due.
  void on_scale_up(const ScaleUpMessage& message);
  // The carrier has brought a grant, a message or part of one, and the acknowledgement of it, to its end.
  void on_granted(int32_t connection, uint32_t tag, uint32_t index, Nanos now);
  void on_arrived(const CarriedMessage& message, Nanos now);
  void on_acknowledged(const CarriedMessage& message, Nanos now);
  // Timers that are due, and the beginning of the run.
  void on_time(Nanos now) {
    if (faults_ != nullptr || now >= std::min(start_ns_, events_.next_due())) on_due(now);
  }
  // Begins every op whose dependencies are met.
  void issue(Nanos now) {
    if (!ready_.empty()) issue_ready(now);
  }
  // Sends at most `budget` runs. True: there is more that could be sent now.
  bool transmit(TxPort& port, Clock& clock, size_t budget);
  // Over a card: probes; everything else went to it when it came up.
  void send_probes(Nanos now);
  Nanos next_deadline() const;

  // All ranks that the run waits for.
  bool finished() const { return ranks_finished_ == ranks_awaited_; }
  const std::string& failure() const { return failure_; }
  int32_t failed_connection() const { return failed_connection_; }
  const CoreStatus& status() const { return status_; }
  // Completed ops in order of completion; only grows, never reallocates.
  const std::vector<OpRecord>& records() const { return records_; }
  int64_t total_ops() const { return total_ops_; }
  std::vector<FlowRecord> flows() const;
  std::vector<WaitRecord> waits() const;
  int64_t foreign_datagrams() const { return foreign_datagrams_; }
  FaultCounts fault_counts() const { return faults_ == nullptr ? FaultCounts{} : faults_->counts(); }
  const std::vector<uint64_t>& turnarounds() const { return turnarounds_; }
  // Rates and windows over time; nullptr: they were not asked for.
  const RateSeries* series() const { return series_.get(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kBegun = UINT32_MAX - 1;
  static constexpr uint32_t kOneSidedMark = 1U << 31;  // in the message index of a local arrival
  static constexpr uint32_t kLaneOver = UINT32_MAX - 1;
  static constexpr int32_t kEveryPort = -1;

  // Where an op stands on one channel.
  struct ChannelRun {
    int32_t next_lane = -1;  // first of those not opened yet
    int32_t batch = 0;       // of the lanes that are open
    uint32_t open_lanes = 0;
  };
  struct OpRun {
    OpRecord record{};
    uint32_t rank_index = 0;
    uint32_t open_lanes = 0;
    int32_t first_lane = 0;
    int32_t end_lane = 0;
    int32_t table = 0;
    bool issued = false;
    bool in_use = false;
    // Where lanes of the table wait for each other: the LaneRun of each, kNone before it is opened, kLaneOver after.
    std::vector<uint32_t> lane_runs;
    std::vector<ChannelRun> channels;  // of a table with several batches
  };
  struct EagerQueue {
    uint32_t slot;
    std::vector<int32_t> ops;  // RECVs of one pair, by sequence
    size_t next = 0;
  };
  // (channel, position) -> connection.
  class ConnectionIndex {
   public:
    void add(int32_t channel, int32_t position, int32_t connection) {
      items_.push_back({key(channel, position), connection});
    }
    void finish();
    int32_t find(int32_t channel, int32_t position) const;

   private:
    struct Item {
      uint64_t key;
      int32_t connection;
    };
    static uint64_t key(int32_t channel, int32_t position) {
      return static_cast<uint64_t>(channel) << 32 | static_cast<uint32_t>(position);
    }
    std::vector<Item> items_;
  };
  struct CommunicatorSlot {
    int32_t communicator = 0;
    int32_t position = 0;
    uint32_t ops = 0;  // collectives per iteration
    ConnectionIndex send_to;
    ConnectionIndex recv_from;
  };
  struct PeerSlot {
    int32_t peer = 0;
    uint32_t sends = 0;  // per iteration
    uint32_t recvs = 0;
    ConnectionIndex send_to;  // by channel; position 0
    ConnectionIndex recv_from;
  };
  struct LocalRank {
    int32_t rank;
    RankRun run;
    std::vector<CommunicatorSlot> communicators;
    std::vector<PeerSlot> peers;
    std::vector<EagerQueue> eager;
    std::vector<uint32_t> receive_run;  // RECV op -> OpRun opened ahead of it; kNone: not yet; kBegun: the op has begun
    Nanos egress_free_ns = 0;           // of the scale-up model
    bool awaited = true;                // by the run; else its progress is none
    uint8_t traffic_class = 0;
  };
  // A message that a card at this end will only know by the number of its grant.
  struct GrantedMessage {
    uint64_t number = 0;  // 0: none is under way
    uint32_t tag = 0;
    uint32_t index = 0;
    uint32_t missing_parts = 0;
  };
  struct ConnectionEnds {
    uint32_t src_index = kNone;  // local rank at the sending end, if it is here
    uint32_t dst_index = kNone;
    int32_t other_port = -1;  // of a connection inside a host with one end here: where the other end is
    std::vector<uint32_t> send_qps;
    std::vector<uint32_t> recv_qps;
    ActiveLanes sending;
    ActiveLanes receiving;
    EarlyGrants early;
    EarlyArrivals early_arrivals;
    uint32_t next_message = 0;
    uint64_t grants = 0;
    uint32_t data_rkey = 0;
    // Over a card at either end (core_carrier.cpp).
    Endpoint grant_ring{};  // of a sender on a card; rkey 0: the sender is ours
    Endpoint landing{};     // of a receiver on a card; rkey 0: the receiver is ours
    std::vector<GrantedMessage> numbered;  // by number % its size; of a receiver on a card
    std::unique_ptr<ReceiveQueue> receives;  // shared by the queue pairs at the receiving end
  };
  // By connection row. A port has few of the rows of a large job; all others share one that has nothing here.
  class EndTable {
   public:
    void resize(size_t rows) {
      place_.assign(rows, 0);
      ends_.resize(1);
    }
    size_t size() const { return place_.size(); }
    // Before anything is kept of a row that has an end here.
    ConnectionEnds& make(size_t row) {
      if (place_[row] == 0) {
        place_[row] = static_cast<uint32_t>(ends_.size());
        ends_.emplace_back();
      }
      return ends_[place_[row]];
    }
    ConnectionEnds& operator[](size_t row) { return ends_[place_[row]]; }
    const ConnectionEnds& operator[](size_t row) const { return ends_[place_[row]]; }

   private:
    std::vector<uint32_t> place_;  // 0: elsewhere
    std::vector<ConnectionEnds> ends_;
  };
  // The queue pair in front of a ring when the port held its run, while another try before `until_ns` would come to the same.
  struct HeldFront {
    uint32_t qp = kNone;
    FlowId flow = 0;
    Nanos until_ns = 0;
  };
  // Queue pairs that may have something to send, each at most once, in turn.
  class TransmitRing {
   public:
    HeldFront held;
    void resize(size_t queue_pairs) { slots_.assign(queue_pairs + 1, 0); }
    size_t size() const { return count_; }
    uint32_t front() const { return slots_[head_]; }
    // The one whose turn is so many after the front's; requires as many more.
    uint32_t behind_front(size_t turns) const { return slots_[place(turns)]; }
    void push(uint32_t qp) { slots_[place(count_++)] = qp; }
    void pop() {
      head_ = place(1);
      --count_;
    }

   private:
    size_t place(size_t behind_front) const {
      const size_t at = head_ + behind_front;
      return at < slots_.size() ? at : at - slots_.size();
    }

    std::vector<uint32_t> slots_;
    size_t head_ = 0;
    size_t count_ = 0;
  };
  struct QpPlace {
    int32_t connection;
    bool sends_data;
    IpAddress peer_ip;
    uint16_t address;
    uint32_t ordinal;  // among those of its connection
    uint8_t traffic_class;
  };

  Core(const EnginePlan& plan, int32_t port, std::pmr::memory_resource& memory = *std::pmr::new_delete_resource());
  bool load(int64_t receive_buffer_bytes, const FlowOpener& open_flow, std::string& error);
  bool load_ranks(std::string& error);
  bool index_connections(std::string& error);
  void load_ends();
  size_t queue_pairs_here() const;
  bool load_connections(const FlowOpener& open_flow, std::string& error);
  bool open_qps(size_t row, const FlowOpener& open_flow, std::string& error);
  void load_windows(int64_t receive_buffer_bytes);

  // ops (core.cpp)
  void on_due(Nanos now);
  void issue_ready(Nanos now);
  void begin_iteration(uint32_t rank_index, Nanos at_ns);
  void note_progress(uint32_t rank_index, Nanos now) {
    if (ranks_[rank_index].awaited) status_.last_progress_ns = std::max(status_.last_progress_ns, now);
  }
  void local_arrived(const Event& event, Nanos now);
  void issue_op(const ReadyOp& ready, Nanos now);
  uint32_t open_op(uint32_t rank_index, int32_t op);
  void open_lanes(uint32_t run, Nanos now);
  void open_first_batches(uint32_t run, Nanos now);
  void open_next_batch(uint32_t run, int32_t channel, Nanos now);
  void open_lane(uint32_t run, int32_t lane, Nanos now);
  void connect_lane(uint32_t lane, Nanos now);
  bool find_connections(const OpRun& run, const Lane& lane, int32_t& send_connection, int32_t& recv_connection) const;
  void open_eager(uint32_t rank_index, EagerQueue& queue, Nanos now);
  void lane_over(uint32_t lane, Nanos now);
  void lanes_drained(uint32_t run, Nanos now);
  void finish_op(uint32_t run, Nanos now);
  void complete(uint32_t rank_index, int32_t op, Nanos at_ns);

  // lanes and messages (core_messages.cpp)
  void pump(uint32_t lane, Nanos now);
  void move_lanes(Nanos now);
  void queue_lane(uint32_t lane);
  void move_lane(uint32_t lane, Nanos now);
  bool released(const LaneRun& lane) const;
  bool may_grant(const LaneRun& lane) const;
  void wake_dependents(uint32_t run, int32_t lane_number);
  uint32_t parts_of(int32_t connection, bool one_sided) const;
  int64_t most_message_bytes(int32_t connection) const;
  void refuse_size(int32_t connection);
  void send_grant(uint32_t lane, Nanos now);
  void send_message(uint32_t lane, Nanos now);
  void post_message(uint32_t lane, uint32_t index, int64_t bytes, Nanos now);
  void send_closing(uint32_t lane, Nanos now);
  void send_local(uint32_t lane, uint32_t index, int64_t bytes, Nanos now);
  void carry_message(uint32_t lane, uint32_t index, int64_t bytes, Nanos now);
  // `part_bytes` of a message of `bytes`; all of it unless data is split over queue pairs.
  void message_arrived(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, int64_t part_bytes, bool on_wire,
                       Nanos now);
  void one_sided_arrived(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, bool on_wire, Nanos now);
  void count_arrival(uint32_t lane, int64_t part_bytes, bool message_complete, bool on_wire, Nanos now);
  void refuse_grant(int32_t connection, uint32_t tag);
  void refuse_message(int32_t connection, uint32_t tag, uint32_t index, int64_t bytes, LaneRun::Arrival arrival);
  void grant_arrived(int32_t connection, uint32_t tag, const Grant& grant, Nanos now);
  void message_acknowledged(uint32_t lane, uint32_t index, Nanos now);
  void post(uint32_t qp, const WorkRequest& request, Nanos now);

  // queue pairs of a network card (core_carrier.cpp)
  bool open_carried(size_t row, std::string& error);
  bool place_grant(uint32_t qp, ConnectionEnds& ends, WorkRequest& request, uint32_t index);
  void post_carried(uint32_t qp, const WorkRequest& request, Nanos now);
  bool probes_by_write(uint32_t qp) const;
  void probe_by_write(size_t target, Nanos now);
  void probe_answered(uint32_t qp, Nanos now);

  // packets (core_packets.cpp)
  void on_probe(const wire::Packet& packet, const Datagram& datagram, uint32_t qp, Nanos now);
  void on_delivered(uint32_t qp, const Delivered& delivered, Nanos now);
  void retire(uint32_t qp, Nanos now);
  void on_qp_timer(uint32_t qp, Nanos now);
  void accept(const Datagram& datagram, bool faultless, Nanos now);
  void dispatch(uint32_t qp, const wire::Packet& packet, const Datagram& datagram, Nanos now);
  void load_faults();
  void on_request(uint32_t qp, const wire::Packet& packet, bool marked, Nanos now);
  void on_answer(uint32_t qp, const wire::Packet& packet, std::span<const etloop_cc_hop> hops, Nanos now);
  void notify_congestion(uint32_t qp, Nanos now);
  void queue_transmit(uint32_t qp);
  void queue_acknowledgement(uint32_t qp, Nanos now);
  void arm_timer(uint32_t qp);
  uint32_t room_for(uint32_t qp, const PacketRun& run);
  void settle_window(uint32_t qp);
  void wake_windows(uint32_t qp);
  TxResult transmit_one(TransmitRing& ring, TxPort& port, Clock& clock);
  TxResult transmit_run(TransmitRing& ring, TxPort& port, Clock& clock);
  void expect_turns(const TransmitRing& ring) const;
  bool still_held(const TransmitRing& ring, TxPort& port, Clock& clock);
  void keep_held(TransmitRing& ring);
  void forget_held(uint32_t qp);
  void forget_held() { data_ring_.held.qp = grant_ring_.held.qp = kNone; }
  bool transmit_all_answers(TxPort& port, Clock& clock);
  bool transmit_all(TxPort& port, Clock& clock, size_t budget);
  bool any_answers() const;
  bool transmit_answers(TxPort& port, std::vector<uint32_t>& queue);
  bool patience_is_over(Clock& clock) const;
  bool transmit_notifications(TxPort& port);
  bool transmit_probes(TxPort& port, Clock& clock);
  void fail(int32_t connection, std::string reason);
  std::string connection_text(int32_t connection) const;

  // congestion control (core_flow.cpp)
  void load_flow_controls();
  uint32_t link_bytes(uint32_t qp) const;
  uint32_t allowed_packets(uint32_t qp, PacketRun& run, Nanos horizon_ns, Clock& clock);
  void arm_flow_timer(uint32_t qp, FlowControl& control);
  void on_flow_timer(uint32_t qp, Nanos due_ns);
  void flow_sent(uint32_t qp, const PacketRun& run, int64_t fresh_packets, Nanos now);
  void flow_acknowledged(uint32_t qp, const AckOutcome& outcome, std::span<const etloop_cc_hop> hops, Nanos now);
  void flow_notified(uint32_t qp, Nanos now);
  void flow_timed_out(uint32_t qp, Nanos now);
  void flow_probed(uint32_t qp, Nanos round_trip_ns, uint32_t window_packets);
  void write_series(Nanos now);

  void add_lane_waits(const LaneRun& lane, const OpRun& run, std::vector<WaitRecord>& out) const;

  struct ProbeReply {
    uint32_t qp;
    uint32_t target;
    uint8_t traffic_class;
  };

  const EnginePlan& plan_;
  int32_t port_;
  // What every turn looks at, whatever came, is together: a host of many ports goes from one to the other.
  bool answers_wait_ = false;  // the port took no more before their turn came
  Nanos start_ns_ = kNever;
  EventHeap events_;
  std::vector<ReadyOp> ready_;
  size_t ready_head_ = 0;
  TransmitRing data_ring_;   // of sending ends
  TransmitRing grant_ring_;  // of receiving ends: clear-to-send writes
  std::vector<uint32_t> ack_queue_;
  std::vector<uint32_t> patient_queue_;  // of the same those that nobody waits for, since then
  Nanos patient_since_ns_ = 0;
  Nanos answer_patience_ns_ = 0;
  std::vector<uint32_t> cnp_queue_;
  std::vector<ProbeReply> probe_replies_;
  std::unique_ptr<FaultInjector> faults_;  // nullptr: no rule concerns this port
  std::string failure_;
  Prober prober_;
  std::vector<OpRecord> records_;
  size_t ranks_finished_ = 0;  // of those that are awaited
  size_t ranks_awaited_ = 0;

  std::vector<uint32_t> qp_by_number_;  // qpn - qpn_base -> index
  FixedRow<Qp> qps_;
  std::pmr::vector<QpPlace> places_;
  FlowControls flow_controls_;
  WindowPools pools_;
  Carrier* carrier_ = nullptr;  // nullptr: queue pairs of ours over packets
  std::vector<LocalRank> ranks_;
  EndTable ends_;
  std::vector<uint32_t> offered_window_;  // by local address
  std::vector<uint32_t> offered_share_;   // the same before it is rounded, in parts of a packet
  LanePool lanes_;
  std::vector<uint32_t> moving_;  // lanes that may be able to move; worked off in order
  bool is_moving_ = false;
  std::vector<OpRun> runs_;
  std::vector<uint32_t> free_runs_;
  Nanos cnp_after_ns_ = 0;  // of the whole port
  ScaleUpLinks* links_ = nullptr;
  MessageCarrier* network_ = nullptr;  // nullptr: messages become packets, or stay in the host
  std::unique_ptr<RateSeries> series_;
  std::vector<uint32_t> watched_;  // queue pairs of the series
  int64_t total_ops_ = 0;
  CoreStatus status_;
  std::vector<uint64_t> turnarounds_;
  int32_t failed_connection_ = kNoConnection;
  Nanos trigger_ns_ = 0;  // arrival of the message whose consequences are being worked out, 0 if there is none
  Nanos port_free_ns_ = 0;
  int64_t foreign_datagrams_ = 0;
};

}  // namespace etloop
