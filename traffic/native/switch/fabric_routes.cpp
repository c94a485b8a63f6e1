#include "switch/fabric_routes.h"

#include <algorithm>

#include "switch/soft_fabric.h"

namespace etloop {

FabricRoutes::FabricRoutes(const FabricConfig& config)
    : config_(config),
      neighbours_(config.switches.size()),
      used_(config.links.size(), true),
      edge_of_(config.switches.size(), kApart) {
  for (uint32_t number = 0; number < config.links.size(); ++number) {
    const FabricLink& link = config.links[number];
    for (const auto& [here, there] : {std::pair{link.a, link.b}, std::pair{link.b, link.a}}) {
      neighbours_[here.switch_index].push_back({number, there.switch_index, static_cast<uint16_t>(here.port)});
    }
  }
  for (std::vector<Neighbour>& of_switch : neighbours_) {
    std::sort(of_switch.begin(), of_switch.end(), [](const Neighbour& a, const Neighbour& b) { return a.port < b.port; });
  }
  for (const FabricAttachment& attachment : config.attachments) {
    uint32_t& edge = edge_of_[attachment.end.switch_index];
    if (edge != kApart) continue;
    edge = static_cast<uint32_t>(edges_.size());
    edges_.push_back(attachment.end.switch_index);
  }
  recompute();
}

void FabricRoutes::use(size_t link, bool used) { used_[link] = used; }

void FabricRoutes::recompute() {
  hops_.assign(edges_.size() * config_.switches.size(), kApart);
  for (size_t row = 0; row < edges_.size(); ++row) measure(row);
}

// Breadth-first search from the edge switch.
void FabricRoutes::measure(size_t row) {
  uint32_t* const hops = hops_.data() + row * config_.switches.size();
  std::vector<uint32_t> waiting{edges_[row]};
  hops[edges_[row]] = 0;
  for (size_t next = 0; next < waiting.size(); ++next) {
    const uint32_t here = waiting[next];
    for (const Neighbour& neighbour : neighbours_[here]) {
      if (!used_[neighbour.link] || hops[neighbour.there] != kApart) continue;
      hops[neighbour.there] = hops[here] + 1;
      waiting.push_back(neighbour.there);
    }
  }
}

WayTable FabricRoutes::of(size_t switch_index) const {
  std::vector<std::vector<uint16_t>> toward(edges_.size());  // by edge
  for (size_t row = 0; row < edges_.size(); ++row) {
    const uint32_t* const hops = hops_.data() + row * config_.switches.size();
    if (hops[switch_index] == kApart) continue;
    for (const Neighbour& neighbour : neighbours_[switch_index]) {
      const uint32_t beyond = hops[neighbour.there];
      if (used_[neighbour.link] && beyond != kApart && beyond + 1 == hops[switch_index]) toward[row].push_back(neighbour.port);
    }
  }
  WayTable table;
  table.first.reserve(config_.attachments.size() + 1);
  for (const FabricAttachment& attachment : config_.attachments) {
    table.first.push_back(static_cast<uint32_t>(table.ports.size()));
    if (attachment.end.switch_index == switch_index) {
      table.ports.push_back(static_cast<uint16_t>(attachment.end.port));
      continue;
    }
    const std::vector<uint16_t>& ways = toward[edge_of_[attachment.end.switch_index]];
    table.ports.insert(table.ports.end(), ways.begin(), ways.end());
  }
  table.first.push_back(static_cast<uint32_t>(table.ports.size()));
  return table;
}

}  // namespace etloop
