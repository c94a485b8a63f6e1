// Why the kernel dropped datagrams: what its files say of both families, and what is made of files that are cut.
#include "port/udp_drops.h"

#include "support/check.h"

namespace {

using namespace etloop;

constexpr std::string_view kSnmp =
    "Icmp: InMsgs InErrors InCsumErrors\n"
    "Icmp: 1 2 100\n"
    "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n"
    "Udp: 7 0 12 9 3 1000 5 0 4\n"
    "UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n"
    "UdpLite: 0 0 0 0 9 0 9 0 9\n";
constexpr std::string_view kSnmp6 =
    "Ip6InReceives                   \t94\n"
    "Udp6RcvbufErrors                \t10\n"
    "Udp6SndbufErrors                \t1000\n"
    "Udp6InCsumErrors                \t20\n"
    "Udp6MemErrors                   \t30\n"
    "UdpLite6InCsumErrors            \t9\n";

void both_families_are_read_and_nothing_else() {
  const UdpErrors found = read_udp_errors(kSnmp, kSnmp6);
  CHECK_EQ(found.no_room, 3 + 4 + 10 + 30);
  CHECK_EQ(found.damaged, 5 + 20);
  CHECK_EQ(found.delivered, 7);
}

void what_is_cut_or_absent_is_0() {
  CHECK_EQ(read_udp_errors({}, {}).no_room, 0);
  CHECK_EQ(read_udp_errors("Udp: RcvbufErrors InCsumErrors\n", "Udp6InCsumErrors").damaged, 0);
  CHECK_EQ(read_udp_errors("Udp: InCsumErrors RcvbufErrors\nUdp: 4", {}).damaged, 4);
  CHECK_EQ(read_udp_errors("Udp: InCsumErrors\nUdp: soon\n", {}).damaged, 0);
}

void drops_without_a_reason_of_the_namespace_are_nobodys() {
  const UdpDropReasons reasons;
  const UdpDrops none = reasons.divide(0, 0);
  CHECK_EQ(none.no_room, 0);
  CHECK_EQ(none.damaged, 0);
}

void short_damaged_datagrams_are_those_of_a_port_that_is_alone() {
  const UdpErrors meanwhile{.no_room = 2, .damaged = 9, .delivered = 100};
  CHECK_EQ(divided(meanwhile, 5, 100).no_room, 2);
  CHECK_EQ(divided(meanwhile, 5, 100).damaged, 9);  // six of them no socket counts
  CHECK_EQ(divided(meanwhile, 5, 99).damaged, 3);   // somebody else received, too
  CHECK_EQ(divided(meanwhile, 1, 99).no_room, 1);
  CHECK_EQ(divided(meanwhile, 1, 99).damaged, 0);
}

}  // namespace

int main() {
  both_families_are_read_and_nothing_else();
  what_is_cut_or_absent_is_0();
  drops_without_a_reason_of_the_namespace_are_nobodys();
  short_damaged_datagrams_are_those_of_a_port_that_is_alone();
  return etloop::test::failures();
}
