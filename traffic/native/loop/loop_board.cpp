#include "loop/loop_board.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>

#include "plan/queue_deal.h"

namespace etloop {

namespace {

void join_scale_up(const EnginePlan& plan, PortMesh<ScaleUpMessage>& mesh) {
  std::map<int32_t, size_t> port_of;
  for (const PlannedRank& rank : plan.ranks) port_of[rank.rank] = static_cast<size_t>(rank.port);
  for (const PlannedConnection& c : plan.connections) {
    const auto src = port_of.find(c.src_rank);
    const auto dst = port_of.find(c.dst_rank);
    if (c.path == Path::wire || src == port_of.end() || dst == port_of.end() || src->second == dst->second) continue;
    mesh.join(src->second, dst->second);
    mesh.join(dst->second, src->second);
  }
}

}  // namespace

LoopBoard::LoopBoard(const EnginePlan& plan)
    : sleeping_(plan.ports.size()),
      scale_up_(plan.ports.size(), [this](size_t port) { wake_if_asleep(port); }),
      queues_(plan.ports.size(), [this](size_t port) { wake_if_asleep(port); }),
      strays_(plan.ports.size(), [this](size_t port) { wake_if_asleep(port); }) {
  join_scale_up(plan, scale_up_);
  for (size_t port = 0; port < plan.ports.size(); ++port) {
    if (!is_dealt(plan.ports[port])) continue;
    const size_t first = port - static_cast<size_t>(plan.ports[port].queue);
    for (size_t other = first; other < first + plan.ports[port].queues; ++other) {
      if (other == port) continue;
      queues_.join(port, other);
      strays_.join(port, other);
    }
  }
}

Result<std::shared_ptr<LoopBoard>> LoopBoard::make(const EnginePlan& plan) {
  std::shared_ptr<LoopBoard> board(new LoopBoard(plan));
  for (size_t port = 0; port < plan.ports.size(); ++port) {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) {
      return Error{std::string("cannot make an event descriptor: ") + std::strerror(errno)};
    }
    board->wake_fds_.push_back(fd);
  }
  return board;
}

LoopBoard::~LoopBoard() {
  for (const int fd : wake_fds_) close(fd);
}

void LoopBoard::wake(size_t port) const {
  const uint64_t one = 1;
  // The counter of an event descriptor cannot overflow here; a full one would still be readable.
  [[maybe_unused]] const ssize_t written = write(wake_fds_[port], &one, sizeof one);
}

bool LoopBoard::pass(size_t from, size_t to, const Datagram& datagram, Nanos arrived_ns) {
  if (datagram.bytes.size() > StrayDatagram::kMostBytes) return false;
  return strays_.offer(from, to, [&](StrayDatagram& slot) {
    slot.datagram = datagram;
    slot.datagram.hops = {};  // the engine's ports provide none
    slot.arrived_ns = arrived_ns;
    slot.stored = datagram.bytes.size();
    std::copy(datagram.bytes.begin(), datagram.bytes.end(), slot.bytes.begin());
  });
}

void LoopBoard::sleep(size_t port, const std::function<void()>& until_woken) {
  sleeping_[port].store(true, std::memory_order_seq_cst);
  if (scale_up_.empty(port) && queues_.empty(port) && strays_.empty(port)) until_woken();
  sleeping_[port].store(false, std::memory_order_relaxed);
}

}  // namespace etloop
