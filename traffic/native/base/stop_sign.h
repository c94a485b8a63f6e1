// Polls whether the caller of a long calculation wants it to stop. Polls rarely, because a poll is not free.
#pragma once

#include <cstdint>
#include <functional>

namespace etloop {

using StopAsked = std::function<bool()>;  // empty: never

class StopSign {
 public:
  // Poll at every `turns`-th call; both outlive this.
  StopSign(const StopAsked& asked, uint32_t turns) : asked_(asked), turns_(turns) {}
  bool seen() {
    if (++turn_ < turns_ || !asked_) return false;
    turn_ = 0;
    return asked_();
  }

 private:
  const StopAsked& asked_;
  uint32_t turns_;
  uint32_t turn_ = 0;
};

}  // namespace etloop
