// The reason why a run failed, and the connection concerned. The first reason is kept; its consequences are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace etloop {

class Failure {
 public:
  bool none() const { return reason_.empty(); }
  // `connection`: a row of the plan; -1: none.
  void set(int32_t connection, std::string reason) {
    if (!none()) return;
    reason_ = std::move(reason);
    connection_ = connection;
  }
  const std::string& reason() const { return reason_; }
  int32_t connection() const { return connection_; }

 private:
  std::string reason_;
  int32_t connection_ = -1;
};

}  // namespace etloop
