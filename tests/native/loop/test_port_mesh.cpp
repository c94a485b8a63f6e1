// The ways between the ports of one agent: order is kept, nothing that is posted is lost when a ring is full, what is only
// offered is refused then, a sleeper is woken; and who is joined to whom.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <span>
#include <thread>

#include "loop/loop_board.h"
#include "loop/port_mesh.h"
#include "support/check.h"

using namespace etloop;

namespace {

// Rank r on port r; ranks `src` and `dst` share a host.
EnginePlan plan_of(int32_t ports, int32_t src, int32_t dst) {
  EnginePlan plan;
  plan.ports.resize(static_cast<size_t>(ports));
  for (int32_t r = 0; r < ports; ++r) plan.ranks.push_back({r, 0, r, 0, {}, {}});
  PlannedConnection connection{};
  connection.src_rank = src;
  connection.dst_rank = dst;
  connection.path = Path::scale_up;
  plan.connections.push_back(connection);
  return plan;
}

ScaleUpMessage numbered(uint32_t index) { return {0, 0, 0, 0, index, ScaleUpKind::arrival}; }

void a_full_ring_loses_nothing() {
  using Mesh = PortMesh<uint32_t, 16>;
  size_t handed = 0;
  Mesh mesh(3, [&](size_t port) { handed += port; });
  mesh.join(0, 2);
  mesh.join(0, 2);
  mesh.join(2, 0);
  const uint32_t count = 3 * Mesh::Ring::kSlots + 5;
  for (uint32_t i = 0; i < count; ++i) mesh.post(0, 2, i);
  CHECK_EQ(handed, size_t{2} * count);
  CHECK(!mesh.flush(0));
  uint32_t expected = 0;
  const auto in_order = [&](uint32_t message) { CHECK_EQ(message, expected++); };
  CHECK(!mesh.take(1, count, in_order));
  CHECK(!mesh.empty(2));
  while (mesh.take(2, 7, in_order)) mesh.flush(0);
  CHECK_EQ(expected, count);
  CHECK(mesh.flush(0));
  CHECK(mesh.empty(2));
  // And the other way.
  mesh.post(2, 0, 7);
  bool came = false;
  CHECK(mesh.take(0, 1, [&](uint32_t message) { came = message == 7; }));
  CHECK(came);
}

void what_is_offered_to_a_full_ring_is_refused() {
  using Mesh = PortMesh<uint32_t, 4>;
  Mesh mesh(2, [](size_t) {});
  mesh.join(0, 1);
  const auto offer = [&](uint32_t value) {
    return mesh.offer(0, 1, [&](uint32_t& slot) { slot = value; });
  };
  for (uint32_t i = 0; i < 4; ++i) CHECK(offer(i));
  CHECK(!offer(4));
  uint32_t expected = 0;
  CHECK(mesh.take(1, 1, [&](uint32_t message) { CHECK_EQ(message, expected++); }));
  CHECK(offer(5));
  CHECK(mesh.take(1, 3, [&](uint32_t message) { CHECK_EQ(message, expected++); }));
  CHECK(mesh.take(1, 3, [&](uint32_t message) { CHECK_EQ(message, uint32_t{5}); }));
}

void two_threads_keep_the_order_and_wake_each_other() {
  const auto board = *LoopBoard::make(plan_of(2, 0, 1));
  constexpr uint32_t kCount = 200'000;
  std::thread writer([&] {
    for (uint32_t i = 0; i < kCount; ++i) {
      board->scale_up().post(0, 1, numbered(i));
      if (i % 64 == 0) std::this_thread::yield();
    }
    while (!board->flush(0)) std::this_thread::yield();
  });
  uint32_t expected = 0;
  while (expected < kCount) {
    const bool any = board->scale_up().take(1, 256, [&](const ScaleUpMessage& message) { CHECK_EQ(message.index, expected++); });
    // Sleeps until it is woken, with no limit: a lost wake-up hangs this test.
    if (!any) {
      board->sleep(1, [&] {
        pollfd woken{board->wake_fd(1), POLLIN, 0};
        poll(&woken, 1, -1);
        uint64_t times = 0;
        CHECK_EQ(read(board->wake_fd(1), &times, sizeof times), ssize_t{sizeof times});
      });
    }
  }
  writer.join();
  CHECK_EQ(expected, kCount);
}

// Ports 0 to 2 are the queues of one port, 3 is another.
EnginePlan plan_of_queues() {
  EnginePlan plan;
  plan.ports.resize(4);
  for (int32_t queue = 0; queue < 3; ++queue) {
    plan.ports[static_cast<size_t>(queue)].queues = 3;
    plan.ports[static_cast<size_t>(queue)].queue = queue;
  }
  return plan;
}

void queues_of_a_port_pass_each_other_messages_and_datagrams() {
  const auto board = *LoopBoard::make(plan_of_queues());
  for (size_t from = 0; from < 3; ++from) {
    for (size_t to = 0; to < 3; ++to) {
      if (from != to) board->queues().post(from, to, HomeOver{});
    }
  }
  for (size_t to = 0; to < 4; ++to) {
    int came = 0;
    board->queues().take(to, 10, [&](const QueueMessage&) { ++came; });
    CHECK_EQ(came, to < 3 ? 2 : 0);
  }
  std::array<uint8_t, StrayDatagram::kMostBytes + 1> bytes{};
  bytes[5] = 77;
  Datagram datagram;
  datagram.bytes = std::span(bytes).first(100);
  datagram.src_port = 4242;
  CHECK(board->pass(2, 1, datagram, 9));
  bytes[5] = 0;  // it was copied
  int came = 0;
  CHECK(board->take_strays(1, 10, [&](const Datagram& stray, Nanos arrived_ns) {
    CHECK_EQ(stray.bytes.size(), size_t{100});
    CHECK_EQ(int{stray.bytes[5]}, 77);
    CHECK_EQ(int{stray.src_port}, 4242);
    CHECK_EQ(arrived_ns, Nanos{9});
    ++came;
  }));
  CHECK_EQ(came, 1);
  datagram.bytes = bytes;  // longer than any packet of ours
  CHECK(!board->pass(2, 1, datagram, 9));
}

}  // namespace

int main() {
  a_full_ring_loses_nothing();
  what_is_offered_to_a_full_ring_is_refused();
  two_threads_keep_the_order_and_wake_each_other();
  queues_of_a_port_pass_each_other_messages_and_datagrams();
  return test::failures();
}
