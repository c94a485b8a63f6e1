// A core without packets: all ranks of a job at once, whose messages a carrier takes whole.
#include <utility>

#include "core/core.h"

namespace etloop {

std::unique_ptr<Core> Core::make_carried(const EnginePlan& plan, MessageCarrier& network, std::string& error) {
  std::unique_ptr<Core> core(new Core(plan, kEveryPort));
  core->network_ = &network;
  if (!core->load_ranks(error)) return nullptr;
  return core;
}

// `bytes` of message `index` of a lane, in as many parts and on the queue pairs that `post_message` would take.
void Core::carry_message(uint32_t lane, uint32_t index, int64_t bytes, Nanos now) {
  const LaneRun& sending = lanes_[lane];
  const int32_t connection = sending.send_connection;
  const bool one_sided = sending.one_sided;
  const uint32_t tag = sending.tag;
  OpRecord& record = runs_[sending.op_run].record;
  if (record.first_tx_ns == 0 && index != kClosingIndex) record.first_tx_ns = now;
  const auto queue_pairs = static_cast<uint32_t>(plan_.connections[static_cast<size_t>(connection)].qp_count);
  const uint32_t parts = parts_of(connection, one_sided);
  for (uint32_t part = 0; part < parts; ++part) {
    uint32_t queue_pair = part;
    if (queue_pairs == 0) {
      queue_pair = 0;
    } else if (one_sided) {
      queue_pair = tag % queue_pairs;
    } else if (parts == 1) {
      queue_pair = ends_[static_cast<size_t>(connection)].next_message++ % queue_pairs;
    }
    const int64_t part_bytes = parts == 1 ? bytes : message_part(bytes, part, parts).bytes;
    network_->carry({part_bytes, bytes, connection, lane, tag, index, one_sided}, queue_pair, now);
  }
}

void Core::on_granted(int32_t connection, uint32_t tag, uint32_t index, Nanos now) {
  grant_arrived(connection, tag, {buffer_address(tag, index), 0}, now);
}

void Core::on_arrived(const CarriedMessage& message, Nanos now) {
  const bool on_wire = plan_.connections[static_cast<size_t>(message.connection)].path == Path::wire;
  if (message.one_sided) {
    one_sided_arrived(message.connection, message.tag, message.index, message.bytes, on_wire, now);
  } else {
    message_arrived(message.connection, message.tag, message.index, message.message_bytes, message.bytes, on_wire, now);
  }
}

void Core::on_acknowledged(const CarriedMessage& message, Nanos now) {
  message_acknowledged(message.lane, message.index, now);
}

}  // namespace etloop
