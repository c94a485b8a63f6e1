// A port whose transport is an RDMA NIC: messages are posted to its queue pairs, completions come back. The card segments, paces,
// acknowledges and retransmits; its behaviour on the wire is measured.
//
// Data is sent as WRITE_WITH_IMM to the granted address and key, a grant as a 64-byte WRITE into a ring at the data's sender, as
// in NCCL. A card does not report the address of an arriving write, so that its peers put the grant number into the immediate.
// Grants cause no event: the rings are polled. So are the words that closing atomics of one-sided writes are added to; nothing
// else reports these.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/carrier.h"
#include "plan/carrier_needs.h"
#include "plan/plan.h"
#include "plan/records.h"
#include "port/device_port.h"
#include "port/verbs/verbs_device.h"

namespace etloop {

struct VerbsPortConfig {
  std::string device;
  int32_t gid_index = -1;  // -1: found by address
  std::vector<IpAddress> addresses;
  TransportSettings transport;
  CarrierNeeds needs;
  std::vector<std::string> unmet;  // requested but unsupported by cards, one sentence each
};

// Return the requested features of a port that cards do not support, one sentence each.
std::vector<std::string> unmet_by_a_card(const PortConfig& config, bool has_faults);

class VerbsPort final : public DevicePort, public Carrier {
 public:
  // Data region for sent and received messages; places overlap, because the content is meaningless.
  static constexpr size_t kLeastDataBytes = 16U << 20;
  static constexpr size_t kMostDataBytes = 64U << 20;

  static Result<std::unique_ptr<VerbsPort>> open(const VerbsPortConfig& config);

  Result<void> add_end(const EndSettings& settings) override;
  Endpoint endpoint(uint32_t end) const override;
  Result<void> connect(uint32_t end, const Endpoint& peer) override;
  void post(uint32_t end, const WorkRequest& request) override;
  uint64_t room(uint32_t end, uint32_t bytes, uint32_t& rkey) override;
  void watch(uint32_t end, uint32_t tag) override { watched_.push_back({end, tag}); }

  Result<std::unique_ptr<Core>> make_core(const EnginePlan& plan, int32_t port) override;
  // Process at most about `budget` completions, and all grants and closings in memory. Returns their total number.
  size_t receive_into(Core& core, size_t budget) override;
  // Send probes only: other requests go to the card when posted.
  bool transmit_from(Core& core, Clock& clock, size_t budget) override;
  // While grants may arrive without an event, sleep at most kRingPollNs.
  void wait(Nanos timeout_ns, int wake_fd) override;
  static constexpr Nanos kRingPollNs = 50'000;

  const PortRecord& counters() const override { return counters_; }
  int64_t receive_buffer_bytes() const override { return -1; }
  std::vector<std::string> degraded() const override { return degraded_; }

 private:
  // Requests [head, posted) are at the card, [posted, tail) wait for room in its queue.
  struct SendRing {
    std::vector<WorkRequest> slots;  // power of two
    uint64_t head = 0;
    uint64_t posted = 0;
    uint64_t tail = 0;
    WorkRequest& at(uint64_t position) { return slots[position & (slots.size() - 1)]; }
    void push(const WorkRequest& request);
  };
  struct End {
    EndSettings settings;
    verbs::QueuePair* pair = nullptr;
    uint32_t gid_index = 0;
    uint8_t* ring = nullptr;      // of the first sending end of a connection
    uint64_t* closings = nullptr;  // of the first receiving end of a connection, if ops are closed by atomics
    std::vector<uint64_t> read_closings;  // last value read of each word
    uint64_t next_grant = 1;
    uint8_t* outgoing = nullptr;  // outgoing grants of a receiving end
    uint64_t sent_grants = 0;
    SendRing sending;
    bool connected = false;
  };

  struct Watched {
    uint32_t end;
    uint32_t tag;
  };

  VerbsPort() = default;
  Result<void> suits();
  Result<void> lay_out();
  void give_memory(End& end);
  void fill(const WorkRequest& request, End& end, verbs::SendRequest& posted, verbs::Piece& piece);
  bool post_receive(End& end, uint32_t index);
  void flush(uint32_t index);
  void complete(const verbs::Completion& done, CarrierSink& sink, Nanos now);
  size_t receive(CarrierSink& sink, size_t budget);
  size_t poll_card();
  size_t take_grants(CarrierSink& sink, Nanos now);
  size_t take_closings(CarrierSink& sink, Nanos now);

  VerbsPortConfig config_;
  std::unique_ptr<verbs::OpenDevice> device_;
  std::vector<uint32_t> gid_of_address_;
  std::vector<End> ends_;
  std::vector<uint32_t> polled_;  // connected sending ends with a ring
  std::vector<Watched> watched_;
  size_t data_bytes_ = 0;
  uint32_t send_depth_ = 0;
  uint32_t receive_depth_ = 0;
  size_t rings_given_ = 0;
  size_t closings_given_ = 0;
  size_t outgoing_given_ = 0;
  uint8_t* rings_ = nullptr;
  uint8_t* closings_ = nullptr;
  uint8_t* outgoing_ = nullptr;
  uint8_t* scratch_ = nullptr;  // destination of the results of sent atomics; never read
  uint64_t next_room_ = 0;
  PortRecord counters_{};
  std::vector<std::string> degraded_;
  std::array<verbs::Completion, 32> done_{};  // [0, seen_) are to be processed
  size_t seen_ = 0;
  std::string post_error_;
  uint32_t post_error_end_ = 0;
};

}  // namespace etloop
