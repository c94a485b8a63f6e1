// A network that takes every message and grant of a core, and delivers none: a test looks at them, and answers itself.
#pragma once

#include <cstdint>
#include <vector>

#include "core/message_carrier.h"

namespace etloop::test {

class RecordingNetwork final : public MessageCarrier {
 public:
  void carry(const CarriedMessage& message, uint32_t queue_pair, Nanos) override {
    messages.push_back(message);
    queue_pairs.push_back(queue_pair);
  }
  void carry_grant(int32_t, uint32_t tag, uint32_t index, Nanos) override {
    tags.push_back(tag);
    grants.push_back(index);
  }

  std::vector<CarriedMessage> messages;
  std::vector<uint32_t> queue_pairs;
  std::vector<uint32_t> tags;    // of the grants
  std::vector<uint32_t> grants;  // their messages
};

}  // namespace etloop::test
