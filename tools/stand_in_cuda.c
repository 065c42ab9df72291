// A CUDA runtime whose GPU computes nothing: memory is the host's, a launch takes as long as
// LAUNCH_NS says (3,000 where it says nothing), every event has happened. What torch does on the
// CPU to keep a GPU busy can be measured with it; numbers mean nothing.

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

static const size_t GIGABYTE = 1UL << 30, MEMORY = 139;
static long launch_ns = 3000, launches;

__attribute__((constructor)) static void read_settings(void) {
  const char *given = getenv("LAUNCH_NS");
  if (given) launch_ns = atol(given);
}

static long now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000L + at.tv_nsec;
}

int stand_in_launch(void) {
  long end = now() + launch_ns;
  launches++;
  while (now() < end) {}
  return 0;
}

long stand_in_launches(void) { return launches; }

#define CALL cudaError_t CUDARTAPI
#define GIVES(name, arguments, statements) \
  CALL name arguments { statements; return cudaSuccess; }
#define LAUNCHES(name, arguments) GIVES(name, arguments, stand_in_launch())

// -- the device ----------------------------------------------------------------------------------

#undef cudaGetDeviceProperties
GIVES(cudaGetDeviceCount, (int *count), *count = 1)
GIVES(cudaGetDevice, (int *device), *device = 0)
GIVES(cudaSetDevice, (int device), )
GIVES(cudaDriverGetVersion, (int *version), *version = 13000)
GIVES(cudaRuntimeGetVersion, (int *version), *version = 13000)
GIVES(cudaDeviceGetStreamPriorityRange, (int *least, int *most), *least = *most = 0)
GIVES(cudaDeviceCanAccessPeer, (int *can, int from, int to), *can = 0)
GIVES(cudaDeviceGetPCIBusId, (char *id, int length, int device), strncpy(id, "0000:00:00.0", length))
GIVES(cudaMemGetInfo, (size_t *available, size_t *all),
      *available = (MEMORY - 9) * GIGABYTE; *all = MEMORY * GIGABYTE)

CALL cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
  *found = (struct cudaDeviceProp){
      .name = "stand-in", .totalGlobalMem = MEMORY * GIGABYTE, .major = 9, .warpSize = 32,
      .multiProcessorCount = 132, .maxThreadsPerBlock = 1024, .maxThreadsPerMultiProcessor = 2048,
      .sharedMemPerBlock = 48 << 10, .sharedMemPerBlockOptin = 227 << 10,
      .sharedMemPerMultiprocessor = 228 << 10, .regsPerBlock = 65536,
      .regsPerMultiprocessor = 65536, .maxThreadsDim = {1024, 1024, 64},
      .maxGridSize = {2147483647, 65535, 65535}, .l2CacheSize = 50 << 20};
  return cudaSuccess;
}

CALL cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

static int driver_call(void) { return 0; }
GIVES(cudaGetDriverEntryPointByVersion,
      (const char *name, void **call, unsigned version, unsigned long long flags,
       enum cudaDriverEntryPointQueryResult *found),
      *call = (void *)driver_call; if (found) *found = cudaDriverEntryPointSuccess)

// -- memory --------------------------------------------------------------------------------------

CALL cudaMalloc(void **memory, size_t size) {
  return posix_memalign(memory, 512, size ? size : 1) ? cudaErrorMemoryAllocation : cudaSuccess;
}
CALL cudaHostAlloc(void **memory, size_t size, unsigned flags) { return cudaMalloc(memory, size); }
GIVES(cudaFree, (void *memory), free(memory))
GIVES(cudaFreeHost, (void *memory), free(memory))
LAUNCHES(cudaMemsetAsync, (void *memory, int value, size_t size, cudaStream_t stream))

CALL cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                     cudaStream_t stream) {
  if (kind != cudaMemcpyDeviceToDevice) memcpy(to, from, size);
  return stand_in_launch();
}
CALL cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, size, kind, 0);
}
GIVES(cudaPointerGetAttributes, (struct cudaPointerAttributes * found, const void *memory),
      memset(found, 0, sizeof *found); found->type = cudaMemoryTypeDevice)

