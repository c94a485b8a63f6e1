#include "bind/cc_plugin.h"

#include <dlfcn.h>

#include "cc/registry.h"

namespace etloop::cc {

bool load_plugin(const std::string& path, Plugin& plugin, std::string& error) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    error = why != nullptr ? why : "the library cannot be loaded";
    return false;
  }
  plugin.library = std::shared_ptr<const void>(handle, [](const void* open) { dlclose(const_cast<void*>(open)); });
  const auto table_of = reinterpret_cast<etloop_cc_plugin_function>(dlsym(handle, "etloop_cc_plugin"));
  if (table_of == nullptr) {
    error = "it does not export the function etloop_cc_plugin (with C linkage)";
    return false;
  }
  plugin.table = table_of();
  error = refusal(plugin.table);
  return error.empty();
}

}  // namespace etloop::cc
