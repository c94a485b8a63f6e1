#include "switch/station_table.h"

#include "support/check.h"

using namespace etloop;

namespace {

ethernet::Mac mac_of(uint32_t number, uint8_t first = 0x02) {
  return {first, 0, static_cast<uint8_t>(number >> 24), static_cast<uint8_t>(number >> 16), static_cast<uint8_t>(number >> 8),
          static_cast<uint8_t>(number)};
}

void stations_are_where_they_last_spoke() {
  StationTable table;
  CHECK_EQ(table.find(mac_of(1)), StationTable::kNowhere);
  table.learn(mac_of(1), 3);
  CHECK_EQ(table.find(mac_of(1)), 3U);
  table.learn(mac_of(1), 4);
  CHECK_EQ(table.find(mac_of(1)), 4U);
}

void a_fixed_station_cannot_be_taken_over() {
  StationTable table;
  table.learn(mac_of(1), 3);
  table.fix(mac_of(1), 5);
  table.learn(mac_of(1), 3);
  CHECK_EQ(table.find(mac_of(1)), 5U);
}

void nobody_is_a_group() {
  StationTable table;
  table.learn(mac_of(1, 0x03), 3);
  CHECK_EQ(table.find(mac_of(1, 0x03)), StationTable::kNowhere);
  CHECK(StationTable::is_group(mac_of(1, 0x03)));
  CHECK(!StationTable::is_group(mac_of(1)));
}

// A host that sends from ever new addresses fills the table and nothing else.
void the_table_is_bounded_and_keeps_whom_it_knows() {
  StationTable table;
  for (uint32_t i = 0; i < 3 * StationTable::kMostLearned; ++i) table.learn(mac_of(i), 1);
  CHECK_EQ(table.find(mac_of(StationTable::kMostLearned - 1)), 1U);
  CHECK_EQ(table.find(mac_of(StationTable::kMostLearned)), StationTable::kNowhere);
  table.learn(mac_of(0), 2);
  CHECK_EQ(table.find(mac_of(0)), 2U);
  table.fix(mac_of(3 * StationTable::kMostLearned), 7);
  CHECK_EQ(table.find(mac_of(3 * StationTable::kMostLearned)), 7U);
}

void what_ends_at_a_switch() {
  CHECK(StationTable::ends_here({0x01, 0x80, 0xC2, 0, 0, 0x00}));
  CHECK(StationTable::ends_here({0x01, 0x80, 0xC2, 0, 0, 0x01}));
  CHECK(StationTable::ends_here({0x01, 0x80, 0xC2, 0, 0, 0x0F}));
  CHECK(!StationTable::ends_here({0x01, 0x80, 0xC2, 0, 0, 0x10}));
  CHECK(!StationTable::ends_here({0x01, 0x80, 0xC2, 0, 1, 0x00}));
  CHECK(!StationTable::ends_here({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}));
}

}  // namespace

int main() {
  stations_are_where_they_last_spoke();
  a_fixed_station_cannot_be_taken_over();
  nobody_is_a_group();
  the_table_is_bounded_and_keeps_whom_it_knows();
  what_ends_at_a_switch();
  return etloop::test::failures();
}
