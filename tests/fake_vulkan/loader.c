// A libvulkan.so.1 before the real one (FAKE_VK_REAL, a path): it hands everything on, and makes devices worse than
// they are.
//
// FAKE_VK is a list of words. no-doubles: the device says that it has none. groups=N: it takes N work-groups in the
// first dimension. discrete: its memory is not the host's, and the host sees another type of memory only, as on a GPU
// without a resizable BAR. Weft asks for all functions by vkGetInstanceProcAddr and vkGetDeviceProcAddr.
#define _GNU_SOURCE
#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

static PFN_vkGetPhysicalDeviceFeatures2 features_of;
static PFN_vkGetPhysicalDeviceProperties2 properties_of;
static PFN_vkGetPhysicalDeviceMemoryProperties memory_of;
static PFN_vkGetBufferMemoryRequirements needs_of;
static PFN_vkAllocateMemory allocate_of;
static PFN_vkGetDeviceProcAddr device_function;

static const char *word(const char *one) {
  const char *all = getenv("FAKE_VK"), *at = all ? strstr(all, one) : NULL;
  return at ? at + strlen(one) : NULL;
}

static void VKAPI_PTR worse_features(VkPhysicalDevice d, VkPhysicalDeviceFeatures2 *out) {
  features_of(d, out);
  if (word("no-doubles")) out->features.shaderFloat64 = VK_FALSE;
}

static void VKAPI_PTR worse_properties(VkPhysicalDevice d, VkPhysicalDeviceProperties2 *out) {
  const char *groups = word("groups=");
  properties_of(d, out);
  if (word("discrete")) out->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  if (groups) out->properties.limits.maxComputeWorkGroupCount[0] = (uint32_t)strtoul(groups, NULL, 10);
}

// ---- a memory that the host does not see: types 0 (the device's) and 1 (the host's) of the one type there is --------

static void VKAPI_PTR apart_memory(VkPhysicalDevice d, VkPhysicalDeviceMemoryProperties *out) {
  memory_of(d, out);
  if (!word("discrete")) return;
  out->memoryTypeCount = 2;
  out->memoryTypes[1] = out->memoryTypes[0];
  out->memoryTypes[1].propertyFlags &= ~(VkMemoryPropertyFlags)VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  out->memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
}

static void VKAPI_PTR either_memory(VkDevice d, VkBuffer buffer, VkMemoryRequirements *out) {
  needs_of(d, buffer, out);
  if (word("discrete")) out->memoryTypeBits = 3;
}

static VkResult VKAPI_PTR real_memory(VkDevice d, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *how,
                                      VkDeviceMemory *out) {
  VkMemoryAllocateInfo of = *info;
  if (word("discrete")) of.memoryTypeIndex = 0;
  return allocate_of(d, &of, how, out);
}

static PFN_vkVoidFunction VKAPI_PTR of_device(VkDevice d, const char *name) {
  PFN_vkVoidFunction found = device_function(d, name);
  if (found && !strcmp(name, "vkGetBufferMemoryRequirements")) {
    needs_of = (PFN_vkGetBufferMemoryRequirements)found;
    return (PFN_vkVoidFunction)either_memory;
  }
  if (found && !strcmp(name, "vkAllocateMemory")) {
    allocate_of = (PFN_vkAllocateMemory)found;
    return (PFN_vkVoidFunction)real_memory;
  }
  return found;
}

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);
PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name) {
  static PFN_vkGetInstanceProcAddr get;
  const char *path = getenv("FAKE_VK_REAL");
  void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL,
       *at = library ? dlsym(library, "vkGetInstanceProcAddr") : NULL;
  if (!at) {
    fprintf(stderr, "fake_vulkan: no loader in FAKE_VK_REAL=%s\n", path ? path : "");
    abort();
  }
  memcpy(&get, &at, sizeof get);
  PFN_vkVoidFunction found = get(instance, name);
  if (found && !strcmp(name, "vkGetPhysicalDeviceFeatures2")) {
    features_of = (PFN_vkGetPhysicalDeviceFeatures2)found;
    return (PFN_vkVoidFunction)worse_features;
  }
  if (found && !strcmp(name, "vkGetPhysicalDeviceProperties2")) {
    properties_of = (PFN_vkGetPhysicalDeviceProperties2)found;
    return (PFN_vkVoidFunction)worse_properties;
  }
  if (found && !strcmp(name, "vkGetPhysicalDeviceMemoryProperties")) {
    memory_of = (PFN_vkGetPhysicalDeviceMemoryProperties)found;
    return (PFN_vkVoidFunction)apart_memory;
  }
  if (found && !strcmp(name, "vkGetDeviceProcAddr")) {
    device_function = (PFN_vkGetDeviceProcAddr)found;
    return (PFN_vkVoidFunction)of_device;
  }
  return found;
}
