// A libvulkan.so.1 before the real one (FAKE_VK_REAL, a path): it hands everything on, and makes devices worse than
// they are.
//
// FAKE_VK is a list of words. no-doubles: the device says that it has none. groups=N: it takes N work-groups in the
// first dimension. Weft asks for all functions by vkGetInstanceProcAddr.
#define _GNU_SOURCE
#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

static PFN_vkGetPhysicalDeviceFeatures2 features_of;
static PFN_vkGetPhysicalDeviceProperties2 properties_of;

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
  if (groups) out->properties.limits.maxComputeWorkGroupCount[0] = (uint32_t)strtoul(groups, NULL, 10);
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
  return found;
}
