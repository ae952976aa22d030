// What vulkan.c (the driver, memory, compiling) and vulkan_plan.c (plans) share. Nobody else includes this.
#ifndef WEFT_DEVICE_VULKAN_IMPL_H
#define WEFT_DEVICE_VULKAN_IMPL_H
#define VK_NO_PROTOTYPES
#include <pthread.h>
#include <vulkan/vulkan.h>
#include "device/device.h"
#include "device/vulkan.h"

// Functions, by what they are looked up with.
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
  VkPipelineLayout layout;         // of all kernels: a push constant of 8 bytes, where the kernel's arguments are
  VkPipelineCache cache;
  VkCommandPool pool;              // of vk_begin; under the lock
  VkFence fence;                   // from the first commands on
  pthread_mutex_t lock;            // the queue, the pool and the fence
  VkPhysicalDeviceMemoryProperties memory;
  char name[600], driver[900];     // name: "driver: device"; driver: with versions, for keys of caches
  bool unified, is_cpu;            // unified: all its memory is the host's, too
  unsigned can;                    // bits of enum spirv_can
  bool has_dots;                   // and it is fast at SPIRV_DOTS
  int max_group, max_group_at[3], local_bytes, subgroup_size;
  uint32_t max_groups[3];
  uint64_t max_alloc, bytes;       // in one piece; of its own memory in all
  double tick;                     // seconds of a time stamp; 0: the queue has none
};

// A piece of memory with one buffer over all of it.
typedef struct vk_memory {
  VkBuffer buffer;
  VkDeviceMemory memory;
  uint64_t size;
  VkDeviceAddress address;
  unsigned char *mapped;           // where the host sees it; NULL: it does not
} vk_memory;

struct vk_code {
  remote_code base;
  vk *d;
  const program *p;
  VkPipeline pipeline;
};

// -1, and a sentence that names the device, what it was about and the code
int vk_failed(const vk *d, error *err, const char *what, VkResult code);

// host: the host has to see it; otherwise it is the device's own, and the host sees it only where memory is one. What
// it holds is not known. -1 and why not.
int vk_make(const vk *d, uint64_t size, bool host, vk_memory *out, error *err);
void vk_drop(const vk *d, vk_memory *m);         // and forgets it; one that is all zeros is fine

// Commands that run at once. Between the two the device's lock is held. vk_end submits, waits, and gives the lock back,
// also where it fails.
int vk_begin(vk *d, VkCommandBuffer *out, error *err);
int vk_end(vk *d, VkCommandBuffer c, error *err);
// Commands that are ended; under the lock.
VkResult vk_run_and_wait(vk *d, VkCommandBuffer c);
// All that commands before it have written is there for those after it, copies and kernels alike, and for the host.
void vk_barrier(const vk *d, VkCommandBuffer c);

// A kernel's arguments in memory, 8 bytes each: the address of each buffer, which is a multiple of 16, the value of
// each variable, two more that programs with a tile loop read, and the number of work-groups in the first dimension,
// for those that are spread (render/spirv.c).
enum { VK_MORE_ARGUMENTS = 3 };
static inline int vk_n_arguments(const program *p) { return p->n_bufs + p->n_vars + VK_MORE_ARGUMENTS; }
// How so many work-groups of p are dispatched. -1: more than the device takes.
int vk_shape(const vk *d, const program *p, const int64_t n[3], uint32_t groups[3], error *err);
// The numbers of work-groups, and whether there is anything to do: 1, or 0. -1: more than the device takes.
int vk_groups(const vk_code *k, const int64_t *vars, uint32_t groups[3], error *err);
// Binds the kernel, whose arguments are at this address, and dispatches that many groups.
void vk_dispatch(const vk_code *k, VkCommandBuffer c, VkDeviceAddress arguments, const uint32_t groups[3]);
#endif
