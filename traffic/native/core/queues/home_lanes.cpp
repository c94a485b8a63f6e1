#include "core/queues/home_lanes.h"

namespace etloop {

void HomeLanes::take(const QueueReport& report) {
  switch (report.kind) {
    case QueueReportKind::grant: lanes_.on_grant(report.connection, report.tag, report.grant, report.at_ns); break;
    case QueueReportKind::message:
      carried_rx_bytes_ -= report.part_bytes;
      lanes_.on_message({report.connection, report.tag, report.index, report.bytes, report.part_bytes}, report.at_ns);
      break;
    case QueueReportKind::one_sided:
      carried_rx_bytes_ -= report.bytes;
      lanes_.on_one_sided(report.connection, report.tag, report.index, report.bytes, report.at_ns);
      break;
    case QueueReportKind::departed: records_.note_far_departure(report.tag, report.at_ns); break;
    case QueueReportKind::left: lanes_.on_left(report.tag, report.index, report.at_ns); break;
    case QueueReportKind::acknowledged: lanes_.on_acknowledged(report.tag, report.index, report.at_ns); break;
  }
}

}  // namespace etloop
