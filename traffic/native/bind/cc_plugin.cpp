#include "bind/cc_plugin.h"

#include <dlfcn.h>

#include "cc/registry.h"

namespace etloop::cc {

Result<Plugin> load_plugin(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Error{why != nullptr ? why : "the library cannot be loaded"};
  }
  Plugin plugin;
  plugin.library = std::shared_ptr<const void>(handle, [](const void* open) { dlclose(const_cast<void*>(open)); });
  const auto table_of = reinterpret_cast<etloop_cc_plugin_function>(dlsym(handle, "etloop_cc_plugin"));
  if (table_of == nullptr) {
    return Error{"it does not export the function etloop_cc_plugin (with C linkage)"};
  }
  plugin.table = table_of();
  if (std::string refused = refusal(plugin.table); !refused.empty()) return Error{std::move(refused)};
  return plugin;
}

}  // namespace etloop::cc
