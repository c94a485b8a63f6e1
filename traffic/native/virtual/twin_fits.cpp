// Whether the parameters of a twin fit the plan and the network that it runs.
#include <algorithm>

#include "virtual/twin.h"

namespace etloop {

std::string validate(const TwinParams& params, const EnginePlan& plan, const FabricConfig& network) {
  if (params.attachment_of_port.size() != plan.ports.size()) return "not every port of the plan is attached";
  std::vector<uint32_t> taken = params.attachment_of_port;
  std::sort(taken.begin(), taken.end());
  if (std::adjacent_find(taken.begin(), taken.end()) != taken.end()) return "two ports of the plan share an attachment";
  if (!taken.empty() && taken.back() >= network.attachments.size()) return "a port of the plan is attached to nothing";
  for (const LinkChange& change : params.link_changes) {
    const bool known = change.end.switch_index < network.switches.size() &&
                       change.end.port < network.switches[change.end.switch_index].ports.size();
    if (!known || change.at_ns < 0) return "a link that is to change is of no switch";
  }
  for (const TwinStream& stream : params.streams) {
    const bool known = stream.from < network.attachments.size() && stream.to < network.attachments.size();
    if (!known || stream.from == stream.to) return "a stream of UDP ends at nothing";
    const bool bounded = stream.rate_bps > 0 && stream.rate_bps <= 1'000'000'000'000 && stream.datagram_bytes > 0 &&
                         stream.datagram_bytes <= 65'507 && stream.start_ns >= 0 && stream.stop_ns >= 0;
    if (!bounded) return "a stream of UDP has a rate, a size or a time that cannot be";
  }
  for (const PlannedConnection& connection : plan.connections) {
    if (connection.path != Path::wire) continue;
    for (const IpAddress& ip : {connection.src_ip, connection.dst_ip}) {
      const bool known = std::any_of(plan.ports.begin(), plan.ports.end(), [&](const PlannedPort& port) {
        return std::find(port.addresses.begin(), port.addresses.end(), ip) != port.addresses.end();
      });
      if (!known) return "a connection ends at an address that no port of the plan has";
    }
  }
  return {};
}

}  // namespace etloop
