/* Answers for the CUDA runtime, so that PyTorch's CUDA code runs without a GPU: preloaded before libcudart.

   Decides what a device without hardware says: one kind of device, streams and events that are numbers, memory that is the
   host's. Kernels are not executed: tensors of a recording are fake, and have no data. Each kernel launch is counted, because its
   result is missing. Events, waits and synchronizations are logged in order; record/capture/streams.py reads the log.

   record/gpu/preload.py compiles this file with a list of the symbols that the installed PyTorch wants and this file lacks:
   those return cudaErrorNotSupported. Layouts and values are those of CUDA 13 (cuda-toolkit 13.0, driver_types.h). */

#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int cudaError_t;
typedef void *Handle;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  MEMORY_ALLOCATION = 2,
  INVALID_DEVICE = 101,
  SYMBOL_NOT_FOUND = 500,
  NOT_SUPPORTED = 801,
};

#define DEVICE_COUNT_VARIABLE "ETLOOP_GPU_COUNT"
#define OWN_DEVICE_VARIABLE "LOCAL_RANK"
#define PUBLIC __attribute__((visibility("default")))

/* The log of streams and events. */

enum { LOG_RECORD = 1, LOG_WAIT = 2, LOG_EVENT_ON_HOST = 3, LOG_STREAM_ON_HOST = 4, LOG_DEVICE_ON_HOST = 5, LOG_QUERY = 6 };

struct Entry {
  uint32_t what;
  uint32_t event;
  uint64_t stream;
};

#define LOG_ENTRIES 65536
static struct Entry entries[LOG_ENTRIES];
PUBLIC volatile uint64_t etloop_logged;
PUBLIC volatile uint64_t etloop_kernel_launches;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void put(uint32_t what, Handle event, Handle stream) {
  pthread_mutex_lock(&lock);
  entries[etloop_logged % LOG_ENTRIES] = (struct Entry){what, (uint32_t)(uintptr_t)event, (uint64_t)(uintptr_t)stream};
  etloop_logged++;
  pthread_mutex_unlock(&lock);
}

/* Copy the entries from number `first` on into `out`, at most `most`; return their number, or -1 if some were overwritten. */
PUBLIC int etloop_log(uint64_t first, struct Entry *out, int most) {
  pthread_mutex_lock(&lock);
  int count = 0;
  if (etloop_logged - first > LOG_ENTRIES) {
    count = -1;
  } else {
    for (; first < etloop_logged && count < most; first++) out[count++] = entries[first % LOG_ENTRIES];
  }
  pthread_mutex_unlock(&lock);
  return count;
}

/* Devices. */

/* Each thread begins with the rank's own device: no result may depend on the others, which no rank uses. */
static __thread int chosen = -1;

static uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 10) : otherwise;
}

static int device(void) { return chosen < 0 ? (int)number_of(OWN_DEVICE_VARIABLE, 0) : chosen; }
static int device_count(void) { return (int)number_of(DEVICE_COUNT_VARIABLE, 1); }
static size_t device_memory(void) { return (size_t)80 << 30; }

/* The layout of cudaDeviceProp in CUDA 13; fields that stay 0 are skipped by their sizes. */
struct Properties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_node_mask;
  size_t memory_bytes;
  size_t shared_bytes_per_block;
  int registers_per_block;
  int warp_size;
  size_t pitch;
  int threads_per_block;
  int threads_dim[3];
  int grid_size[3];
  size_t constant_bytes;
  int major;
  int minor;
  size_t texture_alignment[2];
  int multiprocessors;
  int integrated;
  int can_map_host_memory;
  int textures[25];
  int surfaces[14];
  size_t surface_alignment;
  int concurrent_kernels;
  int ecc;
  int pci[3];
  int tcc;
  int engines;
  int unified_addressing;
  int bus_width;
  int l2_bytes;
  int persisting_l2_bytes;
  int threads_per_multiprocessor;
  int stream_priorities;
  int cached[2];
  size_t shared_bytes_per_multiprocessor;
  int registers_per_multiprocessor;
  int managed[9];
  size_t shared_bytes_per_block_optin;
  int pageable[2];
  int blocks_per_multiprocessor;
  int window_bytes;
  size_t reserved_shared_bytes;
  int rest[20];
  int reserved[56];
};
_Static_assert(offsetof(struct Properties, memory_bytes) == 288, "cudaDeviceProp.totalGlobalMem");
_Static_assert(offsetof(struct Properties, major) == 360, "cudaDeviceProp.major");
_Static_assert(offsetof(struct Properties, multiprocessors) == 384, "cudaDeviceProp.multiProcessorCount");
_Static_assert(offsetof(struct Properties, l2_bytes) == 596, "cudaDeviceProp.l2CacheSize");
_Static_assert(offsetof(struct Properties, shared_bytes_per_block_optin) == 672, "cudaDeviceProp.sharedMemPerBlockOptin");
_Static_assert(sizeof(struct Properties) == 1008, "cudaDeviceProp");

