// Adapts the twin's cards to the port interface of cores.
#pragma once

#include <cstdint>
#include <string>

#include "core/port.h"
#include "wire/wire.h"

namespace etloop {

// The owner of the cards, by port of the plan.
class TwinCards {
 public:
  virtual ~TwinCards() = default;
  virtual TxResult send(int32_t port, const PacketRun& run) = 0;
  virtual TxResult send_built(int32_t port, const BuiltPacket& built) = 0;
  virtual bool holds(int32_t port, FlowId flow) = 0;
  // For a port that is the first plane of a card.
  virtual uint32_t planes_up(int32_t port) const = 0;
  virtual uint32_t open_planes(int32_t port, FlowId first, const ClassMarks& marks) = 0;
};

// Packets that a card generates itself and sends even while data waits.
inline bool answers(wire::Opcode opcode) {
  const wire::Role role = wire::shape(opcode).role;
  return role == wire::Role::acknowledgement || role == wire::Role::notification;
}

class CardPort final : public TxPort {
 public:
  static constexpr uint32_t kMaxRun = 4;  // packets of a queue pair that a card accepts at a time

  CardPort(TwinCards& cards, int32_t port) : cards_(cards), port_(port) {}
  TxResult send(const PacketRun& run) override { return cards_.send(port_, run); }
  TxResult send_built(const BuiltPacket& built) override { return cards_.send_built(port_, built); }
  bool holds(FlowId flow) override { return cards_.holds(port_, flow); }
  uint32_t planes_up() const override { return cards_.planes_up(port_); }
  uint32_t open_planes(FlowId first, const ClassMarks& marks) override { return cards_.open_planes(port_, first, marks); }
  std::string last_error() const override { return {}; }
  uint32_t max_run(uint32_t) const override { return kMaxRun; }

 private:
  TwinCards& cards_;
  int32_t port_;
};

}  // namespace etloop
