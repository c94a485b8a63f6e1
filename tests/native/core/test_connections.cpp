// Which ends of a plan's connections are on a port, and how ranks find their connections.
#include "core/connections.h"

#include <map>
#include <string>

#include "core/local_ranks.h"
#include "support/check.h"
#include "support/core_parts.h"

using namespace etloop;

namespace {

void an_index_finds_what_was_added_and_nothing_else() {
  ConnectionIndex index;
  index.add(1, 3, 13);
  index.add(0, 7, 7);
  index.add(1, 0, 10);
  index.finish();
  CHECK_EQ(index.find(0, 7), 7);
  CHECK_EQ(index.find(1, 0), 10);
  CHECK_EQ(index.find(1, 3), 13);
  CHECK_EQ(index.find(1, 1), -1);
  CHECK_EQ(index.find(2, 0), -1);
}

void only_rows_with_an_end_here_have_a_place() {
  EnginePlan plan = test::one_send(4096);
  plan.connections.insert(plan.connections.begin(), plan.connections.front());
  plan.connections.front().src_rank = 5;
  plan.connections.front().dst_rank = 6;
  Connections connections(plan);
  connections.load({{1, 0}});
  CHECK_EQ(connections.size(), 2u);
  CHECK_EQ(connections.places(), 2u);
  CHECK_EQ(connections.place(0), 0u);
  CHECK_EQ(connections.place(1), 1u);
  CHECK_EQ(connections[0].dst_index, kNotHere);
  CHECK_EQ(connections[1].src_index, kNotHere);
  CHECK_EQ(connections[1].dst_index, 0u);
  CHECK_EQ(connections.text(1), std::string("rank 0 -> rank 1 (10.0.0.1 -> 10.0.0.2)"));
}

void parts_are_of_the_wire_and_of_grants_alone() {
  EnginePlan plan = test::one_send(4096, 3);
  plan.transport.split_data_on_qps = true;
  const Connections connections(plan);
  CHECK_EQ(connections.parts_of(0, false), 3u);
  CHECK_EQ(connections.parts_of(0, true), 1u);
  plan.connections[0].path = Path::scale_up;
  CHECK_EQ(connections.parts_of(0, false), 1u);
}

void a_connection_inside_the_host_knows_its_other_port() {
  EnginePlan plan = test::one_send(4096);
  plan.connections[0].path = Path::scale_up;
  Connections connections(plan);
  connections.load({{0, 0}});
  CHECK_EQ(test::failure_of(connections.find_other_ports(0)), std::string());
  CHECK_EQ(connections[0].other_port, 1);
}

void a_hairpin_between_ports_is_refused() {
  EnginePlan plan = test::one_send(4096);
  plan.connections[0].path = Path::hairpin;
  Connections connections(plan);
  connections.load({{0, 0}});
  CHECK_EQ(test::failure_of(connections.find_other_ports(0)),
           std::string("rank 0 -> rank 1: does not cross the wire, but its ranks are on different ports"));
}

void a_rank_finds_its_peer_by_channel() {
  const EnginePlan plan = test::one_send(4096);
  LocalRanks ranks;
  Connections connections(plan);
  CHECK_EQ(test::failure_of(ranks.load(plan, 0)), std::string());
  connections.load(ranks.indices());
  CHECK_EQ(test::failure_of(ranks.connect(plan, connections)), std::string());
  CHECK_EQ(ranks.size(), 1u);
  CHECK_EQ(ranks.total_ops(), 1);
  CHECK_EQ(ranks[0].peers[0].send_to.find(0, 0), 0);
  CHECK_EQ(ranks[0].peers[0].recv_from.find(0, 0), -1);
  CHECK_EQ(ranks[0].peers[0].sends, 1u);
}

void one_connection_twice_is_refused() {
  EnginePlan plan = test::one_send(4096);
  plan.connections.push_back(plan.connections.front());
  LocalRanks ranks;
  Connections connections(plan);
  CHECK_EQ(test::failure_of(ranks.load(plan, 0)), std::string());
  connections.load(ranks.indices());
  CHECK_EQ(test::failure_of(ranks.connect(plan, connections)),
           std::string("connections: rank 0 -> rank 1 of one channel twice"));
}

}  // namespace

int main() {
  an_index_finds_what_was_added_and_nothing_else();
  only_rows_with_an_end_here_have_a_place();
  parts_are_of_the_wire_and_of_grants_alone();
  a_connection_inside_the_host_knows_its_other_port();
  a_hairpin_between_ports_is_refused();
  a_rank_finds_its_peer_by_channel();
  one_connection_twice_is_refused();
  return test::failures();
}
