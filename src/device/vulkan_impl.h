// Declarations shared by vulkan.c (driver, memory, compiling) and vulkan_plan.c (plans); no other file includes this.
#ifndef WEFT_DEVICE_VULKAN_IMPL_H
#define WEFT_DEVICE_VULKAN_IMPL_H
#define VK_NO_PROTOTYPES
#include <pthread.h>
#include <vulkan/vulkan.h>
#include "device/device.h"
#include "device/vulkan.h"

// Functions, grouped by the object for which they are looked up.
#define VK_OF_LOADER(F) F(CreateInstance) F(EnumerateInstanceVersion) F(EnumerateInstanceLayerProperties)
#define VK_OF_INSTANCE(F) \
  F(DestroyInstance) F(EnumeratePhysicalDevices) F(GetPhysicalDeviceProperties2) F(GetPhysicalDeviceFeatures2) \
  F(GetPhysicalDeviceQueueFamilyProperties) F(GetPhysicalDeviceMemoryProperties) F(CreateDevice) \
  F(EnumerateDeviceExtensionProperties) F(GetDeviceProcAddr)
#define VK_OF_DEVICE(F) \
  F(DestroyDevice) F(GetDeviceQueue) F(DeviceWaitIdle) F(CreateBuffer) F(DestroyBuffer) \
  F(GetBufferMemoryRequirements) F(AllocateMemory) F(FreeMemory) F(BindBufferMemory) F(MapMemory) \
  F(GetBufferDeviceAddress) F(CreateShaderModule) F(DestroyShaderModule) F(CreatePipelineLayout) \
  F(DestroyPipelineLayout) F(CreateComputePipelines) F(DestroyPipeline) F(CreatePipelineCache) \
  F(DestroyPipelineCache) F(GetPipelineCacheData) F(MergePipelineCaches) F(CreateCommandPool) F(DestroyCommandPool) \
  F(ResetCommandPool) F(AllocateCommandBuffers) F(FreeCommandBuffers) F(BeginCommandBuffer) F(EndCommandBuffer) \
  F(CmdBindPipeline) F(CmdPushConstants) F(CmdDispatch) F(CmdDispatchIndirect) F(CmdPipelineBarrier) \
  F(CmdCopyBuffer) F(CmdFillBuffer) F(CmdUpdateBuffer) F(CreateQueryPool) F(DestroyQueryPool) F(CmdResetQueryPool) \
  F(CmdWriteTimestamp) F(GetQueryPoolResults) F(QueueSubmit) F(QueueWaitIdle) F(CreateFence) F(DestroyFence) \
  F(ResetFences) F(WaitForFences) F(CreateSemaphore) F(DestroySemaphore) F(WaitSemaphores)

struct vk {
#define F(name) PFN_vk##name name;
  VK_OF_LOADER(F)
  VK_OF_INSTANCE(F)
  VK_OF_DEVICE(F)
#undef F
  void *library;
  PFN_vkGetInstanceProcAddr get;
  VkInstance instance;
  VkDebugUtilsMessengerEXT messenger;    // of the validation layer
  _Atomic int complaints;
  VkPhysicalDevice physical;
  VkDevice device;
  uint32_t family;                 // of the queue
  VkQueue queue;
  VkPipelineLayout layout;  // common to all kernels: a push constant of 8 bytes with the address of the arguments
  VkPipelineCache cache;
  VkCommandPool pool;              // for vk_begin; protected by the lock
  VkFence fence;                   // made with the first commands
  pthread_mutex_t lock;            // protects the queue, the pool and the fence
  VkPhysicalDeviceMemoryProperties memory;
  char name[600], driver[900];     // name: "driver: device"; driver: with versions, for cache keys
  bool unified, is_cpu;            // unified: all of its memory is also the host's
  unsigned can;                    // bits of enum spirv_can
  bool has_dots;                   // executes SPIRV_DOTS fast
  int max_group, max_group_at[3], local_bytes, subgroup_size;
  uint32_t max_groups[3];
  uint64_t max_alloc, bytes;       // maximum of one allocation; total device memory
  double tick;                     // seconds per time stamp unit; 0: the queue has no time stamps
};

// A memory allocation with one buffer over all of it.
typedef struct vk_memory {
  VkBuffer buffer;
  VkDeviceMemory memory;
  uint64_t size;
  VkDeviceAddress address;
  unsigned char *mapped;           // address for the host; NULL: not visible
} vk_memory;

struct vk_code {
  remote_code base;
  vk *d;
  const program *p;
  VkPipeline pipeline;
};

// -1, with a message that names the device, the action and the code
int vk_failed(const vk *d, error *err, const char *what, VkResult code);

// Allocates uninitialised memory. host: visible to the host; otherwise device memory, visible to the host only on
// unified devices. Returns -1 and the reason.
int vk_make(const vk *d, uint64_t size, bool host, vk_memory *out, error *err);
void vk_drop(const vk *d, vk_memory *m);         // frees and clears it; all zeros is fine

// Runs commands at once. vk_begin takes the device's lock; vk_end submits, waits and releases it, even on failure.
int vk_begin(vk *d, VkCommandBuffer *out, error *err);
int vk_end(vk *d, VkCommandBuffer c, error *err);
// Runs finished commands; the caller holds the lock.
VkResult vk_run_and_wait(vk *d, VkCommandBuffer c);
// Makes all earlier writes visible to later commands (copies and kernels) and to the host.
void vk_barrier(const vk *d, VkCommandBuffer c);

// A kernel's arguments in memory, 8 bytes each: the address of each buffer (a multiple of 16), the value of each
// variable, two more for programs with a tile loop, and the number of work-groups in the first dimension, for spread
// ones (render/spirv.c).
enum { VK_MORE_ARGUMENTS = 3 };
static inline int vk_n_arguments(const program *p) { return p->n_bufs + p->n_vars + VK_MORE_ARGUMENTS; }
// The dispatch size for these numbers of work-groups of p. -1: more than the device supports.
int vk_shape(const vk *d, const program *p, const int64_t n[3], uint32_t groups[3], error *err);
// The numbers of work-groups: returns 1, or 0 if there is no work. -1: more than the device supports.
int vk_groups(const vk_code *k, const int64_t *vars, uint32_t groups[3], error *err);
// Binds the kernel with its arguments at this address, and dispatches that many groups.
void vk_dispatch(const vk_code *k, VkCommandBuffer c, VkDeviceAddress arguments, const uint32_t groups[3]);
#endif
