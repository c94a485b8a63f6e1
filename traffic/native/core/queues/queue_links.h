// Messages between the queues of one port that share its addresses. A rank's ops run on one queue, its home; its queue pairs are
// dealt over all queues. Requests go from the home to the queue of the queue pair; completions and arrivals go back. Only whole
// messages: packets and their timers stay on one queue.
#pragma once

#include <cstdint>
#include <variant>

#include "base/time.h"
#include "core/message.h"
#include "core/port.h"
#include "qp/work.h"

namespace etloop {

// A request for the queue pair of this number.
struct QueueRequest {
  uint32_t qpn = 0;
  WorkRequest request;
};

enum class QueueReportKind : uint8_t { grant, message, one_sided, departed, left, acknowledged };

// A report to a rank's home from one of its queue pairs.
struct QueueReport {
  QueueReportKind kind = QueueReportKind::grant;
  int32_t connection = -1;
  uint32_t tag = 0;    // departed: the op's record index; left, acknowledged: the lane
  uint32_t index = 0;
  int64_t bytes = 0;
  int64_t part_bytes = 0;
  Grant grant;
  Nanos at_ns = 0;  // arrival or departure time at this host
};

// All ranks of this home have finished.
struct HomeOver {};

using QueueMessage = std::variant<QueueRequest, QueueReport, HomeOver>;

// Channel from one queue of a port to another: in order and lossless for messages.
class QueueLinks {
 public:
  virtual ~QueueLinks() = default;
  virtual void post(int32_t port, const QueueMessage& message) = 0;
  // Pass on a datagram that arrived at another queue than its queue pair's. It may be lost like any other.
  virtual void pass(int32_t port, const Datagram& datagram, Nanos arrived_ns) = 0;
};

}  // namespace etloop
