// What a core waits for, by name: for the failure of a run whose time does not advance.
#include <string>

#include "core/core.h"

namespace etloop {

std::string Core::describe(const Event& event) const {
  const auto connection = [&] { return connections_.text(static_cast<int32_t>(event.a)); };
  const auto queue_pair = [&] {
    return "queue pair " + std::to_string(queue_pairs_[event.a].local_qpn()) + " of " +
           connections_.text(queue_pairs_.place(event.a).connection);
  };
  switch (event.kind) {
    case EventKind::delay_over: return "the delay of operation " + std::to_string(event.b);
    case EventKind::local_grant: return "a grant inside the host for " + connection();
    case EventKind::local_arrival: return "a message inside the host for " + connection();
    case EventKind::local_sent: return "a message that was sent inside the host";
    case EventKind::qp_timer: return "the retransmission timer of " + queue_pair();
    case EventKind::flow_timer: return "the congestion control of " + queue_pair();
    case EventKind::credit_due: return "the credit of the port's receivers";
    case EventKind::planes_due: return "the report of the card's planes";
    case EventKind::series_due: return "the series of rates";
  }
  return "an event";
}

std::string Core::due_component(Nanos now) const {
  const Nanos due_ns = next_deadline();
  if (due_ns > now) return "what comes to it";
  if (ops_.any_ready()) return "an operation that is ready";
  if (events_.next_due() == due_ns) return describe(events_.front());
  if (start_ns_ == due_ns) return "the start of the ranks";
  if (probing_.prober().deadline() == due_ns) return "the probe of connections";
  if (transmission_.answers_due_ns() == due_ns) return "an acknowledgement that was put off";
  int32_t rule = -1;
  if (faults_ != nullptr) rule = faults_->due_rule(due_ns);
  if (path_faults_ != nullptr) rule = path_faults_->due_rule(due_ns);
  if (rule >= 0) return "fault rule " + std::to_string(rule) + " of transport.faults";
  return "what it has to send";
}

}  // namespace etloop
