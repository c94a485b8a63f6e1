// Departure times and arrival stamps: what is understood of the kernel's answers, and, where the kernel has the queueing
// discipline fq, that packets leave a UDP port at the times they were given.
#include "port/departures.h"

#include <linux/errqueue.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "port/arrival_stamps.h"
#include "port/system_clock.h"
#include "port/udp_port.h"
#include "support/check.h"
#include "support/lab.h"
#include "support/port_ends.h"

namespace {

using namespace etloop;

constexpr int kOurs = 7;
constexpr uint32_t kRoot = 0xFFFFFFFF;
constexpr uint32_t kIngress = 0xFFFFFFF1;
constexpr Nanos kMs = 1'000'000;

template <typename T>
void append(std::vector<uint8_t>& bytes, const T& value) {
  const auto* at = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), at, at + sizeof value);
  bytes.resize((bytes.size() + 3) / 4 * 4);
}

std::vector<uint8_t> message(uint16_t type, const Qdisc& qdisc, uint16_t attribute = TCA_KIND) {
  std::vector<uint8_t> bytes;
  append(bytes, nlmsghdr{0, type, NLM_F_MULTI, 1, 0});
  tcmsg body{};
  body.tcm_ifindex = qdisc.interface;
  body.tcm_handle = qdisc.handle;
  body.tcm_parent = qdisc.parent;
  append(bytes, body);
  append(bytes, rtattr{static_cast<uint16_t>(sizeof(rtattr) + qdisc.kind.size() + 1), attribute});
  bytes.insert(bytes.end(), qdisc.kind.begin(), qdisc.kind.end());
  bytes.push_back(0);
  bytes.resize((bytes.size() + 3) / 4 * 4);
  const auto length = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

std::vector<uint8_t> done() {
  std::vector<uint8_t> bytes;
  append(bytes, nlmsghdr{sizeof(nlmsghdr), NLMSG_DONE, NLM_F_MULTI, 1, 0});
  return bytes;
}

void operator+=(std::vector<uint8_t>& to, const std::vector<uint8_t>& more) { to.insert(to.end(), more.begin(), more.end()); }

void a_dump_is_read_to_its_end() {
  std::vector<uint8_t> part = message(RTM_NEWQDISC, {kOurs, 0x10000, kRoot, "fq"});
  part += message(RTM_DELQDISC, {kOurs, 0x20000, kRoot, "pfifo"});
  part += message(RTM_NEWQDISC, {3, 0, kRoot, "noqueue"});
  part += message(RTM_NEWQDISC, {4, 0, kRoot, "7 unnamed"}, TCA_OPTIONS);
  std::vector<Qdisc> qdiscs;
  CHECK(read_qdiscs(part, qdiscs) == DumpPart::more);
  CHECK_EQ(qdiscs.size(), 3U);
  CHECK(qdiscs[0].kind == "fq" && qdiscs[0].interface == kOurs && qdiscs[0].handle == 0x10000 && qdiscs[0].parent == kRoot);
  CHECK_EQ(qdiscs[1].kind, std::string("noqueue"));
  CHECK_EQ(qdiscs[2].kind, std::string());
  part += done();
  part += std::vector<uint8_t>{1, 2, 3};  // nobody reads on
  CHECK(read_qdiscs(part, qdiscs) == DumpPart::over);
}

void what_is_no_dump_is_broken_and_never_read_beyond() {
  const std::vector<uint8_t> whole = message(RTM_NEWQDISC, {kOurs, 0x10000, kRoot, "fq"});
  for (size_t length = 1; length < whole.size(); ++length) {
    std::vector<Qdisc> qdiscs;
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    CHECK(read_qdiscs(cut, qdiscs) == DumpPart::broken);
    CHECK(qdiscs.empty());
  }
  std::vector<uint8_t> error;
  append(error, nlmsghdr{sizeof(nlmsghdr), NLMSG_ERROR, 0, 1, 0});
  std::vector<Qdisc> qdiscs;
  CHECK(read_qdiscs(error, qdiscs) == DumpPart::broken);
  std::mt19937 random(1);
  for (int turn = 0; turn < 20'000; ++turn) {  // for the sanitizers
    std::vector<uint8_t> noisy = whole;
    noisy += whole;
    for (int change = 0; change < 3; ++change) noisy[random() % noisy.size()] = static_cast<uint8_t>(random() % 40);
    read_qdiscs(noisy, qdiscs);
    for (const Qdisc& qdisc : qdiscs) CHECK(qdisc.kind.size() <= 16);
    qdiscs.clear();
  }
}

void only_fq_everywhere_keeps_departures() {
  const Interface eth{kOurs, "eth1", {}, 1500};
  const Qdisc other{kOurs + 1, 0x10000, kRoot, "fq"};
  const Qdisc mq{kOurs, 0x80010000, kRoot, "mq"};
  const struct {
    const char* sentence;
    std::vector<Qdisc> qdiscs;
    const char* refusal;
  } rows[] = {
      {"fq at the root", {other, {kOurs, 0x10000, kRoot, "fq"}}, ""},
      {"fq of another interface", {other}, "the kernel names no queueing discipline of eth1"},
      {"none at all", {{kOurs, 0, kRoot, "noqueue"}}, "the queueing discipline of eth1 is noqueue, not fq"},
      {"fq for what comes in", {{kOurs, 0xFFFF0000, kIngress, "fq"}}, "the kernel names no queueing discipline of eth1"},
      {"fq on every hardware queue", {mq, {kOurs, 1, 0x80010001, "fq"}, {kOurs, 2, 0x80010002, "fq"}}, ""},
      {"fq on one of two", {mq, {kOurs, 1, 0x80010001, "fq"}, {kOurs, 2, 0x80010002, "pfifo_fast"}},
       "the queueing discipline of eth1 is pfifo_fast, not fq"},
      {"queues of nothing", {mq}, "the kernel names no queueing discipline of eth1"},
      {"etf, which drops the rest", {{kOurs, 1, kRoot, "etf"}},
       "the queueing discipline etf of eth1 drops what carries no time, such as acknowledgements"},
      {"fq below another", {{kOurs, 0x10000, kRoot, "htb"}, {kOurs, 0x20000, 0x10001, "fq"}},
       "the queueing discipline of eth1 is htb, not fq"},
  };
  for (const auto& row : rows) {
    const std::string refusal = departures_refused(row.qdiscs, eth);
    const std::string expected = *row.refusal == 0 ? "" : std::string(row.refusal) + "; tc qdisc replace dev eth1 root fq";
    if (refusal != expected) std::cerr << row.sentence << ": " << refusal << '\n';
    CHECK(refusal == expected);
  }
}

struct alignas(cmsghdr) Control {
  std::array<uint8_t, 256> bytes{};

  Control(int level, int type, size_t stamps) {
    cmsghdr head{};
    head.cmsg_level = level;
    head.cmsg_type = type;
    head.cmsg_len = CMSG_LEN(stamps * sizeof(timespec));
    std::memcpy(bytes.data(), &head, sizeof head);
    const timespec content[3] = {{1'700'000'000, 5}, {8, 8}, {37, 999'999'999}};
    std::memcpy(bytes.data() + CMSG_LEN(0), content, std::min(stamps, size_t{3}) * sizeof(timespec));
  }
  const cmsghdr& head() const { return *reinterpret_cast<const cmsghdr*>(bytes.data()); }
};

void stamps_of_kernel_and_card_are_read() {
  Stamps stamps;
  CHECK(read_stamps(Control(SOL_SOCKET, SCM_TIMESTAMPING, 3).head(), stamps));
  CHECK_EQ(stamps.kernel_ns, 1'700'000'000'000'000'005);
  CHECK_EQ(stamps.card_ns, 37'999'999'999);
  CHECK(!read_stamps(Control(SOL_SOCKET, SCM_TIMESTAMPING, 2).head(), stamps));
  CHECK(!read_stamps(Control(SOL_SOCKET, SCM_TIMESTAMPNS, 3).head(), stamps));
  CHECK(!read_stamps(Control(SOL_PACKET, SCM_TIMESTAMPING, 3).head(), stamps));
}

void a_clock_that_drifts_is_followed() {
  ClockBridge bridge;
  CHECK(!bridge.ready());
  bridge.add(5'000'000'000, 1'000'000'000);
  CHECK(bridge.ready());
  CHECK_EQ(bridge.here_of(5'000'000'100), 1'000'000'100);  // of one reading: as fast as ours
  bridge.add(5'100'002'000, 1'100'000'000);                // theirs gains 20 ppm
  CHECK_EQ(bridge.here_of(5'100'002'000), 1'100'000'000);
  CHECK_EQ(bridge.here_of(5'050'001'000), 1'050'000'000);
  CHECK(std::abs(bridge.here_of(5'200'004'000) - 1'200'000'000) <= 4);
  bridge.add(9'000'000'000, 1'200'000'000);  // somebody set it
  CHECK_EQ(bridge.here_of(9'000'000'050), 1'200'000'050);
  bridge.add(9'000'000'000, 1'200'000'000);  // twice the same moment
  CHECK_EQ(bridge.here_of(9'000'000'050), 1'200'000'050);
}

void an_arrival_is_never_before_or_after_what_can_be() {
  ArrivalClock clock;
  PortRecord counters{};
  const Nanos now = monotonic_ns();
  clock.begin(now);
  const Nanos real = realtime_ns() - (monotonic_ns() - now);  // real time at `now`, to within the reading of two clocks
  const Nanos arrived = clock.arrived({real - 3 * kMs, 0}, now - 5 * kMs, now, counters);
  CHECK(arrived > now - 5 * kMs && arrived < now);
  CHECK_EQ(clock.arrived({real - 9 * kMs, 0}, now - 5 * kMs, now, counters), now - 5 * kMs);
  CHECK_EQ(clock.arrived({real + 9 * kMs, 0}, now - 5 * kMs, now, counters), now);
  CHECK_EQ(counters.stamped_messages, 3);
  CHECK_EQ(clock.arrived({0, 0}, now - 5 * kMs, now, counters), now);
  CHECK_EQ(clock.arrived({0, 12345}, now - 5 * kMs, now, counters), now);  // a card whose clock nobody reads
  CHECK_EQ(clock.arrived({now - kMs, 0}, now - 5 * kMs, now, counters), now);  // of the monotonic clock: a departure time
  CHECK_EQ(counters.stamped_messages, 3);
  CHECK_EQ(counters.card_stamped_messages, 0);
}

void an_offer_of_stamps_says_what_is_missing() {
  const std::string kernel = "arrivals are stamped by the kernel";
  CHECK_EQ(stamp_text({}, "eth1"), kernel + "; what eth1 offers is not known");
  CHECK_EQ(stamp_text({true, true, false, false, -1}, "eth1"), kernel + "; the card of eth1 offers no stamps of every packet");
  CHECK_EQ(stamp_text({true, true, true, false, 0}, "eth1"),
           kernel + "; the card of eth1 would, if it were set to: hwstamp_ctl -i eth1 -r 1");
  CHECK_EQ(stamp_text({true, true, true, true, -1}, "eth1"),
           kernel + "; the card of eth1 stamps as well, but shows no clock to read them by");
  CHECK_EQ(stamp_text({true, true, true, true, 2}, "eth1"),
           std::string("arrivals are stamped by the card of eth1, whose clock is ptp2"));
  CHECK(!stamps_offered("no-such-interface").known);
  CHECK(!stamps_offered("").known);
}

// ---- on a veth pair of our own

constexpr IpAddress kNear = IpAddress::v4(0x0A5C0001);
constexpr IpAddress kFar = IpAddress::v4(0x0A5C0002);
constexpr uint32_t kPackets = 12;
constexpr Nanos kApartNs = 10 * kMs;

std::unique_ptr<UdpPort> opened() {
  PortConfig config;
  config.addresses = {kNear};
  return test::opened_by(UdpPort::open, config);
}

void a_veth_pair_offers_neither() {
  const StampOffer offer = stamps_offered("tx0");
  CHECK(offer.known && offer.kernel && !offer.card && offer.clock < 0);
  const auto port = opened();
  CHECK_EQ(port->departure_horizon_ns(), Nanos{0});
  const std::vector<std::string> has = port->capabilities();
  CHECK_EQ(has.size(), 2U);
  CHECK_EQ(has[0], std::string("arrivals are stamped by the kernel; the card of tx0 offers no stamps of every packet"));
  CHECK_EQ(has[1], std::string("paced packets leave when the loop comes to it: the queueing discipline of tx0 is noqueue, not "
                               "fq; tc qdisc replace dev tx0 root fq"));
}

// When frames with a PSN were read. Not by their stamps: Linux 6.1 shows packet sockets the departure time itself.
std::vector<std::pair<uint32_t, Nanos>> arrivals(int capture) {
  std::vector<std::pair<uint32_t, Nanos>> out;
  std::array<uint8_t, 9000> frame;
  pollfd readable{capture, POLLIN, 0};
  while (out.size() < kPackets && poll(&readable, 1, 3'000) == 1) {
    const ssize_t length = read(capture, frame.data(), frame.size());
    wire::Packet packet;
    const std::span<const uint8_t> bytes(frame.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
    if (bytes.size() < 42 || wire::check_frame(bytes) != wire::FrameCheck::good) continue;
    if (wire::decode(bytes.subspan(42), bytes.size() - 42, packet) != wire::Malformed::none) continue;
    out.emplace_back(packet.psn, monotonic_ns());
  }
  return out;
}

void packets_leave_at_their_times() {
  if (std::system("tc qdisc replace dev tx0 root fq 2> /dev/null") != 0) {
    return test::skipped(test::Missing::kernel_or_right, "packets_leave_at_their_times", "no queueing discipline fq");
  }
  const Descriptor capture = test::frame_socket("rx0");
  const auto port = opened();
  CHECK(port->departure_horizon_ns() > kPackets * kApartNs);
  const std::vector<std::string> has = port->capabilities();
  CHECK_EQ(has[1], std::string("paced packets leave at their times by the kernel's fq (SO_TXTIME)"));
  const FlowId flow = test::flow_to(*port, kFar);
  const Nanos first_ns = monotonic_ns() + 50 * kMs;
  for (uint32_t psn = 0; psn < kPackets; ++psn) {
    PacketRun run;
    run.flow = flow;
    run.head = {.opcode = wire::Opcode::write_middle, .psn = psn, .payload_bytes = 1024};
    run.departs_ns = first_ns + psn * kApartNs;
    CHECK(port->send(run) == TxResult::sent);
  }
  CHECK_EQ(port->counters().scheduled_datagrams, int64_t{kPackets});
  const auto came = arrivals(capture.get());
  CHECK_EQ(came.size(), size_t{kPackets});
  for (uint32_t i = 0; i < came.size(); ++i) {
    CHECK_EQ(came[i].first, i);
    CHECK(came[i].second >= first_ns + i * kApartNs);
  }
}

}  // namespace

int main() {
  a_dump_is_read_to_its_end();
  what_is_no_dump_is_broken_and_never_read_beyond();
  only_fq_everywhere_keeps_departures();
  stamps_of_kernel_and_card_are_read();
  a_clock_that_drifts_is_followed();
  an_arrival_is_never_before_or_after_what_can_be();
  an_offer_of_stamps_says_what_is_missing();
  std::string reason;
  const std::string commands =
      "ip link add tx0 mtu 9000 type veth peer name rx0 mtu 9000 && ip address add 10.92.0.1/24 dev tx0 && "
      "ip link set tx0 up && ip link set rx0 up && ip neighbour add 10.92.0.2 lladdr 02:00:00:00:00:02 dev tx0";
  if (test::enter_lab(commands, reason)) {  // last: it leaves the host's network
    a_veth_pair_offers_neither();
    packets_leave_at_their_times();
  } else {
    test::skipped(test::Missing::kernel_or_right, "what needs a veth pair", reason);
  }
  return test::failures();
}