/* cudaDevAttr* */
enum {
  ATTRIBUTE_THREADS_PER_BLOCK = 1,
  ATTRIBUTE_SHARED_PER_BLOCK = 8,
  ATTRIBUTE_WARP_SIZE = 10,
  ATTRIBUTE_REGISTERS_PER_BLOCK = 12,
  ATTRIBUTE_MULTIPROCESSORS = 16,
  ATTRIBUTE_L2_BYTES = 38,
  ATTRIBUTE_THREADS_PER_MULTIPROCESSOR = 39,
  ATTRIBUTE_MAJOR = 75,
  ATTRIBUTE_MINOR = 76,
  ATTRIBUTE_SHARED_PER_MULTIPROCESSOR = 81,
  ATTRIBUTE_SHARED_PER_BLOCK_OPTIN = 97,
};

/* What PyTorch asks of a device: that of compute capability 9.0, whose kernels all operators have. */
static const int attributes[][2] = {
    {ATTRIBUTE_THREADS_PER_BLOCK, 1024},
    {ATTRIBUTE_SHARED_PER_BLOCK, 49152},
    {ATTRIBUTE_WARP_SIZE, 32},
    {ATTRIBUTE_REGISTERS_PER_BLOCK, 65536},
    {ATTRIBUTE_MULTIPROCESSORS, 132},
    {ATTRIBUTE_L2_BYTES, 52428800},
    {ATTRIBUTE_THREADS_PER_MULTIPROCESSOR, 2048},
    {ATTRIBUTE_MAJOR, 9},
    {ATTRIBUTE_MINOR, 0},
    {ATTRIBUTE_SHARED_PER_MULTIPROCESSOR, 233472},
    {ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, 232448},
};

PUBLIC cudaError_t cudaGetDeviceCount(int *count) { return *count = device_count(), SUCCESS; }
PUBLIC cudaError_t cudaGetDevice(int *current) { return *current = device(), SUCCESS; }
PUBLIC cudaError_t cudaSetDevice(int index) {
  if (index < 0 || index >= device_count()) return INVALID_DEVICE;
  chosen = index;
  return SUCCESS;
}
PUBLIC cudaError_t cudaGetDeviceProperties(struct Properties *out, int index) {
  if (index < 0 || index >= device_count()) return INVALID_DEVICE;
  memset(out, 0, sizeof *out);
  strcpy(out->name, "NVIDIA H100 80GB HBM3 (no GPU: etloop record)");
  out->uuid[0] = (char)(index + 1);
  out->memory_bytes = device_memory();
  out->shared_bytes_per_block = 49152;
  out->registers_per_block = out->registers_per_multiprocessor = 65536;
  out->warp_size = 32;
  out->pitch = INT32_MAX;
  out->threads_per_block = 1024;
  out->threads_dim[0] = out->threads_dim[1] = 1024, out->threads_dim[2] = 64;
  out->grid_size[0] = INT32_MAX, out->grid_size[1] = out->grid_size[2] = 65535;
  out->constant_bytes = 65536;
  out->major = 9;
  out->texture_alignment[0] = 512, out->texture_alignment[1] = 32;
  out->multiprocessors = 132;
  out->can_map_host_memory = out->concurrent_kernels = out->unified_addressing = out->stream_priorities = 1;
  out->pci[0] = index + 1;
  out->bus_width = 5120;
  out->l2_bytes = 52428800;
  out->threads_per_multiprocessor = 2048;
  out->shared_bytes_per_multiprocessor = 233472;
  out->shared_bytes_per_block_optin = 232448;
  out->blocks_per_multiprocessor = 32;
  return SUCCESS;
}
PUBLIC cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int index) {
  if (index < 0 || index >= device_count()) return INVALID_DEVICE;
  *value = 0;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i][0] == attribute) *value = attributes[i][1];
  return SUCCESS;
}
PUBLIC cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }
PUBLIC cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { return *can = a != b, SUCCESS; }
PUBLIC cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return (void)peer, (void)flags, SUCCESS; }
PUBLIC cudaError_t cudaDeviceGetPCIBusId(char *out, int length, int index) {
  if (length < 13) return INVALID_VALUE;
  strcpy(out, "0000:01:00.0");
  out[6] = (char)('1' + index % 9);
  return SUCCESS;
}
PUBLIC cudaError_t cudaDeviceSetLimit(int limit, size_t value) { return (void)limit, (void)value, SUCCESS; }
PUBLIC cudaError_t cudaDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
PUBLIC cudaError_t cudaRuntimeGetVersion(int *version) { return *version = 13000, SUCCESS; }
PUBLIC cudaError_t cudaGetLastError(void) { return SUCCESS; }
PUBLIC cudaError_t cudaPeekAtLastError(void) { return SUCCESS; }
PUBLIC const char *cudaGetErrorName(cudaError_t error) { return error == SUCCESS ? "cudaSuccess" : "cudaErrorNotSupported"; }
PUBLIC const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case SUCCESS: return "no error";
    case INVALID_DEVICE: return "invalid device ordinal";
    case MEMORY_ALLOCATION: return "out of memory";
    default: return "a part of CUDA that etloop record has no answer for";
  }
}

