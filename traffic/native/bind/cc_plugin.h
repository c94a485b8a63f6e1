// Congestion control that somebody else made (etloop_cc.h): out of a shared library, or a table of this process's own.
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

// Loads a library and checks what it exports. A name of `register_table` is taken for a path as well.
Result<Plugin> load_plugin(const std::string& path);

// Makes a table known to this process and returns its name. The table outlives everything that uses it.
Result<std::string> register_table(const etloop_cc_algorithm* table);
void forget_table(const std::string& name);

}  // namespace etloop::cc
