#include "core/connections.h"

#include <set>

#include "plan/queue_deal.h"

namespace etloop {

namespace {

bool queues_of_one(const EnginePlan& plan, int32_t port, int32_t other) {
  const PlannedPort& a = plan.ports[static_cast<size_t>(port)];
  const PlannedPort& b = plan.ports[static_cast<size_t>(other)];
  return a.queues > 1 && a.queues == b.queues && a.qpn_base == b.qpn_base;
}

}  // namespace

void Connections::load(const std::map<int32_t, uint32_t>& local) {
  place_.assign(plan_.connections.size(), 0);
  ends_.resize(1);
  std::set<int32_t> senders;
  for (const PlannedRank& rank : plan_.ranks) {
    if (rank.sends) senders.insert(rank.rank);
  }
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    if (const auto it = local.find(c.src_rank); it != local.end()) {
      make(row).src_index = it->second;
      make(row).is_sent = senders.contains(c.src_rank);
    }
    if (const auto it = local.find(c.dst_rank); it != local.end()) make(row).dst_index = it->second;
  }
}

void Connections::load_guests(int32_t port) {
  const PlannedPort& own = plan_.ports[static_cast<size_t>(port)];
  if (!is_dealt(own)) return;
  std::map<int32_t, EndHome> home_of;  // of ranks on the other queues
  for (const PlannedRank& rank : plan_.ranks) {
    const int32_t first = port - own.queue;
    if (rank.port == port || rank.port < first || rank.port >= first + static_cast<int32_t>(own.queues)) continue;
    home_of[rank.rank] = {rank.port, traffic_class_of(plan_, rank)};
  }
  std::set<int32_t> homes;
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    if (c.path != Path::wire) continue;
    for (const bool sends : {true, false}) {
      const auto home = home_of.find(sends ? c.src_rank : c.dst_rank);
      if (home == home_of.end()) continue;
      for (int32_t q = c.first_qp; q < c.first_qp + c.qp_count; ++q) {
        const PlannedQp& qp = plan_.qps[static_cast<size_t>(q)];
        if (carrier_of(plan_, port, sends ? qp.src_qpn : qp.dst_qpn) != port) continue;
        (sends ? make(row).src_home : make(row).dst_home) = home->second;
        homes.insert(home->second.port);
      }
    }
  }
  homes_ = homes.size();
}

ConnectionEnds& Connections::make(size_t row) {
  if (place_[row] == 0) {
    place_[row] = static_cast<uint32_t>(ends_.size());
    ends_.emplace_back();
  }
  return ends_[place_[row]];
}

Result<void> Connections::find_other_ports(int32_t port) {
  std::map<int32_t, int32_t> port_of;
  for (const PlannedRank& rank : plan_.ranks) port_of[rank.rank] = rank.port;
  for (int32_t row = 0; row < static_cast<int32_t>(size()); ++row) {
    if (place(row) == 0 || on_wire(row)) continue;
    const PlannedConnection& c = planned(row);
    ConnectionEnds& ends = (*this)[row];
    if (ends.src_index != kNotHere && ends.dst_index != kNotHere) continue;
    const auto other = port_of.find(ends.src_index == kNotHere ? c.src_rank : c.dst_rank);
    if (other == port_of.end() || (c.path == Path::hairpin && !queues_of_one(plan_, port, other->second))) {
      return Error{text(row) + ": does not cross the wire, but its ranks are on different " +
                   (other == port_of.end() ? "agents" : "ports")};
    }
    ends.other_port = other->second;
  }
  return {};
}

std::string Connections::text(int32_t row) const {
  const PlannedConnection& c = planned(row);
  std::string text = "rank " + std::to_string(c.src_rank) + " -> rank " + std::to_string(c.dst_rank);
  if (c.path == Path::wire) text += " (" + c.src_ip.text() + " -> " + c.dst_ip.text() + ")";
  return text;
}

}  // namespace etloop
