#include "port/planes/planes_port.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "port/neighbours.h"
#include "port/open_port.h"
#include "port/system_clock.h"

namespace etloop {

Result<std::unique_ptr<PlanesPort>> PlanesPort::open(const std::vector<PortConfig>& planes) {
  assert(planes.size() > 1);
  std::unique_ptr<PlanesPort> made(new PlanesPort(planes.front().addresses.size()));
  for (const PortConfig& config : planes) {
    const auto found = find_interface(config.interface, config.addresses.front());
    if (!found) return found.error();
    auto link = LinkState::open(found->name);
    if (!link) return link.error();
    auto port = open_datagram_port(config);
    if (!port) return Error{"interface " + found->name + ": " + port.error().text};
    made->planes_.push_back({*std::move(port), *std::move(link)});
  }
  if (auto polled = made->poll_all(); !polled) return polled.error();
  made->look_at_links(monotonic_ns());
  return made;
}

Result<void> PlanesPort::poll_all() {
  arrivals_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (arrivals_.get() < 0) return Error{"cannot poll the planes of a card: " + errno_text(errno)};
  for (const Plane& plane : planes_) {
    epoll_event asked{};
    asked.events = EPOLLIN;
    if (epoll_ctl(arrivals_.get(), EPOLL_CTL_ADD, plane.port->arrival_fd(), &asked) == 0) continue;
    return Error{"cannot poll interface " + plane.link.interface() + ": " + errno_text(errno)};
  }
  return {};
}

Result<FlowId> PlanesPort::add_flow(uint16_t address, const IpAddress& dst_ip, uint16_t src_port, uint8_t traffic_class) {
  const auto plane = static_cast<uint32_t>(address / addresses_);
  const auto own = static_cast<uint16_t>(address % addresses_);
  const Result<FlowId> flow = planes_.at(plane).port->add_flow(own, dst_ip, src_port, traffic_class);
  if (!flow) return flow;
  flows_.push_back({plane, *flow});
  return static_cast<FlowId>(flows_.size() - 1);
}

void PlanesPort::look_at_links(Nanos now) {
  looked_ns_ = now;
  up_ = 0;
  for (size_t p = 0; p < planes_.size(); ++p) up_ |= uint32_t{planes_[p].link.is_up()} << p;
}

TxResult PlanesPort::send_built(const BuiltPacket& built) {
  const Flow& flow = flows_[built.flow];
  if ((up_ >> flow.plane & 1) == 0) return TxResult::sent;
  BuiltPacket own = built;
  own.flow = flow.own;
  const TxResult result = planes_[flow.plane].port->send_built(own);
  if (result == TxResult::would_block || result == TxResult::held) full_ |= 1U << flow.plane;
  if (result != TxResult::failed) return result;
  look_at_links(monotonic_ns());
  if ((up_ >> flow.plane & 1) == 0) return TxResult::sent;
  failed_ = flow.plane;
  return TxResult::failed;
}

uint32_t PlanesPort::open_planes(FlowId, const ClassMarks&) {
  const uint32_t up = up_ == 0 ? all() : up_;
  return up & ~full_;
}

size_t PlanesPort::receive(PortSink& sink, size_t budget) {
  const Nanos now = monotonic_ns();
  if (now - looked_ns_ >= kLookNs) look_at_links(now);
  full_ = 0;
  size_t packets = 0;
  first_ = (first_ + 1) % planes_.size();
  for (size_t i = 0; i < planes_.size(); ++i) {
    const size_t p = (first_ + i) % planes_.size();
    Arrivals arrivals(sink, planes_[p], p * addresses_);
    packets += planes_[p].port->receive(arrivals, budget / planes_.size());
  }
  return packets;
}

void PlanesPort::wait(Nanos timeout_ns, int wake_fd) {
  if (wake_fd != wake_fd_) {
    epoll_event asked{};
    asked.events = EPOLLIN;
    if (wake_fd_ >= 0) epoll_ctl(arrivals_.get(), EPOLL_CTL_DEL, wake_fd_, nullptr);
    if (wake_fd >= 0) epoll_ctl(arrivals_.get(), EPOLL_CTL_ADD, wake_fd, &asked);
    wake_fd_ = wake_fd;
  }
  if (std::exchange(full_, 0) != 0) timeout_ns = std::min(timeout_ns, kRoomRetryNs);
  for (size_t p = 1; p < planes_.size(); ++p) planes_[p].port->wait(0, -1);  // flush staged packets
  planes_.front().port->wait(timeout_ns, arrivals_.get());
  std::array<uint8_t, 64> drained;
  while (wake_fd >= 0 && read(wake_fd, drained.data(), drained.size()) == static_cast<ssize_t>(drained.size())) {
  }
}

const PortRecord& PlanesPort::counters() const {
  sum_.tx_datagrams = sum_.tx_bytes = 0;
  for (const Plane& plane : planes_) {
    sum_.tx_datagrams += plane.port->counters().tx_datagrams;
    sum_.tx_bytes += plane.port->counters().tx_bytes;
  }
  return sum_;
}

std::vector<PortRecord> PlanesPort::records() const {
  std::vector<PortRecord> found;
  for (const Plane& plane : planes_) {
    found.push_back(plane.port->records().front());
    found.back().trimmed_datagrams = plane.trimmed;
  }
  return found;
}

int64_t PlanesPort::receive_buffer_bytes() const {
  int64_t least = planes_.front().port->receive_buffer_bytes();
  for (const Plane& plane : planes_) least = std::min(least, plane.port->receive_buffer_bytes());
  return least;
}

std::vector<std::string> PlanesPort::degraded() const {
  std::vector<std::string> out;
  for (const Plane& plane : planes_) {
    for (const std::string& what : plane.port->degraded()) out.push_back(plane.link.interface() + ": " + what);
  }
  return out;
}

std::vector<std::string> PlanesPort::capabilities() const {
  std::vector<std::string> out;
  for (const Plane& plane : planes_) {
    for (const std::string& what : plane.port->capabilities()) out.push_back(plane.link.interface() + ": " + what);
  }
  return out;
}

std::string PlanesPort::last_error() const {
  const Plane& plane = planes_[failed_];
  return plane.link.interface() + ": " + plane.port->last_error();
}

}  // namespace etloop