/* Streams and events: handles are numbers, which PyTorch only passes on. 0 to 2 name the default streams. */

static uintptr_t new_number(void) {
  static uintptr_t latest = 2;
  return __atomic_add_fetch(&latest, 1, __ATOMIC_SEQ_CST);
}
static uintptr_t new_event(void) {
  static uintptr_t latest;
  return __atomic_add_fetch(&latest, 1, __ATOMIC_SEQ_CST);
}

PUBLIC cudaError_t cudaStreamCreateWithPriority(Handle *stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  *stream = (Handle)new_number();
  return SUCCESS;
}
PUBLIC cudaError_t cudaStreamCreateWithFlags(Handle *stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
PUBLIC cudaError_t cudaStreamCreate(Handle *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
PUBLIC cudaError_t cudaStreamDestroy(Handle stream) { return (void)stream, SUCCESS; }
PUBLIC cudaError_t cudaStreamGetPriority(Handle stream, int *priority) { return (void)stream, *priority = 0, SUCCESS; }
PUBLIC cudaError_t cudaStreamQuery(Handle stream) { return (void)stream, SUCCESS; }
PUBLIC cudaError_t cudaStreamSynchronize(Handle stream) { return put(LOG_STREAM_ON_HOST, 0, stream), SUCCESS; }
PUBLIC cudaError_t cudaDeviceSynchronize(void) { return put(LOG_DEVICE_ON_HOST, 0, 0), SUCCESS; }
PUBLIC cudaError_t cudaStreamWaitEvent(Handle stream, Handle event, unsigned flags) {
  (void)flags;
  return put(LOG_WAIT, event, stream), SUCCESS;
}
PUBLIC cudaError_t cudaStreamIsCapturing(Handle stream, int *status) { return (void)stream, *status = 0, SUCCESS; }
/* Not capturing: the status has to be written, or PyTorch reads what its stack held. */
PUBLIC cudaError_t cudaStreamGetCaptureInfo(Handle stream, int *status, unsigned long long *id, Handle *graph, const Handle **deps,
                                            const Handle **edges, size_t *count) {
  (void)stream, (void)deps, (void)edges;
  *status = 0;
  if (id) *id = 0;
  if (graph) *graph = NULL;
  if (count) *count = 0;
  return SUCCESS;
}
PUBLIC cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, SUCCESS; }

PUBLIC cudaError_t cudaEventCreateWithFlags(Handle *event, unsigned flags) {
  (void)flags;
  *event = (Handle)new_event();
  return SUCCESS;
}
PUBLIC cudaError_t cudaEventCreate(Handle *event) { return cudaEventCreateWithFlags(event, 0); }
PUBLIC cudaError_t cudaEventDestroy(Handle event) { return (void)event, SUCCESS; }
PUBLIC cudaError_t cudaEventRecord(Handle event, Handle stream) { return put(LOG_RECORD, event, stream), SUCCESS; }
PUBLIC cudaError_t cudaEventRecordWithFlags(Handle event, Handle stream, unsigned flags) { return (void)flags, cudaEventRecord(event, stream); }
PUBLIC cudaError_t cudaEventQuery(Handle event) { return put(LOG_QUERY, event, 0), SUCCESS; }
PUBLIC cudaError_t cudaEventSynchronize(Handle event) { return put(LOG_EVENT_ON_HOST, event, 0), SUCCESS; }
PUBLIC cudaError_t cudaEventElapsedTime(float *ms, Handle start, Handle end) {
  (void)end;
  put(LOG_QUERY, start, 0);
  return *ms = 1.0f, SUCCESS;
}

/* Memory: of the host, never touched, so that it costs nothing. Sizes are kept before each allocation. */

#define HEADER 4096

static cudaError_t allocate(Handle *out, size_t bytes) {
  char *start = mmap(NULL, bytes + HEADER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return MEMORY_ALLOCATION;
  *(size_t *)start = bytes + HEADER;
  *out = start + HEADER;
  return SUCCESS;
}
static cudaError_t release(Handle memory) {
  if (!memory) return SUCCESS;
  char *start = (char *)memory - HEADER;
  munmap(start, *(size_t *)start);
  return SUCCESS;
}
PUBLIC cudaError_t cudaMalloc(Handle *out, size_t bytes) { return allocate(out, bytes); }
PUBLIC cudaError_t cudaMallocAsync(Handle *out, size_t bytes, Handle stream) { return (void)stream, allocate(out, bytes); }
PUBLIC cudaError_t cudaMallocHost(Handle *out, size_t bytes) { return allocate(out, bytes); }
PUBLIC cudaError_t cudaHostAlloc(Handle *out, size_t bytes, unsigned flags) { return (void)flags, allocate(out, bytes); }
PUBLIC cudaError_t cudaFree(Handle memory) { return release(memory); }
PUBLIC cudaError_t cudaFreeAsync(Handle memory, Handle stream) { return (void)stream, release(memory); }
PUBLIC cudaError_t cudaFreeHost(Handle memory) { return release(memory); }
PUBLIC cudaError_t cudaHostRegister(Handle memory, size_t bytes, unsigned flags) { return (void)memory, (void)bytes, (void)flags, SUCCESS; }
PUBLIC cudaError_t cudaHostUnregister(Handle memory) { return (void)memory, SUCCESS; }
PUBLIC cudaError_t cudaHostGetDevicePointer(Handle *out, Handle host, unsigned flags) { return (void)flags, *out = host, SUCCESS; }
PUBLIC cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) { return *free_bytes = *total = device_memory(), SUCCESS; }
PUBLIC cudaError_t cudaMemcpy(Handle to, const void *from, size_t bytes, int kind) { return (void)kind, memcpy(to, from, bytes), SUCCESS; }
PUBLIC cudaError_t cudaMemcpyAsync(Handle to, const void *from, size_t bytes, int kind, Handle stream) {
  return (void)stream, cudaMemcpy(to, from, bytes, kind);
}
PUBLIC cudaError_t cudaMemcpyPeerAsync(Handle to, int a, const void *from, int b, size_t bytes, Handle stream) {
  return (void)a, (void)b, (void)stream, cudaMemcpy(to, from, bytes, 0);
}
PUBLIC cudaError_t cudaMemset(Handle to, int value, size_t bytes) { return memset(to, value, bytes), SUCCESS; }
PUBLIC cudaError_t cudaMemsetAsync(Handle to, int value, size_t bytes, Handle stream) { return (void)stream, cudaMemset(to, value, bytes); }

/* cudaPointerAttributes: memory that this file gave is indistinguishable from the host's, so all of it is unregistered. */
struct PointerAttributes {
  int type;
  int device;
  Handle device_pointer;
  Handle host_pointer;
  long reserved[8];
};
PUBLIC cudaError_t cudaPointerGetAttributes(struct PointerAttributes *out, const void *pointer) {
  memset(out, 0, sizeof *out);
  out->host_pointer = (Handle)pointer;
  return SUCCESS;
}
PUBLIC cudaError_t cudaDeviceGetDefaultMemPool(Handle *pool, int index) { return (void)index, *pool = (Handle)1, SUCCESS; }
PUBLIC cudaError_t cudaMemPoolSetAttribute(Handle pool, int attribute, void *value) { return (void)pool, (void)attribute, (void)value, SUCCESS; }
PUBLIC cudaError_t cudaMemPoolGetAttribute(Handle pool, int attribute, uint64_t *value) { return (void)pool, (void)attribute, *value = 0, SUCCESS; }
PUBLIC cudaError_t cudaMemPoolSetAccess(Handle pool, const void *access, size_t count) { return (void)pool, (void)access, (void)count, SUCCESS; }
PUBLIC cudaError_t cudaMemPoolTrimTo(Handle pool, size_t bytes) { return (void)pool, (void)bytes, SUCCESS; }

/* Kernels: registered by nothing, executed by nothing, and counted. */

typedef struct {
  unsigned x, y, z;
} Dim3;
static __thread struct {
  Dim3 grid, block;
  size_t shared_bytes;
  Handle stream;
} configuration;
static Handle registered;

PUBLIC Handle *__cudaRegisterFatBinary(const void *binary) { return (void)binary, &registered; }
PUBLIC void __cudaRegisterFatBinaryEnd(Handle *handle) { (void)handle; }
PUBLIC void __cudaUnregisterFatBinary(Handle *handle) { (void)handle; }
PUBLIC void __cudaRegisterFunction(void) {}
PUBLIC void __cudaRegisterVar(void) {}
PUBLIC void __cudaRegisterManagedVar(void) {}
PUBLIC char __cudaInitModule(Handle *handle) { return (void)handle, 1; }
PUBLIC cudaError_t __cudaGetKernel(Handle *kernel, const void *function) { return *kernel = (Handle)function, SUCCESS; }
PUBLIC unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes, Handle stream) {
  configuration.grid = grid, configuration.block = block;
  configuration.shared_bytes = shared_bytes, configuration.stream = stream;
  return 0;
}
PUBLIC cudaError_t __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared_bytes, Handle *stream) {
  *grid = configuration.grid, *block = configuration.block;
  *shared_bytes = configuration.shared_bytes, *stream = configuration.stream;
  return SUCCESS;
}
static cudaError_t count_launch(void) { return __atomic_add_fetch(&etloop_kernel_launches, 1, __ATOMIC_SEQ_CST), SUCCESS; }
PUBLIC cudaError_t __cudaLaunchKernel(void) { return count_launch(); }
PUBLIC cudaError_t cudaLaunchKernel(void) { return count_launch(); }
PUBLIC cudaError_t cudaLaunchKernelExC(void) { return count_launch(); }
PUBLIC cudaError_t cudaLaunchCooperativeKernel(void) { return count_launch(); }
PUBLIC cudaError_t cudaLaunchHostFunc(Handle stream, void (*function)(void *), void *argument) {
  return (void)stream, function(argument), SUCCESS;
}
PUBLIC cudaError_t cudaFuncSetAttribute(const void *function, int attribute, int value) {
  return (void)function, (void)attribute, (void)value, SUCCESS;
}
PUBLIC cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t bytes) {
  return (void)function, (void)threads, (void)bytes, *blocks = 1, SUCCESS;
}
PUBLIC cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t bytes,
                                                                          unsigned flags) {
  return (void)flags, cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, bytes);
}
PUBLIC cudaError_t cudaProfilerStart(void) { return SUCCESS; }
PUBLIC cudaError_t cudaProfilerStop(void) { return SUCCESS; }

/* The driver has no entry points: with a success here, PyTorch would call what lies at an address that was not written. */
PUBLIC cudaError_t cudaGetDriverEntryPoint(const char *symbol, Handle *function, unsigned long long flags, int *result) {
  (void)symbol, (void)flags;
  *function = NULL;
  if (result) *result = 1;
  return SYMBOL_NOT_FOUND;
}
PUBLIC cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, Handle *function, unsigned version, unsigned long long flags,
                                                    int *result) {
  return (void)version, cudaGetDriverEntryPoint(symbol, function, flags, result);
}

/* Symbols that the installed PyTorch imports and that have no answer above. */
#define UNANSWERED(name) PUBLIC cudaError_t name(void) { return NOT_SUPPORTED; }
#include "unanswered.inc"
