// Where requests of queue pairs go when another transport than RoCEv2's carries them.
#pragma once

#include <cstdint>

#include "qp/work.h"

namespace etloop {

class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void post(uint32_t qp, const WorkRequest& request) = 0;
};

}  // namespace etloop
