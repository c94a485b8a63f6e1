// What the queues of one port hand each other where they share its addresses. A rank's operations are on one queue, its home;
// its queue pairs are dealt over all of them. A request goes from the home to the queue that has the queue pair; what comes of
// it, and what arrives, goes back. Whole messages only: packets and their timers stay with one queue.
#pragma once

#include <cstdint>
#include <variant>

#include "base/time.h"
#include "core/message.h"
#include "core/port.h"
#include "qp/work.h"

namespace etloop {

// To the queue that has the queue pair of this number.
struct QueueRequest {
  uint32_t qpn = 0;
  WorkRequest request;
};

enum class QueueReportKind : uint8_t { grant, message, one_sided, departed, acknowledged };

// To a rank's home, of one of its queue pairs.
struct QueueReport {
  QueueReportKind kind = QueueReportKind::grant;
  int32_t connection = -1;
  uint32_t tag = 0;    // departed: the op's number among the records; acknowledged: the lane
  uint32_t index = 0;
  int64_t bytes = 0;
  int64_t part_bytes = 0;
  Grant grant;
  Nanos at_ns = 0;  // when it reached, or left, this host
};

// To a queue: all ranks of this home have finished.
struct HomeOver {};

using QueueMessage = std::variant<QueueRequest, QueueReport, HomeOver>;

// The way from one queue to another of its port. In order; nothing posted is lost.
class QueueLinks {
 public:
  virtual ~QueueLinks() = default;
  virtual void post(int32_t port, const QueueMessage& message) = 0;
  // A datagram that came to another queue than its queue pair's. It may get lost like any other.
  virtual void pass(int32_t port, const Datagram& datagram, Nanos arrived_ns) = 0;
};

}  // namespace etloop
