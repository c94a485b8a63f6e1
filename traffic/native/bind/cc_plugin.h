// Congestion control out of a shared library that somebody else made (etloop_cc.h).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cc/etloop_cc.h"

namespace etloop::cc {

struct Plugin {
  std::shared_ptr<const void> library;  // the table is valid as long as this is held
  const etloop_cc_algorithm* table = nullptr;
};

// Loads a library and checks what it exports.
Result<Plugin> load_plugin(const std::string& path);

}  // namespace etloop::cc
