#include "port/verbs/verbs_library.h"

#include <dlfcn.h>

namespace etloop::verbs {

namespace {

constexpr const char* kFile = "libibverbs.so.1";

template <typename Function>
bool find(void* handle, const char* name, const char* version, Function& function, std::string& error) {
  // Without the version the dynamic linker may give the interface of 2006, which has other structures.
  void* symbol = dlvsym(handle, name, version);
  if (symbol == nullptr) {
    error = std::string(kFile) + " has no " + name + "@" + version + "; install rdma-core 34 or later";
    return false;
  }
  function = reinterpret_cast<Function>(symbol);
  return true;
}

bool load(Library& verbs, std::string& error) {
  void* handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    error = std::string("the verbs library cannot be loaded (") + dlerror() +
            "); install rdma-core: Debian and Ubuntu packages libibverbs1 and ibverbs-providers";
    return false;
  }
  constexpr const char* kFirst = "IBVERBS_1.0";
  constexpr const char* kBase = "IBVERBS_1.1";
  return find(handle, "ibv_get_device_list", kBase, verbs.get_device_list, error) &&
         find(handle, "ibv_free_device_list", kBase, verbs.free_device_list, error) &&
         find(handle, "ibv_get_device_name", kBase, verbs.get_device_name, error) &&
         find(handle, "ibv_open_device", kBase, verbs.open_device, error) &&
         find(handle, "ibv_close_device", kBase, verbs.close_device, error) &&
         find(handle, "ibv_query_device", kBase, verbs.query_device, error) &&
         find(handle, "ibv_query_port", kBase, verbs.query_port, error) &&
         find(handle, "_ibv_query_gid_ex", "IBVERBS_1.11", verbs.query_gid_ex, error) &&
         find(handle, "ibv_alloc_pd", kBase, verbs.alloc_pd, error) &&
         find(handle, "ibv_dealloc_pd", kBase, verbs.dealloc_pd, error) &&
         find(handle, "ibv_reg_mr", kBase, verbs.reg_mr, error) &&
         find(handle, "ibv_dereg_mr", kBase, verbs.dereg_mr, error) &&
         find(handle, "ibv_create_comp_channel", kFirst, verbs.create_comp_channel, error) &&
         find(handle, "ibv_destroy_comp_channel", kFirst, verbs.destroy_comp_channel, error) &&
         find(handle, "ibv_create_cq", kBase, verbs.create_cq, error) &&
         find(handle, "ibv_destroy_cq", kBase, verbs.destroy_cq, error) &&
         find(handle, "ibv_get_cq_event", kBase, verbs.get_cq_event, error) &&
         find(handle, "ibv_ack_cq_events", kBase, verbs.ack_cq_events, error) &&
         find(handle, "ibv_create_qp", kBase, verbs.create_qp, error) &&
         find(handle, "ibv_modify_qp", kBase, verbs.modify_qp, error) &&
         find(handle, "ibv_destroy_qp", kBase, verbs.destroy_qp, error) &&
         find(handle, "ibv_wc_status_str", kBase, verbs.wc_status_str, error);
}

}  // namespace

const Library* library(std::string& error) {
  struct Loaded {
    Library verbs{};
    std::string error;
    bool usable = false;
  };
  static const Loaded loaded = [] {
    Loaded made;
    made.usable = load(made.verbs, made.error);
    return made;
  }();
  error = loaded.error;
  return loaded.usable ? &loaded.verbs : nullptr;
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
