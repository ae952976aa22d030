// The functions of NVIDIA's driver library, libcuda.so.1, that Weft calls, declared from the public description of the
// driver API: building needs no NVIDIA headers, running needs only the driver.
//
// Results are error codes; 0 is success. Addresses on the device are unique in this process (unified addressing).
#ifndef WEFT_DEVICE_CUDA_DRIVER_H
#define WEFT_DEVICE_CUDA_DRIVER_H
#include <stddef.h>

typedef int cuda_status;
typedef int cuda_device;
typedef unsigned long long cuda_address;
typedef struct CUctx_st *cuda_context;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;
typedef struct CUgraph_st *cuda_graph;
typedef struct CUgraphNode_st *cuda_node;
typedef struct CUgraphExec_st *cuda_exec;

// A kernel in a graph: the first version of the driver's structure, for cuGraphAddKernelNode and
// cuGraphExecKernelNodeSetParams without a suffix.
typedef struct cuda_kernel_node {
  cuda_function function;
  unsigned grid[3], block[3], shared_bytes;
  void **arguments, **extra;               // a pointer to each argument's value, which is copied; extra: NULL
} cuda_kernel_node;

enum { CUDA_NO_MEMORY = 2, CUDA_NO_DEVICE = 100, CUDA_BAD_PTX = 218, CUDA_PTX_TOO_NEW = 222 };
// Attributes of cuDeviceGetAttribute.
enum {
  CUDA_MOST_ITEMS = 1 /* of a work-group */,
  CUDA_SHARED_BYTES = 8 /* of a work-group */,
  CUDA_KHZ = 13,
  CUDA_UNITS = 16,
  CUDA_MEMORY_KHZ = 36,
  CUDA_MEMORY_BITS = 37 /* at once, twice in each of its clocks */,
  CUDA_L2_BYTES = 38,
  CUDA_UNIT_ITEMS = 39 /* that a multiprocessor holds */,
  CUDA_ONE_ADDRESSING = 41,
  CUDA_MAJOR = 75,
  CUDA_MINOR = 76,
  CUDA_UNIT_SHARED_BYTES = 81,
  CUDA_UNIT_REGISTERS = 82
};
enum { CUDA_LOG = 5, CUDA_LOG_BYTES = 6 };  // options of cuModuleLoadDataEx: the assembler's error log
enum { CUDA_STREAM_APART = 1 /* does not wait for others */ };

// name in the table, name in the library, arguments
#define CUDA_FUNCTIONS(F) \
  F(Init, "cuInit", (unsigned flags)) \
  F(GetErrorName, "cuGetErrorName", (cuda_status s, const char **text)) \
  F(DriverGetVersion, "cuDriverGetVersion", (int *version)) \
  F(DeviceGetCount, "cuDeviceGetCount", (int *n)) \
  F(DeviceGet, "cuDeviceGet", (cuda_device *out, int number)) \
  F(DeviceGetName, "cuDeviceGetName", (char *out, int cap, cuda_device d)) \
  F(DeviceGetAttribute, "cuDeviceGetAttribute", (int *out, int what, cuda_device d)) \
  F(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *out, cuda_device d)) \
  F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (cuda_context *out, cuda_device d)) \
  F(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (cuda_device d)) \
  F(CtxSetCurrent, "cuCtxSetCurrent", (cuda_context c)) \
  F(ModuleLoadDataEx, "cuModuleLoadDataEx", (cuda_module *out, const void *image, unsigned n, int *options, \
  void **values)) \
  F(ModuleUnload, "cuModuleUnload", (cuda_module m)) \
  F(ModuleGetFunction, "cuModuleGetFunction", (cuda_function *out, cuda_module m, const char *name)) \
  F(MemAlloc, "cuMemAlloc_v2", (cuda_address *out, size_t n)) \
  F(MemFree, "cuMemFree_v2", (cuda_address at)) \
  F(MemGetInfo, "cuMemGetInfo_v2", (size_t *left, size_t *all)) \
  F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (cuda_address to, const void *from, size_t n, cuda_stream s)) \
  F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *to, cuda_address from, size_t n, cuda_stream s)) \
  F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (cuda_address to, cuda_address from, size_t n, cuda_stream s)) \
  F(MemsetD8Async, "cuMemsetD8Async", (cuda_address to, unsigned char value, size_t n, cuda_stream s)) \
  F(StreamCreate, "cuStreamCreate", (cuda_stream *out, unsigned flags)) \
  F(StreamDestroy, "cuStreamDestroy_v2", (cuda_stream s)) \
  F(StreamSynchronize, "cuStreamSynchronize", (cuda_stream s)) \
  F(LaunchKernel, "cuLaunchKernel", (cuda_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
  unsigned by, unsigned bz, unsigned shared_bytes, cuda_stream s, void **arguments, void **extra)) \
  F(EventCreate, "cuEventCreate", (cuda_event *out, unsigned flags)) \
  F(EventDestroy, "cuEventDestroy_v2", (cuda_event e)) \
  F(EventRecord, "cuEventRecord", (cuda_event e, cuda_stream s)) \
  F(EventElapsedTime, "cuEventElapsedTime", (float *ms, cuda_event from, cuda_event to)) \
  F(GraphCreate, "cuGraphCreate", (cuda_graph *out, unsigned flags)) \
  F(GraphDestroy, "cuGraphDestroy", (cuda_graph g)) \
  F(GraphAddKernelNode, "cuGraphAddKernelNode", (cuda_node *out, cuda_graph g, const cuda_node *after, size_t n, \
  const cuda_kernel_node *what)) \
  F(GraphInstantiate, "cuGraphInstantiateWithFlags", (cuda_exec *out, cuda_graph g, unsigned long long flags)) \
  F(GraphExecKernelNodeSetParams, "cuGraphExecKernelNodeSetParams", \
  (cuda_exec x, cuda_node n, const cuda_kernel_node *what)) \
  F(GraphExecDestroy, "cuGraphExecDestroy", (cuda_exec x)) \
  F(GraphLaunch, "cuGraphLaunch", (cuda_exec x, cuda_stream s))
#endif
