// Messages between ranks of one host on different ports, and the interface that a core sends them through.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace etloop {

enum class ScaleUpKind : uint8_t { grant, arrival };

// A grant travels to the sending rank's port, an arrival to the receiving rank's.
struct ScaleUpMessage {
  Nanos due_ns = 0;  // when it takes effect in the scale-up model
  int64_t bytes = 0;
  int32_t connection = -1;
  uint32_t tag = 0;
  uint32_t index = 0;
  ScaleUpKind kind = ScaleUpKind::grant;
};

// Sends messages to ranks on other ports of the host.
class ScaleUpLinks {
 public:
  virtual ~ScaleUpLinks() = default;
  virtual void post(int32_t port, const ScaleUpMessage& message) = 0;
};

}  // namespace etloop
