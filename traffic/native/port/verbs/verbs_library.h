// libibverbs, loaded on demand: an agent without it can run every other kind of port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/verbs/verbs_abi.h"

namespace etloop::verbs {

struct Library {
  Device** (*get_device_list)(int* count);
  void (*free_device_list)(Device** list);
  const char* (*get_device_name)(Device* device);
  Context* (*open_device)(Device* device);
  int (*close_device)(Context* context);
  int (*query_device)(Context* context, DeviceAttributes* attributes);
  int (*query_port)(Context* context, uint8_t port, PortAttributes* attributes);
  int (*query_gid_ex)(Context* context, uint32_t port, uint32_t index, GidEntry* entry, uint32_t flags, size_t bytes);
  Domain* (*alloc_pd)(Context* context);
  int (*dealloc_pd)(Domain* domain);
  MemoryRegion* (*reg_mr)(Domain* domain, void* address, size_t bytes, int access);
  int (*dereg_mr)(MemoryRegion* region);
  CompletionChannel* (*create_comp_channel)(Context* context);
  int (*destroy_comp_channel)(CompletionChannel* channel);
  CompletionQueue* (*create_cq)(Context* context, int entries, void* user, CompletionChannel* channel, int vector);
  int (*destroy_cq)(CompletionQueue* queue);
  int (*get_cq_event)(CompletionChannel* channel, CompletionQueue** queue, void** user);
  void (*ack_cq_events)(CompletionQueue* queue, unsigned count);
  QueuePair* (*create_qp)(Domain* domain, PairRequest* request);
  int (*modify_qp)(QueuePair* pair, PairAttributes* attributes, int mask);
  int (*query_qp)(QueuePair* pair, PairAttributes* attributes, int mask, PairRequest* made);
  int (*destroy_qp)(QueuePair* pair);
  const char* (*wc_status_str)(uint32_t status);
};

// Return the library of this process, loaded once and kept. An error has what is missing and the remedy.
Result<const Library*> library();

// Return the names of the RDMA devices of this host.
std::vector<std::string> device_names(const Library& verbs);

}  // namespace etloop::verbs
