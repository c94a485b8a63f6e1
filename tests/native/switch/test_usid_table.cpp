// What a switch does with packets that micro segments lead: its own, its ports', others', and those that nobody knows.
#include <map>
#include <vector>

#include "support/check.h"
#include "support/switch_bench.h"

using namespace etloop;
using namespace etloop::test;

namespace {

constexpr uint32_t kBlock = 0xFC000001;

// A bench that keeps the destination of each frame, as twin and lab do.
class LedBench final : public SwitchSink {
 public:
  explicit LedBench(const SwitchConfig& config) : events_(event_spacing_ns({&config, 1})), model_(config, *this, 0, events_, 1) {}

  // Where a frame to this destination leaves; -1: nowhere.
  int send(const char* carrier, uint64_t key = 1) {
    carrier_ = *IpAddress::parse(carrier);
    left_by_ = -1;
    SwitchFrame frame = frame_to(0, 26, 200, key);
    frame.segmented = true;
    model_.on_frame(0, frame, now_ += 1'000'000);
    while (!events_.empty()) model_.take(events_.pop());
    return left_by_;
  }
  const IpAddress& carrier() const { return carrier_; }
  SwitchModel& model() { return model_; }

  void transmit(size_t port, const SwitchFrame&, Nanos, Nanos) override { left_by_ = static_cast<int>(port); }
  void drop(size_t, const SwitchFrame&, SwitchDrop why, Nanos) override { ++drops[why]; }
  void pause(size_t, uint8_t, uint16_t, Nanos) override {}
  usid::Head segment_of(const SwitchFrame&) override { return usid::head_of(carrier_); }
  usid::Head next_segment(const SwitchFrame&) override {
    usid::shift(carrier_);
    return usid::head_of(carrier_);
  }
  std::map<SwitchDrop, int> drops;

 private:
  FabricEvents events_;
  SwitchModel model_;
  IpAddress carrier_;
  Nanos now_ = 0;
  int left_by_ = -1;
};

// Node 0x0021; ports 0 to 3 are 0xe000 to 0xe003; node 0x0022 is behind ports 1 and 2.
SwitchConfig led_config() {
  SwitchConfig config = config_of(4);
  config.usids.block = kBlock;
  config.usids.entries = {{0x0021, true, {}},       {0x0022, false, {1, 2}},  {0xE000, true, {0}},
                          {0xE001, true, {1}},      {0xE002, true, {2}},      {0xE003, true, {3}}};
  return config;
}

void a_port_of_its_own_is_taken_out() {
  const SwitchConfig config = led_config();
  CHECK_EQ(validate(config), "");
  LedBench bench(config);
  CHECK_EQ(bench.send("fc00:1:e003:e001:d001::"), 3);
  CHECK(bench.carrier() == *IpAddress::parse("fc00:1:e001:d001::"));
  CHECK_EQ(bench.send("fc00:1:e001:d001::"), 1);
  CHECK(bench.carrier() == *IpAddress::parse("fc00:1:d001::"));
}

void its_own_name_is_taken_out_and_what_follows_counts() {
  const SwitchConfig config = led_config();
  LedBench bench(config);
  CHECK_EQ(bench.send("fc00:1:21:e002:d001::"), 2);
  CHECK(bench.carrier() == *IpAddress::parse("fc00:1:d001::"));
  CHECK_EQ(bench.send("fc00:1:21:21:21:21:21:e003"), 3);  // as often as an address holds
  CHECK_EQ(bench.send("fc00:1:21:21:21:21:21:21"), -1);   // and nothing behind it
}

// The name of another switch stays in, and of several ways to it a flow keeps one.
void another_switch_is_on_its_way() {
  const SwitchConfig config = led_config();
  LedBench bench(config);
  std::map<int, int> taken;
  for (uint64_t flow = 0; flow < 64; ++flow) {
    const int first = bench.send("fc00:1:22:e000:d001::", mixed(flow));
    CHECK_EQ(bench.send("fc00:1:22:e000:d001::", mixed(flow)), first);
    ++taken[first];
    CHECK(bench.carrier() == *IpAddress::parse("fc00:1:22:e000:d001::"));
  }
  CHECK_EQ(taken.size(), size_t{2});
  CHECK(taken[1] > 16 && taken[2] > 16);
  CHECK_EQ(bench.send("fc00:1:21:22:e000:d001::") > 0, true);
  CHECK(bench.carrier() == *IpAddress::parse("fc00:1:22:e000:d001::"));
}

void what_nobody_knows_goes_nowhere() {
  const SwitchConfig config = led_config();
  LedBench bench(config);
  int dropped = 0;
  for (const char* carrier : {"fc00:1:23:e000:d001::", "fc00:2:e000:d001::", "fc00:1::", "fc00:1:d001::", "fc00:1:21::"}) {
    CHECK_EQ(bench.send(carrier), -1);
    CHECK_EQ(bench.drops[SwitchDrop::no_route], ++dropped);
  }
  CHECK_EQ(bench.model().counters(0).ports[0].no_route_packets, dropped);
  SwitchConfig none = led_config();
  none.usids = {};
  LedBench blind(none);
  CHECK_EQ(blind.send("fc00:1:e003:d001::"), -1);
}

// A port that is down forwards no packet; a way to another switch is another one.
void a_link_that_is_down_is_no_way() {
  const SwitchConfig config = led_config();
  LedBench bench(config);
  bench.model().on_link(1, false, 0);
  CHECK_EQ(bench.send("fc00:1:e001:d001::"), -1);
  for (uint64_t flow = 0; flow < 16; ++flow) CHECK_EQ(bench.send("fc00:1:22:e000:d001::", mixed(flow)), 2);
  bench.model().on_link(1, true, 0);
  CHECK_EQ(bench.send("fc00:1:e001:d001::"), 1);
}

void what_cannot_be_is_refused() {
  SwitchConfig config = led_config();
  config.usids.entries[1].usid = 0xE000;
  CHECK_EQ(validate(config), "usids[2]: is 0, or not above the one before it");
  config = led_config();
  config.usids.entries[1].ports.clear();
  CHECK_EQ(validate(config), "usids[1]: has no port");
  config = led_config();
  config.usids.entries[5].ports = {4};
  CHECK_EQ(validate(config), "usids[5]: names port 4");
}

}  // namespace

int main() {
  a_port_of_its_own_is_taken_out();
  its_own_name_is_taken_out_and_what_follows_counts();
  another_switch_is_on_its_way();
  what_nobody_knows_goes_nowhere();
  a_link_that_is_down_is_no_way();
  what_cannot_be_is_refused();
  return etloop::test::failures();
}
