// The part of libibverbs' ABI that the verbs port uses, declared here so that neither its headers nor the library are needed to
// build. Source: linux-rdma/rdma-core:libibverbs/verbs.h, symbol versions IBVERBS_1.1 and 1.11.
//
// Objects made by the library are declared as far as they are read, and never made or copied here. Objects made by the caller are
// declared completely. tests/native/port/test_verbs_abi.cpp compares every offset with the installed header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace etloop::verbs {

struct Device;
struct Domain;
struct CompletionQueue;
struct QueuePair;
struct SendRequest;
struct ReceiveRequest;
struct Completion;

using Unused = void (*)();

// Post and poll are not library symbols: programs call them through this table of the device's driver.
struct ContextOperations {
  Unused before_poll[11];
  int (*poll_cq)(CompletionQueue* queue, int most, Completion* done);
  int (*req_notify_cq)(CompletionQueue* queue, int solicited_only);
  Unused before_post[12];
  int (*post_send)(QueuePair* pair, SendRequest* request, SendRequest** refused);
  int (*post_recv)(QueuePair* pair, ReceiveRequest* request, ReceiveRequest** refused);
  Unused after_post[5];
};

struct Context {
  Device* device;
  ContextOperations operations;
  int command_fd;
  int async_fd;
};

struct MemoryRegion {
  Context* context;
  Domain* domain;
  void* address;
  size_t bytes;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};

struct CompletionChannel {
  Context* context;
  int fd;
  int references;
};

struct CompletionQueue {
  Context* context;
  CompletionChannel* channel;
  void* user;
  uint32_t handle;
  int entries;
};

struct QueuePair {
  Context* context;
  void* user;
  Domain* domain;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  void* shared_receives;
  uint32_t handle;
  uint32_t number;
};

enum CompletionOpcode : uint32_t { kWriteDone = 1, kReceived = 1U << 7, kReceivedWriteWithImmediate = kReceived + 1 };

struct Completion {
  uint64_t mark;
  uint32_t status;  // 0: success
  uint32_t opcode;
  uint32_t vendor_error;
  uint32_t bytes;
  uint32_t immediate;  // network byte order
  uint32_t pair_number;
  uint32_t source_pair;
  uint32_t flags;
  uint16_t pkey_index;
  uint16_t source_lid;
  uint8_t service_level;
  uint8_t destination_path;
};

struct Piece {
  uint64_t address;
  uint32_t bytes;
  uint32_t lkey;
};

enum SendOpcode : uint32_t { kWrite = 0, kWriteWithImmediate = 1, kSend = 2, kFetchAdd = 6 };
inline constexpr uint32_t kSignaled = 1U << 1;

struct SendRequest {
  uint64_t mark;
  SendRequest* next;
  Piece* pieces;
  int32_t piece_count;
  uint32_t opcode;
  uint32_t flags;
  uint32_t immediate;  // network byte order
  uint64_t remote_address;
  union {
    uint32_t remote_rkey;  // of a write
    struct {
      uint64_t add;
      uint64_t swap;
      uint32_t remote_rkey;
    } atomic;
  };
  uint64_t unused[7];  // for other operations
};

struct ReceiveRequest {
  uint64_t mark;
  ReceiveRequest* next;
  Piece* pieces;
  int32_t piece_count;
};

struct Capacities {
  uint32_t send_requests;
  uint32_t receive_requests;
  uint32_t send_pieces;
  uint32_t receive_pieces;
  uint32_t inline_bytes;
};

inline constexpr uint32_t kReliableConnected = 2;

struct PairRequest {
  void* user;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  void* shared_receives;
  Capacities capacities;
  uint32_t type;
  int32_t signal_all;
};

struct Gid {
  uint8_t raw[16];
};

struct GlobalRoute {
  alignas(8) Gid destination;
  uint32_t flow_label;
  uint8_t gid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
};

struct AddressVector {
  GlobalRoute route;
  uint16_t lid;
  uint8_t service_level;
  uint8_t source_path;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port;
};

enum PairState : uint32_t { kInit = 1, kReadyToReceive = 2, kReadyToSend = 3 };

struct PairAttributes {
  uint32_t state;
  uint32_t current_state;
  uint32_t path_mtu;
  uint32_t migration;
  uint32_t qkey;
  uint32_t receive_psn;
  uint32_t send_psn;
  uint32_t destination_pair;
  uint32_t access;
  Capacities capacities;
  AddressVector address;
  AddressVector alternate_address;
  uint16_t pkey_index;
  uint16_t alternate_pkey_index;
  uint8_t notify_drained;
  uint8_t draining;
  uint8_t reads_out;
  uint8_t reads_in;
  uint8_t min_rnr_timer;
  uint8_t port;
  uint8_t timeout;
  uint8_t retries;
  uint8_t rnr_retries;
  uint8_t alternate_port;
  uint8_t alternate_timeout;
  uint32_t rate_limit;
};

// Attributes set by a state change.
enum PairAttribute : uint32_t {
  kSetState = 1U << 0,
  kSetAccess = 1U << 3,
  kSetPkeyIndex = 1U << 4,
  kSetPort = 1U << 5,
  kSetAddress = 1U << 7,
  kSetPathMtu = 1U << 8,
  kSetTimeout = 1U << 9,
  kSetRetries = 1U << 10,
  kSetRnrRetries = 1U << 11,
  kSetReceivePsn = 1U << 12,
  kSetReadsOut = 1U << 13,
  kSetMinRnrTimer = 1U << 15,
  kSetSendPsn = 1U << 16,
  kSetReadsIn = 1U << 17,
  kSetDestinationPair = 1U << 20,
};

inline constexpr uint32_t kLocalWrite = 1;
inline constexpr uint32_t kRemoteWrite = 2;
inline constexpr uint32_t kRemoteRead = 4;
inline constexpr uint32_t kRemoteAtomic = 8;

struct DeviceAttributes {
  char firmware[64];
  uint64_t node_guid;
  uint64_t system_guid;
  uint64_t most_region_bytes;
  uint64_t page_sizes;
  uint32_t vendor;
  uint32_t part;
  uint32_t hardware;
  int32_t most_pairs;
  int32_t most_requests;
  uint32_t capabilities;
  int32_t most_pieces;
  int32_t most_read_pieces;
  int32_t most_queues;
  int32_t most_completions;
  int32_t most_regions;
  int32_t most_domains;
  int32_t most_reads_in;
  int32_t most_end_reads;
  int32_t most_device_reads;
  int32_t most_reads_out;
  int32_t most_end_reads_out;
  uint32_t atomics;  // 0: none
  int32_t unused[22];
};

enum PortState : uint32_t { kPortActive = 4 };

struct PortAttributes {
  uint32_t state;
  uint32_t most_mtu;
  uint32_t active_mtu;
  int32_t gid_entries;
  uint32_t unused[16];
};

inline constexpr uint32_t kGidRoceV2 = 2;

struct GidEntry {
  alignas(8) Gid gid;
  uint32_t index;
  uint32_t port;
  uint32_t type;
  uint32_t interface;
};

}  // namespace etloop::verbs
