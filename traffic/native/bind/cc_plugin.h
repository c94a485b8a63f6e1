// Congestion control plugins (etloop_cc.h): from a shared library, or registered in this process.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cc/etloop_cc.h"

namespace etloop::cc {

struct Plugin {
  std::shared_ptr<const void> library;  // keeps the table valid
  const etloop_cc_algorithm* table = nullptr;
};

// Load a library and check the table that it exports. Also accepts a name that `register_table` returned.
Result<Plugin> load_plugin(const std::string& path);

// Register a table in this process and return its name. The table must outlive its users.
Result<std::string> register_table(const etloop_cc_algorithm* table);
void forget_table(const std::string& name);

}  // namespace etloop::cc
