// The ways between the ports of one host: order is kept, nothing is lost when a ring is full, a sleeper is woken.
#include <atomic>
#include <thread>

#include "loop/scale_up_mesh.h"
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
  ScaleUpMesh mesh(plan_of(3, 0, 2), [](size_t) {});
  const uint32_t count = 3 * ScaleUpRing::kSlots + 5;
  for (uint32_t i = 0; i < count; ++i) mesh.post(0, 2, numbered(i));
  CHECK(!mesh.flush(0));
  uint32_t expected = 0;
  const auto in_order = [&](const ScaleUpMessage& message) { CHECK_EQ(message.index, expected++); };
  CHECK(!mesh.take(1, count, in_order));
  while (mesh.take(2, 100, in_order)) mesh.flush(0);
  CHECK_EQ(expected, count);
  CHECK(mesh.flush(0));
  // Clear-to-sends go the other way.
  mesh.post(2, 0, numbered(7));
  bool came = false;
  CHECK(mesh.take(0, 1, [&](const ScaleUpMessage& message) { came = message.index == 7; }));
  CHECK(came);
}

void two_threads_keep_the_order_and_wake_each_other() {
  std::atomic<int> woken{0};
  ScaleUpMesh mesh(plan_of(2, 0, 1), [&](size_t port) {
    CHECK_EQ(port, size_t{1});
    ++woken;
    woken.notify_one();
  });
  constexpr uint32_t kCount = 200'000;
  std::thread writer([&] {
    for (uint32_t i = 0; i < kCount; ++i) {
      mesh.post(0, 1, numbered(i));
      if (i % 64 == 0) std::this_thread::yield();
    }
    while (!mesh.flush(0)) std::this_thread::yield();
  });
  uint32_t expected = 0;
  while (expected < kCount) {
    const int before = woken.load();
    const bool any = mesh.take(1, 256, [&](const ScaleUpMessage& message) { CHECK_EQ(message.index, expected++); });
    // Sleeps until it is woken, with no limit: a lost wake-up hangs this test.
    if (!any) mesh.sleep(1, [&] { woken.wait(before); });
  }
  writer.join();
  CHECK_EQ(expected, kCount);
}

}  // namespace

int main() {
  a_full_ring_loses_nothing();
  two_threads_keep_the_order_and_wake_each_other();
  return test::failures();
}
