#include "core/connections.h"

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
  for (size_t row = 0; row < plan_.connections.size(); ++row) {
    const PlannedConnection& c = plan_.connections[row];
    if (const auto it = local.find(c.src_rank); it != local.end()) make(row).src_index = it->second;
    if (const auto it = local.find(c.dst_rank); it != local.end()) make(row).dst_index = it->second;
  }
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
