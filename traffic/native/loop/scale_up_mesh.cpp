#include "loop/scale_up_mesh.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

namespace etloop {

bool ScaleUpRing::push(const ScaleUpMessage& message) {
  const size_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) == kSlots) return false;
  slots_[tail & (kSlots - 1)] = message;
  // In one order with `sleeping_` and the reader's look at `empty`: writer or reader sees what the other did.
  tail_.store(tail + 1, std::memory_order_seq_cst);
  return true;
}

bool ScaleUpRing::pop(ScaleUpMessage& out) {
  const size_t head = head_.load(std::memory_order_relaxed);
  if (head == tail_.load(std::memory_order_acquire)) return false;
  out = slots_[head & (kSlots - 1)];
  head_.store(head + 1, std::memory_order_release);
  return true;
}

bool ScaleUpRing::empty() const {
  return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst);
}

ScaleUpMesh::ScaleUpMesh(const EnginePlan& plan, std::function<void(size_t)> wake)
    : outbound_(plan.ports.size()), inbound_(plan.ports.size()), sleeping_(plan.ports.size()), wake_(std::move(wake)) {
  std::map<int32_t, size_t> port_of;
  for (const PlannedRank& rank : plan.ranks) port_of[rank.rank] = static_cast<size_t>(rank.port);
  const auto join = [&](size_t from, size_t to) {
    const auto joined = [to](const Link* link) { return link->to == to; };
    if (std::any_of(outbound_[from].begin(), outbound_[from].end(), joined)) return;
    links_.push_back(std::make_unique<Link>());
    links_.back()->from = from;
    links_.back()->to = to;
    outbound_[from].push_back(links_.back().get());
    inbound_[to].push_back(links_.back().get());
  };
  for (const PlannedConnection& c : plan.connections) {
    const auto src = port_of.find(c.src_rank);
    const auto dst = port_of.find(c.dst_rank);
    if (c.path == Path::wire || src == port_of.end() || dst == port_of.end() || src->second == dst->second) continue;
    join(src->second, dst->second);
    join(dst->second, src->second);
  }
}

void ScaleUpMesh::post(size_t from, size_t to, const ScaleUpMessage& message) {
  const auto& links = outbound_[from];
  const auto link = std::find_if(links.begin(), links.end(), [to](const Link* each) { return each->to == to; });
  assert(link != links.end());
  std::deque<ScaleUpMessage>& waiting = (*link)->waiting;
  if (!waiting.empty() || !(*link)->ring.push(message)) waiting.push_back(message);
  wake_if_asleep(to);
}

bool ScaleUpMesh::flush(size_t from) {
  bool all = true;
  for (Link* link : outbound_[from]) {
    if (link->waiting.empty()) continue;
    while (!link->waiting.empty() && link->ring.push(link->waiting.front())) link->waiting.pop_front();
    all = all && link->waiting.empty();
    wake_if_asleep(link->to);
  }
  return all;
}

bool ScaleUpMesh::take(size_t to, size_t budget, const std::function<void(const ScaleUpMessage&)>& sink) {
  bool any = false;
  ScaleUpMessage message;
  for (Link* link : inbound_[to]) {
    for (size_t count = 0; count < budget && link->ring.pop(message); ++count) {
      sink(message);
      any = true;
    }
  }
  return any;
}

void ScaleUpMesh::sleep(size_t to, const std::function<void()>& until_woken) {
  sleeping_[to].store(true, std::memory_order_seq_cst);
  const auto empty = [](const Link* link) { return link->ring.empty(); };
  if (std::all_of(inbound_[to].begin(), inbound_[to].end(), empty)) until_woken();
  sleeping_[to].store(false, std::memory_order_relaxed);
}

void ScaleUpMesh::wake_if_asleep(size_t port) {
  if (sleeping_[port].load(std::memory_order_seq_cst)) wake_(port);
}

}  // namespace etloop
