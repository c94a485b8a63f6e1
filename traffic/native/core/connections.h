// Connections with an end on this port, and the constant properties of those ends: local ranks, queue pairs, peer location. State
// that changes during a run is held by its owner in a table indexed by `place`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/plan.h"
#include "qp/memory.h"

namespace etloop {

inline constexpr uint32_t kNotHere = UINT32_MAX;

// Home of a rank that runs on another queue of the port but has a queue pair here.
struct EndHome {
  int32_t port = -1;
  uint8_t traffic_class = 0;
};

struct ConnectionEnds {
  uint32_t src_index = kNotHere;  // local rank at the sending end, if it is here
  uint32_t dst_index = kNotHere;
  EndHome src_home;  // if the sending end's rank is on another queue
  EndHome dst_home;
  int32_t other_port = -1;  // port of the other end, for a connection inside the host with one end here
  uint32_t data_rkey = 0;
  bool is_sent = false;  // its messages are SENDs: a message is that of the receive which it takes
  std::vector<uint32_t> send_qps;
  std::vector<uint32_t> recv_qps;
  std::unique_ptr<ReceiveQueue> receives;  // shared by the queue pairs at the receiving end; nullptr: receives are not counted
};

class Connections {
 public:
  explicit Connections(const EnginePlan& plan) : plan_(plan) {}

  // Find the ends on this port: `local` maps every local rank to its index.
  void load(const std::map<int32_t, uint32_t>& local);
  // Find queue pairs dealt to this port whose ranks run on other queues.
  void load_guests(int32_t port);
  // Number of other queues whose ranks have queue pairs here.
  size_t homes() const { return homes_; }
  // Find the port of the other end of each connection inside the host. Fails if a connection leaves the host of `port`.
  Result<void> find_other_ports(int32_t port);

  // Rows of the plan, with or without an end here.
  size_t size() const { return place_.size(); }
  // A port has an end of few of a large job's connections: those have places from 1 on; all others share the empty place 0.
  uint32_t place(int32_t row) const { return place_[static_cast<size_t>(row)]; }
  size_t places() const { return ends_.size(); }
  ConnectionEnds& operator[](int32_t row) { return ends_[place(row)]; }
  const ConnectionEnds& operator[](int32_t row) const { return ends_[place(row)]; }

  const PlannedConnection& planned(int32_t row) const { return plan_.connections[static_cast<size_t>(row)]; }
  bool on_wire(int32_t row) const { return planned(row).path == Path::wire; }
  // Number of parts that each message of the connection is split into.
  uint32_t parts_of(int32_t row, bool one_sided) const {
    const bool split = plan_.transport.split_data_on_qps && !one_sided && on_wire(row);
    return split ? static_cast<uint32_t>(planned(row).qp_count) : 1;
  }
  // Describe a connection by ranks and addresses, for error messages.
  std::string text(int32_t row) const;

 private:
  ConnectionEnds& make(size_t row);

  const EnginePlan& plan_;
  std::vector<uint32_t> place_;
  std::vector<ConnectionEnds> ends_;
  size_t homes_ = 0;
};

}  // namespace etloop
