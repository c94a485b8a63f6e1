// Micro segments in an address, and frames with the outer header that carries them.
#include <cstring>
#include <vector>

#include "support/check.h"
#include "wire/ethernet.h"
#include "wire/usid.h"

using namespace etloop;

namespace {

IpAddress address(const char* text) { return *IpAddress::parse(text); }

usid::Route two_tiers() {
  return {address("fd00::9"), 0xFC000001, {{0xE002, 0xE003, 0xE004, 0xE005}, {0xE006, 0xE007}, {0xE000}}, 0xD001};
}

// The digits of a value, that of the first tier first: eight values name the eight paths, and the ninth the first again.
void a_value_names_a_port_of_each_tier() {
  CHECK(usid::carrier_of(two_tiers(), 0) == address("fc00:1:e002:e006:e000:d001::"));
  CHECK(usid::carrier_of(two_tiers(), 3) == address("fc00:1:e005:e006:e000:d001::"));
  CHECK(usid::carrier_of(two_tiers(), 4) == address("fc00:1:e002:e007:e000:d001::"));
  CHECK(usid::carrier_of(two_tiers(), 7) == address("fc00:1:e005:e007:e000:d001::"));
  CHECK(usid::carrier_of(two_tiers(), 8) == usid::carrier_of(two_tiers(), 0));
  CHECK(usid::carrier_of(two_tiers(), 0xC003) == address("fc00:1:e005:e006:e000:d001::"));
}

void who_is_named_takes_itself_out() {
  IpAddress carrier = address("fc00:1:e002:e006:e000:d001::");
  CHECK((usid::head_of(carrier) == usid::Head{0xFC000001, 0xE002}));
  usid::shift(carrier);
  CHECK(carrier == address("fc00:1:e006:e000:d001::"));
  usid::shift(carrier);
  usid::shift(carrier);
  CHECK((usid::End{0xFC000001, 0xD001}.is_for(carrier)));
  CHECK((!usid::End{0xFC000002, 0xD001}.is_for(carrier)));
  CHECK((!usid::End{}.is_for(carrier)));
  usid::shift(carrier);
  CHECK(carrier == address("fc00:1::"));
  CHECK_EQ(usid::head_of(carrier).usid, 0);
  IpAddress full = address("fc00:1:1:2:3:4:5:6");
  usid::shift(full);
  CHECK(full == address("fc00:1:2:3:4:5:6:0"));
}

void a_route_fits_one_address() {
  usid::Route route = two_tiers();
  CHECK(usid::is_sound(route));
  route.tiers = {{1}, {2}, {3}, {4}, {5}};
  CHECK(usid::is_sound(route));
  route.tiers.push_back({6});
  CHECK(!usid::is_sound(route));
  route = two_tiers();
  route.tiers[1].clear();
  CHECK(!usid::is_sound(route));
  route = two_tiers();
  route.tiers[0][1] = 0;
  CHECK(!usid::is_sound(route));
  route = two_tiers();
  route.decapsulation = 0;
  CHECK(!usid::is_sound(route));
}

std::vector<uint8_t> led_frame(const usid::Route& route, uint8_t traffic_class, size_t datagram_bytes) {
  ethernet::Path path;
  path.flow = {address("fd00::1"), address("fd00::9"), 0xC003, 4971};
  path.segments = &route;
  std::vector<uint8_t> frame(ethernet::header_bytes(path) + datagram_bytes, 7);
  CHECK_EQ(ethernet::put_headers(path, traffic_class, 0, datagram_bytes, frame), frame.size() - datagram_bytes);
  return frame;
}

// RFC 8200 and RFC 8986, 5.1: an outer header around the whole packet, with the class and the flow label of the one inside.
void an_outer_header_is_around_the_packet() {
  const usid::Route route = two_tiers();
  const std::vector<uint8_t> frame = led_frame(route, 26 << 2 | 2, 64);
  CHECK_EQ(frame.size(), size_t{14 + 40 + 40 + 8 + 64});
  const uint8_t* outer = frame.data() + 14;
  const uint8_t first[] = {0x66, 0xA0, 0x00, 0x03, 0, 112, 41, 64};  // class 0x6A, label 3, 40 + 8 + 64 bytes
  CHECK_EQ(std::memcmp(outer, first, sizeof first), 0);
  CHECK_EQ(std::memcmp(outer + 8, address("fd00::1").bytes.data(), 16), 0);
  CHECK_EQ(std::memcmp(outer + 24, address("fc00:1:e005:e006:e000:d001::").bytes.data(), 16), 0);
  const uint8_t* inner = outer + 40;
  CHECK_EQ(int{inner[6]}, 17);
  CHECK_EQ(inner[4] << 8 | inner[5], 72);
  CHECK_EQ(std::memcmp(inner + 24, address("fd00::9").bytes.data(), 16), 0);
}

// What comes out of it: the packet inside, with the class that the network sees; CE of either header stays (RFC 6040).
void an_outer_header_is_taken_off() {
  const usid::Route route = two_tiers();
  for (const uint8_t outer_ecn : {uint8_t{2}, uint8_t{3}}) {
    for (const uint8_t inner_ecn : {uint8_t{2}, uint8_t{3}}) {
      std::vector<uint8_t> frame = led_frame(route, 26 << 2 | 2, 64);
      frame[14 + 1] = static_cast<uint8_t>((frame[14 + 1] & 0x0F) | ((48 << 2 | outer_ecn) << 4 & 0xF0));
      frame[14] = static_cast<uint8_t>(0x60 | (48 << 2 | outer_ecn) >> 4);
      frame[54 + 1] = static_cast<uint8_t>((frame[54 + 1] & 0x0F) | ((26 << 2 | inner_ecn) << 4 & 0xF0));
      const ethernet::Frame parsed = ethernet::parse(frame, 4971);
      CHECK(parsed.kind == ethernet::FrameKind::roce);
      CHECK(parsed.carrier && *parsed.carrier == address("fc00:1:e005:e006:e000:d001::"));
      CHECK(parsed.dst_ip == address("fd00::9"));
      CHECK_EQ(parsed.src_port, 0xC003);
      CHECK_EQ(parsed.datagram_bytes, size_t{64});
      CHECK_EQ(int{parsed.traffic_class}, 48 << 2 | (outer_ecn == 3 || inner_ecn == 3 ? 3 : 2));
      for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
        const ethernet::Frame cut = ethernet::parse({frame.data(), bytes}, 4971);
        CHECK(cut.kind != ethernet::FrameKind::roce);
        CHECK_EQ(cut.left_bytes, cut.kind == ethernet::FrameKind::malformed && bytes > 102 ? bytes - 102 : size_t{0});
      }
    }
  }
}

// An outer header in an outer header is none of ours.
void two_outer_headers_are_not_taken_off() {
  const usid::Route route = two_tiers();
  const std::vector<uint8_t> once = led_frame(route, 26 << 2, 64);
  std::vector<uint8_t> twice(once.begin(), once.begin() + 54);
  twice.insert(twice.end(), once.begin() + 14, once.end());
  CHECK(ethernet::parse(twice, 4971).kind == ethernet::FrameKind::other);
}

}  // namespace

int main() {
  a_value_names_a_port_of_each_tier();
  who_is_named_takes_itself_out();
  a_route_fits_one_address();
  an_outer_header_is_around_the_packet();
  an_outer_header_is_taken_off();
  two_outer_headers_are_not_taken_off();
  return etloop::test::failures();
}
