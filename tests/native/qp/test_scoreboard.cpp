// What of the packets under way is lost: whatever was overtaken, in order of departures, and nothing that arrived.
#include "qp/scoreboard.h"

#include <algorithm>
#include <map>
#include <random>

#include "support/check.h"

using namespace etloop;

namespace {

constexpr uint32_t kBegin = wire::kPsnMask - 9;  // numbers begin anew after ten

uint32_t at(uint32_t offset) { return (kBegin + offset) & wire::kPsnMask; }

void what_is_overtaken_is_lost_and_counts_as_under_way_again_when_it_is_sent() {
  Scoreboard board;
  board.sent(at(0), 8);
  board.sent(at(8), 4);
  CHECK_EQ(board.under_way(), 12U);
  CHECK_EQ(board.lose_overtaken(), 0U);
  CHECK_EQ(board.arrived(at(3), 2), 2U);
  CHECK_EQ(board.arrived(at(3), 2), 0U);
  CHECK_EQ(board.lose_overtaken(), 3U);
  CHECK_EQ(board.under_way(), 7U);
  CHECK_EQ(board.first_lost().psn, at(0));
  CHECK_EQ(board.first_lost().count, 3U);
  board.sent(at(0), 1);
  CHECK_EQ(board.first_lost().psn, at(1));
  CHECK_EQ(board.under_way(), 8U);
  board.arrived_before(at(5));
  CHECK(!board.any_lost());
  // The repetition of the first left last: all that left before it and is not here is lost, the tail too.
  CHECK_EQ(board.lose_overtaken(), 7U);
  CHECK_EQ(board.under_way(), 0U);
}

void a_repetition_that_is_lost_is_noticed_by_what_left_after_it() {
  Scoreboard board;
  board.sent(at(0), 3);
  board.arrived(at(1), 1);
  CHECK_EQ(board.lose_overtaken(), 1U);
  board.sent(at(0), 1);
  board.arrived(at(2), 1);  // left before the repetition
  CHECK_EQ(board.lose_overtaken(), 0U);
  board.sent(at(3), 1);
  board.arrived(at(3), 1);
  CHECK_EQ(board.lose_overtaken(), 1U);
  CHECK_EQ(board.first_lost().psn, at(0));
}

void the_newest_is_the_last_that_is_not_here() {
  Scoreboard board;
  uint32_t psn = 0;
  CHECK(!board.newest(psn));
  board.sent(at(0), 4);
  board.arrived(at(3), 1);
  CHECK(board.newest(psn));
  CHECK_EQ(psn, at(2));
  board.lose(at(0), 4);
  CHECK_EQ(board.first_lost().count, 3U);
}

void what_is_doubted_is_sent_again_whether_it_is_here_or_not() {
  Scoreboard board;
  board.sent(at(0), 3);
  board.arrived(at(0), 1);
  board.doubt(at(0));
  board.doubt(at(1));
  CHECK_EQ(board.first_lost().psn, at(0));
  CHECK_EQ(board.under_way(), 1U);
  board.sent(at(0), 2);
  CHECK(!board.any_lost());
  CHECK_EQ(board.under_way(), 3U);
}

// Beside a model that knows every packet by itself.
void any_order_of_sending_and_arriving_counts_right() {
  struct Known {
    uint64_t departure;
    bool lost;
  };
  std::mt19937 random(11);
  for (int round = 0; round < 3'000; ++round) {
    Scoreboard board;
    std::map<uint32_t, Known> model;  // by offset; what arrived is not in it
    uint64_t departures = 0;
    uint64_t latest = 0;
    uint64_t asked = 0;
    uint32_t end = 0;
    const auto gone = [&](uint32_t from, uint32_t to) {
      for (uint32_t i = from; i < to; ++i) {
        if (const auto found = model.find(i); found != model.end()) {
          latest = std::max(latest, found->second.departure);
          model.erase(found);
        }
      }
    };
    for (int step = 0; step < 60; ++step) {
      const uint32_t from = end == 0 ? 0 : random() % end;
      const uint32_t count = 1 + random() % 4;
      switch (random() % 5) {
        case 0:
        case 1:
          if (board.any_lost()) {
            const Scoreboard::Range lost = board.first_lost();
            const uint32_t taken = 1 + random() % lost.count;
            const auto offset = static_cast<uint32_t>(wire::psn_distance(lost.psn, kBegin));
            for (uint32_t i = 0; i < taken; ++i) {
              CHECK(model.at(offset + i).lost);
              model[offset + i] = {++departures, false};
            }
            board.sent(lost.psn, taken);
          } else {
            for (uint32_t i = 0; i < count; ++i) model[end + i] = {++departures, false};
            board.sent(at(end), count);
            end += count;
          }
          break;
        case 2:
          board.arrived(at(from), std::min(count, end - from));
          gone(from, std::min(from + count, end));
          break;
        case 3:
          board.arrived_before(at(std::min(from, 6U)));
          gone(0, std::min(from, 6U));
          break;
        default:
          board.lose_overtaken();
          for (auto& [offset, known] : model) known.lost = known.lost || known.departure <= latest;
      }
      if (random() % 8 == 0) {
        board.note_asked();
        asked = departures;
      }
      uint32_t lost = 0;
      for (const auto& [offset, known] : model) lost += known.lost ? 1 : 0;
      CHECK_EQ(board.any_lost(), lost != 0);
      CHECK_EQ(board.under_way(), static_cast<uint32_t>(model.size()) - lost);
      CHECK_EQ(board.answer_expected(), asked > latest);
    }
  }
}

}  // namespace

int main() {
  what_is_overtaken_is_lost_and_counts_as_under_way_again_when_it_is_sent();
  a_repetition_that_is_lost_is_noticed_by_what_left_after_it();
  the_newest_is_the_last_that_is_not_here();
  what_is_doubted_is_sent_again_whether_it_is_here_or_not();
  any_order_of_sending_and_arriving_counts_right();
  return test::failures();
}
