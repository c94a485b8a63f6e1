// SwitchModel: links that go down and come up.
#include <algorithm>
#include <bit>
#include <cassert>

#include "switch/switch_model.h"

namespace etloop {

void SwitchModel::flush(size_t port, size_t queue, SwitchDrop why, Nanos now) {
  Queue& q = ports_[port].queues[queue];
  while (q.head != kNone) {
    const uint32_t packet = q.head;
    const Packet& p = packets_[packet];
    q.head = p.next;
    const size_t in_port = p.in_port;
    const size_t group = p.group;
    buffer_.release(in_port, group, port, queue, p.frame.frame_bytes);
    --queued_packets_;
    discard(packet, why, now);
    control_pause(in_port, group, now);
  }
  q.tail = kNone;
  ports_[port].filled &= static_cast<uint8_t>(~(1U << queue));
}

void SwitchModel::on_link(size_t port, bool up, Nanos now) {
  Port& p = ports_[port];
  ways_.set_up(port, up);
  p.up = up;
  p.connected = up;
  for (size_t queue = 0; queue < kPriorities; ++queue) {
    if (!up) {
      const int64_t before = queued_packets_;
      flush(port, queue, SwitchDrop::link_down, now);
      counters_[port].link_dropped_packets += before - queued_packets_;
    }
    set_paused(port, queue, 0, now);
  }
  paused_senders_ -= static_cast<size_t>(std::popcount(p.xoff_sent));
  p.xoff_sent = 0;
  if (up) {
    for (size_t group = 0; group < kPriorities; ++group) control_pause(port, group, now);
    kick(port, now);
  }
  check_conservation();
}

}  // namespace etloop