// -- streams and events --------------------------------------------------------------------------

GIVES(cudaStreamCreateWithPriority, (cudaStream_t *stream, unsigned flags, int priority),
      *stream = malloc(8))
GIVES(cudaStreamIsCapturing, (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
      *status = cudaStreamCaptureStatusNone)
GIVES(cudaStreamGetCaptureInfo,
      (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
       cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
       size_t *count),
      *status = cudaStreamCaptureStatusNone)
GIVES(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), *event = malloc(8))
GIVES(cudaEventDestroy, (cudaEvent_t event), free(event))
GIVES(cudaEventElapsedTime, (float *ms, cudaEvent_t first, cudaEvent_t second), *ms = 1)

// -- kernels -------------------------------------------------------------------------------------

static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } configured;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configured.grid = grid, configured.block = block;
  configured.shared = shared, configured.stream = stream;
  return 0;
}
GIVES(__cudaPopCallConfiguration, (dim3 * grid, dim3 *block, size_t *shared, cudaStream_t *stream),
      *grid = configured.grid; *block = configured.block; *shared = configured.shared;
      *stream = configured.stream)
GIVES(__cudaGetKernel, (cudaKernel_t * kernel, const void *function),
      *kernel = (cudaKernel_t)function)
char __cudaInitModule(void **module) { return 1; }
void **__cudaRegisterFatBinary(void *binary) { return malloc(8); }
LAUNCHES(__cudaLaunchKernel, (cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                              size_t shared, cudaStream_t stream))
LAUNCHES(cudaLaunchKernel, (const void *kernel, dim3 grid, dim3 block, void **arguments,
                            size_t shared, cudaStream_t stream))
LAUNCHES(cudaLaunchKernelExC,
         (const cudaLaunchConfig_t *configuration, const void *kernel, void **arguments))
GIVES(cudaFuncGetAttributes, (struct cudaFuncAttributes * found, const void *kernel),
      memset(found, 0, sizeof *found); found->maxThreadsPerBlock = 1024; found->numRegs = 32;
      found->binaryVersion = found->ptxVersion = 90)
GIVES(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
      (int *blocks, const void *kernel, int size, size_t shared, unsigned flags), *blocks = 2)
const char *CUDARTAPI cudaGetErrorString(cudaError_t error) { return "no error, no GPU"; }
const char *CUDARTAPI cudaGetErrorName(cudaError_t error) { return "stand-in"; }

// -- the driver and cuBLAS, as far as torch asks them for more than success ----------------------

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0, *active = 1;
  return 0;
}

int cuCtxGetCurrent(void **context) {
  *context = &launch_ns;
  return 0;
}

typedef struct { char opaque[64]; } Handle;
#define CREATES(name, ...) \
  int name(Handle **handle, ##__VA_ARGS__) { *handle = calloc(1, sizeof **handle); return 0; }
#define DESTROYS(name) \
  int name(Handle *handle) { free(handle); return 0; }
CREATES(cublasCreate_v2)
CREATES(cublasLtMatmulDescCreate, int compute, int scale)
CREATES(cublasLtMatmulPreferenceCreate)
CREATES(cublasLtMatrixLayoutCreate, int type, long rows, long columns, long stride)
DESTROYS(cublasLtMatmulDescDestroy)
DESTROYS(cublasLtMatmulPreferenceDestroy)
DESTROYS(cublasLtMatrixLayoutDestroy)
int cublasGetMathMode(Handle *handle, int *mode) { return *mode = 0; }
int cublasGetPointerMode_v2(Handle *handle, int *mode) { return *mode = 0; }
size_t cublasLtGetVersion(void) { return 130000; }
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *what, void *a, void *b, void *c, void *d,
                                   void *preference, int most, void *results, int *count) {
  memset(results, 0, 88);
  *count = 1;
  return 0;
}
int cublasLtMatmul(void) { return stand_in_launch(); }
int cublasSgemm_v2(void) { return stand_in_launch(); }
int cublasGemmEx(void) { return stand_in_launch(); }
int cublasSgemmStridedBatched(void) { return stand_in_launch(); }
int cublasGemmStridedBatchedEx(void) { return stand_in_launch(); }
