// The connections that have an end on a port, and what is fixed of those ends: their ranks, their queue pairs, where the
// other end is. What changes during a run is with whoever changes it, in a table by `place`.
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

// Where a rank is, one of whose queue pairs is here: on another queue of the port.
struct EndHome {
  int32_t port = -1;
  uint8_t traffic_class = 0;
};

struct ConnectionEnds {
  uint32_t src_index = kNotHere;  // local rank at the sending end, if it is here
  uint32_t dst_index = kNotHere;
  EndHome src_home;  // where the sending end's rank is elsewhere
  EndHome dst_home;
  int32_t other_port = -1;  // of a connection inside a host with one end here: where the other end is
  uint32_t data_rkey = 0;
  std::vector<uint32_t> send_qps;
  std::vector<uint32_t> recv_qps;
  std::unique_ptr<ReceiveQueue> receives;  // shared by the queue pairs at the receiving end; nullptr: none are counted
};

class Connections {
 public:
  explicit Connections(const EnginePlan& plan) : plan_(plan) {}

  // Finds the ends that are here: `local` has the index of every local rank.
  void load(const std::map<int32_t, uint32_t>& local);
  // Finds queue pairs that are dealt to this port, of ranks on other queues.
  void load_guests(int32_t port);
  // Other ports whose ranks have queue pairs here.
  size_t homes() const { return homes_; }
  // Finds where the other ends of connections inside the host are. Fails if one leaves the host of `port`.
  Result<void> find_other_ports(int32_t port);

  // Rows of the plan, with or without an end here.
  size_t size() const { return place_.size(); }
  // A port has few of the rows of a large job: those have places from 1 on, all others share place 0, which has nothing.
  uint32_t place(int32_t row) const { return place_[static_cast<size_t>(row)]; }
  size_t places() const { return ends_.size(); }
  ConnectionEnds& operator[](int32_t row) { return ends_[place(row)]; }
  const ConnectionEnds& operator[](int32_t row) const { return ends_[place(row)]; }

  const PlannedConnection& planned(int32_t row) const { return plan_.connections[static_cast<size_t>(row)]; }
  bool on_wire(int32_t row) const { return planned(row).path == Path::wire; }
  // In how many parts the messages of a connection travel.
  uint32_t parts_of(int32_t row, bool one_sided) const {
    const bool split = plan_.transport.split_data_on_qps && !one_sided && on_wire(row);
    return split ? static_cast<uint32_t>(planned(row).qp_count) : 1;
  }
  // A connection by its ranks and addresses, for people.
  std::string text(int32_t row) const;

 private:
  ConnectionEnds& make(size_t row);

  const EnginePlan& plan_;
  std::vector<uint32_t> place_;
  std::vector<ConnectionEnds> ends_;
  size_t homes_ = 0;
};

}  // namespace etloop
