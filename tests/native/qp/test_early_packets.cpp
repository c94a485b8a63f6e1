// Packets ahead of their turn: which are kept, how their gaps are told, and that each is taken once.
#include "qp/early_packets.h"

#include <array>

#include "qp/work.h"
#include "support/check.h"

using namespace etloop;
using Kept = EarlyPackets::Kept;

namespace {

TransportSettings params(bool selective, uint32_t reorder_packets = 1) {
  TransportSettings made;
  made.recovery.selective_repeat = selective;
  made.recovery.accept_out_of_order = reorder_packets > 1;
  made.recovery.reorder_packets = reorder_packets;
  return made;
}

wire::Packet middle(uint32_t psn) {
  wire::Packet packet;
  packet.opcode = wire::Opcode::write_middle;
  packet.psn = psn;
  packet.payload_bytes = 4;
  return packet;
}

void ends_that_did_not_agree_keep_nothing() {
  EarlyPackets early(params(false));
  CHECK(early.keep(middle(3), 3, true) == Kept::no);
  CHECK(early.empty());
}

void a_packet_is_kept_once_and_taken_in_its_turn() {
  EarlyPackets early(params(true));
  CHECK(early.keep(middle(2), 2, true) == Kept::new_one);
  CHECK(early.keep(middle(2), 2, true) == Kept::again);
  CHECK(early.take(0) == nullptr);
  const wire::Packet* taken = early.take(2);
  CHECK(taken != nullptr && taken->psn == 2);
  CHECK(early.empty());
}

void too_far_ahead_or_no_write_is_not_kept() {
  EarlyPackets early(params(true));
  CHECK(early.keep(middle(kReorderWindow + 1), kReorderWindow + 1, true) == Kept::no);
  wire::Packet read = middle(1);
  read.opcode = wire::Opcode::read_request;
  CHECK(early.keep(read, 1, true) == Kept::no);
}

void content_is_copied_where_it_matters() {
  EarlyPackets early(params(true));
  std::array<uint8_t, 4> buffer = {1, 2, 3, 4};
  wire::Packet packet = middle(1);
  packet.payload = buffer.data();
  early.keep(packet, 1, true);
  packet.psn = 2;
  early.keep(packet, 2, false);
  buffer.fill(9);
  CHECK_EQ(early.take(1)->payload[3], 4);
  CHECK(early.take(2)->payload == nullptr);
}

void room_grows_to_how_far_packets_overtake() {
  EarlyPackets early(params(true));
  for (uint32_t ahead = 1; ahead <= kReorderWindow; ++ahead) CHECK(early.keep(middle(ahead), ahead, true) == Kept::new_one);
  for (uint32_t psn = 1; psn <= kReorderWindow; ++psn) CHECK(early.take(psn) != nullptr);
  CHECK(early.empty());
}

void gaps_are_told_once_and_as_bits() {
  EarlyPackets early(params(true, 3));
  early.keep(middle(2), 2, true);
  CHECK(early.note_gap(2));
  CHECK(early.missing_may_be_late());
  early.keep(middle(3), 3, true);
  CHECK(!early.note_gap(3));
  early.keep(middle(5), 5, true);
  CHECK(early.note_gap(5));
  CHECK(early.reached_patience());
  std::array<uint8_t, wire::kSelectiveBitmapBytes> bitmap{};
  early.put_bitmap(0, bitmap);
  CHECK_EQ(bitmap[0], 0b10110);
}

void a_read_of_many_numbers_passes_what_is_kept() {
  EarlyPackets early(params(true));
  early.keep(middle(2), 2, true);
  early.keep(middle(6), 6, true);
  early.advance(4, 4);
  CHECK(early.take(2) == nullptr);
  CHECK(early.take(6) != nullptr);
  CHECK(early.empty());
}

}  // namespace

int main() {
  ends_that_did_not_agree_keep_nothing();
  a_packet_is_kept_once_and_taken_in_its_turn();
  too_far_ahead_or_no_write_is_not_kept();
  content_is_copied_where_it_matters();
  room_grows_to_how_far_packets_overtake();
  gaps_are_told_once_and_as_bits();
  a_read_of_many_numbers_passes_what_is_kept();
  return test::failures();
}
