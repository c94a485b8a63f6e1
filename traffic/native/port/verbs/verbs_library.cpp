#include "port/verbs/verbs_library.h"

#include <dlfcn.h>

namespace etloop::verbs {

namespace {

constexpr const char* kFile = "libibverbs.so.1";

Result<Library> load() {
  void* handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Error{std::string("the verbs library cannot be loaded (") + dlerror() +
                 "); install rdma-core: Debian and Ubuntu packages libibverbs1 and ibverbs-providers"};
  }
  constexpr const char* kFirst = "IBVERBS_1.0";
  constexpr const char* kBase = "IBVERBS_1.1";
  Library verbs{};
  Result<void> found;
  // Without a version the dynamic linker may return the interface of 2006, which has other structures.
  const auto find = [&]<typename Function>(const char* name, const char* version, Function& function) {
    function = reinterpret_cast<Function>(dlvsym(handle, name, version));
    if (function != nullptr || !found) return;
    found = Error{std::string(kFile) + " has no " + name + "@" + version + "; install rdma-core 34 or later"};
  };
  find("ibv_get_device_list", kBase, verbs.get_device_list);
  find("ibv_free_device_list", kBase, verbs.free_device_list);
  find("ibv_get_device_name", kBase, verbs.get_device_name);
  find("ibv_open_device", kBase, verbs.open_device);
  find("ibv_close_device", kBase, verbs.close_device);
  find("ibv_query_device", kBase, verbs.query_device);
  find("ibv_query_port", kBase, verbs.query_port);
  find("_ibv_query_gid_ex", "IBVERBS_1.11", verbs.query_gid_ex);
  find("ibv_alloc_pd", kBase, verbs.alloc_pd);
  find("ibv_dealloc_pd", kBase, verbs.dealloc_pd);
  find("ibv_reg_mr", kBase, verbs.reg_mr);
  find("ibv_dereg_mr", kBase, verbs.dereg_mr);
  find("ibv_create_comp_channel", kFirst, verbs.create_comp_channel);
  find("ibv_destroy_comp_channel", kFirst, verbs.destroy_comp_channel);
  find("ibv_create_cq", kBase, verbs.create_cq);
  find("ibv_destroy_cq", kBase, verbs.destroy_cq);
  find("ibv_get_cq_event", kBase, verbs.get_cq_event);
  find("ibv_ack_cq_events", kBase, verbs.ack_cq_events);
  find("ibv_create_qp", kBase, verbs.create_qp);
  find("ibv_modify_qp", kBase, verbs.modify_qp);
  find("ibv_query_qp", kBase, verbs.query_qp);
  find("ibv_destroy_qp", kBase, verbs.destroy_qp);
  find("ibv_wc_status_str", kBase, verbs.wc_status_str);
  if (!found) return found.error();
  return verbs;
}

}  // namespace

Result<const Library*> library() {
  static const Result<Library> loaded = load();
  if (!loaded) return loaded.error();
  return &*loaded;
}

std::vector<std::string> device_names(const Library& verbs) {
  std::vector<std::string> names;
  int count = 0;
  Device** list = verbs.get_device_list(&count);
  if (list == nullptr) return names;
  for (int i = 0; i < count; ++i) names.emplace_back(verbs.get_device_name(list[i]));
  verbs.free_device_list(list);
  return names;
}

}  // namespace etloop::verbs
