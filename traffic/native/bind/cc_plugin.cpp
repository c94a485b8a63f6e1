#include "bind/cc_plugin.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "bind/plugin_crash.h"
#include "cc/registry.h"

namespace etloop::cc {

namespace {

constexpr const char* kInProcess = "in-process:";

// Tables registered in this process, by name.
struct Registered {
  std::mutex lock;
  std::map<std::string, const etloop_cc_algorithm*> tables;
  uint64_t made = 0;
};

Registered& registered() {
  static Registered all;
  return all;
}

Result<Plugin> registered_plugin(const std::string& name) {
  Registered& all = registered();
  const std::lock_guard<std::mutex> held(all.lock);
  const auto found = all.tables.find(name);
  if (found == all.tables.end()) return Error{name + " is not a congestion control of this process"};
  return Plugin{nullptr, found->second};
}

}  // namespace

Result<std::string> register_table(const etloop_cc_algorithm* table) {
  if (std::string refused = refusal(table); !refused.empty()) return Error{std::move(refused)};
  Registered& all = registered();
  const std::lock_guard<std::mutex> held(all.lock);
  std::string name = kInProcess + std::to_string(++all.made);
  all.tables.emplace(name, table);
  return name;
}

void forget_table(const std::string& name) {
  Registered& all = registered();
  const std::lock_guard<std::mutex> held(all.lock);
  all.tables.erase(name);
}

Result<Plugin> load_plugin(const std::string& path) {
  if (path.starts_with(kInProcess)) return registered_plugin(path);
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
  const void* inside = reinterpret_cast<const void*>(table_of);
  watch_crashes(inside, plugin.table->name);
  plugin.library = {handle, [inside, open = plugin.library](const void*) { unwatch_crashes(inside); }};
  return plugin;
}

}  // namespace etloop::cc
