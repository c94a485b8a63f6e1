// Receives the requests of queue pairs that a transport other than RoCEv2 carries.
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
