// Calls Vulkan through its loader: see vulkan.h.
//
// The functions are declared once, in X-macros that make the table and the lookup (vulkan_impl.h); their types come
// from the standard's headers. Every call's result is checked; an error names the device, the call and the code.
// Kernels access memory by address: each has one push constant, the address of its arguments.
#define _GNU_SOURCE
#include "device/vulkan.h"

#ifndef WEFT_VULKAN
static int vulkan_is_missing(error *err) {
  return error_set(err, "DEV=VK: this Weft was built without Vulkan's headers (Debian: libvulkan-dev)");
}
int vk_open(const char *which, vk **out, error *err) {
  (void)which;
  *out = NULL;
  return vulkan_is_missing(err);
}
int vk_list(str *out, error *err) { (void)out; return vulkan_is_missing(err); }
void vk_close(vk *d) { (void)d; }
void vk_code_free(vk_code *k) { (void)k; }
// Without Vulkan there is no device to query.
const char *vk_name(const vk *d) { (void)d; return "none"; }
int vk_complaints(const vk *d) { (void)d; return 0; }
descriptor_set vk_dots(const vk *d) { (void)d; return 0; }
void vk_target(const vk *d, target *out) { (void)d; *out = render_find("spirv")->target; }
render_options vk_render_options(const vk *d) { (void)d; return (render_options){0}; }
vk_code *vk_compile(vk *d, const program *p, int n_bufs, const uint32_t *words, size_t n, error *err) {
  (void)d; (void)p; (void)n_bufs; (void)words; (void)n;
  vulkan_is_missing(err);
  return NULL;
}
int vk_launch(vk_code *k, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi,
              error *err) {
  (void)k; (void)bufs; (void)sizes; (void)vars; (void)lo; (void)hi;
  return vulkan_is_missing(err);
}
#else
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/plain.h"
#include "device/vulkan_impl.h"

static const char *result_name(VkResult code) {
  switch (code) {
#define NAME(x) case x: return #x
  NAME(VK_ERROR_OUT_OF_HOST_MEMORY);
  NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY);
  NAME(VK_ERROR_INITIALIZATION_FAILED);
  NAME(VK_ERROR_MEMORY_MAP_FAILED);
  NAME(VK_ERROR_LAYER_NOT_PRESENT);
  NAME(VK_ERROR_EXTENSION_NOT_PRESENT);
  NAME(VK_ERROR_FEATURE_NOT_PRESENT);
  NAME(VK_ERROR_INCOMPATIBLE_DRIVER);
  NAME(VK_ERROR_TOO_MANY_OBJECTS);
  NAME(VK_ERROR_FRAGMENTATION);
  NAME(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS);
  NAME(VK_ERROR_INVALID_SHADER_NV);
#undef NAME
  case VK_ERROR_DEVICE_LOST: return "VK_ERROR_DEVICE_LOST, the device is gone";
  case VK_TIMEOUT: return "VK_TIMEOUT";
  default: return "error";
  }
}

int vk_failed(const vk *d, error *err, const char *what, VkResult code) {
  bool memory = code == VK_ERROR_OUT_OF_DEVICE_MEMORY || code == VK_ERROR_OUT_OF_HOST_MEMORY;
  return error_set(err, "Vulkan: %s: %s: %s (%d)%s", *d->name ? d->name : "no device yet", what, result_name(code),
                   (int)code, memory ? "; a smaller model, context (-c) or chunk (-ub) needs less memory" : "");
}

// ---- opening --------------------------------------------------------------------------------------------------------

static int load_vulkan(vk *d, error *err) {
  d->library = dlopen("libvulkan.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!d->library)
    return error_set(err, "Vulkan needs its loader, libvulkan.so.1: install libvulkan1 and a driver, such as "
                          "mesa-vulkan-drivers");
  void *get = dlsym(d->library, "vkGetInstanceProcAddr");
  if (!get) return error_set(err, "libvulkan.so.1 lacks vkGetInstanceProcAddr");
  memcpy(&d->get, &get, sizeof get);
#define F(fn) \
  if (!(d->fn = (PFN_vk##fn)d->get(NULL, "vk" #fn))) return error_set(err, "the Vulkan loader lacks vk" #fn);
  VK_OF_LOADER(F)
#undef F
  return 0;
}

static VkBool32 VKAPI_PTR note_complaint(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                         VkDebugUtilsMessageTypeFlagsEXT of,
                                         const VkDebugUtilsMessengerCallbackDataEXT *what, void *ctx) {
  (void)severity; (void)of;
  ((vk *)ctx)->complaints++;
  fprintf(stderr, "Vulkan: %s\n", what->pMessage);
  return VK_FALSE;
}

static int have_instance(vk *d, error *err) {
  bool validate = env_int(ENV_VK_VALIDATE);
  uint32_t version = 0;
  VkResult r = d->EnumerateInstanceVersion(&version);
  if (r || version < VK_API_VERSION_1_2)
    return error_set(err, "Vulkan: the loader knows Vulkan %u.%u, and 1.2 is needed", VK_API_VERSION_MAJOR(version),
                     VK_API_VERSION_MINOR(version));
  VkApplicationInfo app = {
    .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "weft", .apiVersion = VK_API_VERSION_1_2};
  VkDebugUtilsMessengerCreateInfoEXT messages = {
    .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
    .messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
    .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
    .pfnUserCallback = note_complaint,
    .pUserData = d};
  VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                               .pNext = validate ? &messages : NULL,
                               .pApplicationInfo = &app,
                               .enabledLayerCount = validate,
                               .ppEnabledLayerNames = (const char *[]){"VK_LAYER_KHRONOS_validation"},
                               .enabledExtensionCount = validate,
                               .ppEnabledExtensionNames = (const char *[]){VK_EXT_DEBUG_UTILS_EXTENSION_NAME}};
  r = d->CreateInstance(&info, NULL, &d->instance);
  if (r == VK_ERROR_LAYER_NOT_PRESENT)
    return error_set(err, "VK_VALIDATE=1 needs Vulkan's validation layer (Debian: vulkan-validationlayers)");
  if (r == VK_ERROR_INCOMPATIBLE_DRIVER)
    return error_set(err, "Vulkan: no driver is installed: install one, such as mesa-vulkan-drivers");
  if (r) return vk_failed(d, err, "vkCreateInstance", r);
#define F(fn) \
  if (!(d->fn = (PFN_vk##fn)d->get(d->instance, "vk" #fn))) return error_set(err, "the Vulkan loader lacks vk" #fn);
  VK_OF_INSTANCE(F)
#undef F
  if (!validate) return 0;
  PFN_vkCreateDebugUtilsMessengerEXT make =
    (PFN_vkCreateDebugUtilsMessengerEXT)d->get(d->instance, "vkCreateDebugUtilsMessengerEXT");
  r = make ? make(d->instance, &messages, NULL, &d->messenger) : VK_ERROR_EXTENSION_NOT_PRESENT;
  return r ? vk_failed(d, err, "vkCreateDebugUtilsMessengerEXT", r) : 0;
}

// ---- which device ---------------------------------------------------------------------------------------------------

enum { MOST_PHYSICAL = 16, MOST_FAMILIES = 16, MOST_EXTENSIONS = 512 };

typedef struct vk_features {
  VkPhysicalDeviceFeatures2 all;
  VkPhysicalDeviceVulkan11Features v11;
  VkPhysicalDeviceVulkan12Features v12;
  VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dots;
} vk_features;

static void chain_features(vk_features *f) {
  f->all = (VkPhysicalDeviceFeatures2){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &f->v11};
  f->v11 = (VkPhysicalDeviceVulkan11Features){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                              .pNext = &f->v12};
  f->v12 = (VkPhysicalDeviceVulkan12Features){.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
}

// The extension for dot products, not part of Vulkan 1.2: requested if the device has it.
static bool chain_dots(const vk *d, vk_features *f) {
  VkExtensionProperties all[MOST_EXTENSIONS];
  uint32_t n = COUNT(all);
  bool has = false;
  if (d->EnumerateDeviceExtensionProperties(d->physical, NULL, &n, all) < 0) return false;
  for (uint32_t i = 0; i < n; i++)
    has |= !strcmp(all[i].extensionName, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
  f->dots = (VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR){
    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR};
  if (has) f->v12.pNext = &f->dots;
  return has;
}

static bool compute_family(const vk *d, VkPhysicalDevice p, uint32_t *family, uint32_t *time_bits) {
  VkQueueFamilyProperties of[MOST_FAMILIES];
  uint32_t n = COUNT(of);
  d->GetPhysicalDeviceQueueFamilyProperties(p, &n, of);
  for (uint32_t i = 0; i < n; i++) {
    if (!(of[i].queueFlags & VK_QUEUE_COMPUTE_BIT)) continue;
    *family = i;
    *time_bits = of[i].timestampValidBits;
    return true;
  }
  return false;
}

// The feature that a device lacks; NULL: none.
static const char *lack(const vk *d, VkPhysicalDevice p, uint32_t version) {
  vk_features f;
  uint32_t family, bits;
  if (version < VK_API_VERSION_1_2) return "Vulkan 1.2";
  chain_features(&f);
  d->GetPhysicalDeviceFeatures2(p, &f.all);
  return !f.v12.bufferDeviceAddress          ? "addresses of buffers (bufferDeviceAddress)"
         : !f.all.features.shaderInt64       ? "integers of 64 bits (shaderInt64)"
         : !f.all.features.shaderInt16       ? "integers of 16 bits (shaderInt16)"
         : !f.v12.shaderInt8                 ? "integers of 8 bits (shaderInt8)"
         : !f.v12.storageBuffer8BitAccess    ? "memory in bytes (storageBuffer8BitAccess)"
         : !f.v11.storageBuffer16BitAccess   ? "memory in halves of words (storageBuffer16BitAccess)"
         : !f.v12.timelineSemaphore          ? "timeline semaphores (timelineSemaphore)"
         : !compute_family(d, p, &family, &bits) ? "a queue for computing"
                                             : NULL;
}

typedef struct candidate {
  VkPhysicalDevice p;
  char name[600], driver[900];
  const char *lacks;
  int rank;                        // the device with the lowest rank is used
} candidate;

static void describe_physical(const vk *d, VkPhysicalDevice p, candidate *out) {
  static const int ranks[] = {[VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU] = 0, [VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU] = 1,
                              [VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU] = 2, [VK_PHYSICAL_DEVICE_TYPE_CPU] = 3,
                              [VK_PHYSICAL_DEVICE_TYPE_OTHER] = 4};
  VkPhysicalDeviceDriverProperties driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
  VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &driver};
  const VkPhysicalDeviceProperties *of = &all.properties;
  d->GetPhysicalDeviceProperties2(p, &all);
  *out = (candidate){.p = p, .lacks = lack(d, p, of->apiVersion),
                     .rank = (size_t)of->deviceType < COUNT(ranks) ? ranks[of->deviceType] : 4};
  snprintf(out->name, sizeof out->name, "%s: %s", *driver.driverName ? driver.driverName : "Vulkan", of->deviceName);
  snprintf(out->driver, sizeof out->driver, "%s %s %u.%u.%u", out->name, driver.driverInfo, of->vendorID, of->deviceID,
           of->driverVersion);
}

static bool is_within(const char *name, const char *part) {
  size_t n = strlen(part);
  for (; *name; name++) if (!ascii_ncasecmp(name, part, n)) return true;
  return false;
}

static int find_candidates(const vk *d, candidate *all, int *n, error *err) {
  VkPhysicalDevice found[MOST_PHYSICAL];
  uint32_t many = COUNT(found);
  VkResult r = d->EnumeratePhysicalDevices(d->instance, &many, found);
  if (r < 0) return vk_failed(d, err, "vkEnumeratePhysicalDevices", r);
  if (!many) return error_set(err, "Vulkan: no driver has a device: install one, such as mesa-vulkan-drivers");
  for (uint32_t i = 0; i < many; i++) describe_physical(d, found[i], &all[i]);
  *n = (int)many;
  return 0;
}

static void name_candidate(str *out, const candidate *all, int i) {
  str_addf(out, "%s (number %d%s%s)", all[i].name, i, all[i].lacks ? ", lacks " : "",
           all[i].lacks ? all[i].lacks : "");
}

static int unknown_candidate(const candidate *all, int n, const char *which, error *err) {
  str list = {0};
  for (int i = 0; i < n; i++) {
    if (i) str_add(&list, "; ");
    name_candidate(&list, all, i);
  }
  error_set(err, "DEV=VK:%s is no device of Vulkan here; there %s %s", which, n == 1 ? "is" : "are", str_c(&list));
  str_free(&list);
  return -1;
}

// The candidate with this number (numbers from 100 on are parts of names: "4090"); otherwise the best one whose name
// contains `which`. -1 and the reason if there is none.
static int best_candidate(const candidate *all, int n, const char *which, error *err) {
  bool any = which && *which, digits = any && !which[strspn(which, "0123456789")];
  long number = digits ? strtol(which, NULL, 10) : 0;
  int best = -1, lacking = -1;
  for (int i = 0; i < n; i++) {
    if (number < 100 && digits ? i != number : any && !is_within(all[i].name, which)) continue;
    if (all[i].lacks) lacking = i;
    else if (best < 0 || all[i].rank < all[best].rank) best = i;
  }
  if (best >= 0) return best;
  if (lacking >= 0) return error_set(err, "Vulkan: %s lacks %s", all[lacking].name, all[lacking].lacks);
  return unknown_candidate(all, n, which, err);
}

int vk_list(str *out, error *err) {
  const char *dev = env_str(ENV_DEV), *which = strncmp(dev, "VK:", 3) ? "" : dev + 3;
  vk *d = xcalloc(1, sizeof *d);
  candidate all[MOST_PHYSICAL];
  int n = 0, best = -1;
  if (!load_vulkan(d, err) && !have_instance(d, err) && !find_candidates(d, all, &n, err))
    best = best_candidate(all, n, which, err);
  if (best >= 0) name_candidate(out, all, best);
  for (int i = 0; best >= 0 && i < n; i++) {
    if (i == best) continue;
    str_add(out, "; not used: ");
    name_candidate(out, all, i);
  }
  vk_close(d);
  return best < 0 ? -1 : 0;
}

// ---- its properties -------------------------------------------------------------------------------------------------

// The bits of one float control for 16, 32 and 64 bits, in the combination that the device allows.
static unsigned controls_of(VkShaderFloatControlsIndependence apart, const VkBool32 has[3], const unsigned bit[3]) {
  if (apart == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE)
    return has[0] && has[1] && has[2] ? bit[0] | bit[1] | bit[2] : 0;
  bool alone = apart == VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL || (has[0] && has[2]);
  return (has[1] ? bit[1] : 0) | (alone && has[0] ? bit[0] : 0) | (alone && has[2] ? bit[2] : 0);
}

static unsigned float_controls(const VkPhysicalDeviceVulkan12Properties *p, bool f16, bool f64) {
  const VkBool32 keeps[] = {p->shaderDenormPreserveFloat16, p->shaderDenormPreserveFloat32,
                            p->shaderDenormPreserveFloat64},
                 rounds[] = {p->shaderRoundingModeRTEFloat16, p->shaderRoundingModeRTEFloat32,
                             p->shaderRoundingModeRTEFloat64};
  static const unsigned keep[] = {SPIRV_KEEPS_DENORMALS_16, SPIRV_KEEPS_DENORMALS, SPIRV_KEEPS_DENORMALS_64},
                        round[] = {SPIRV_ROUNDS_16, SPIRV_ROUNDS, SPIRV_ROUNDS_64};
  unsigned can = controls_of(p->denormBehaviorIndependence, keeps, keep) |
                 controls_of(p->roundingModeIndependence, rounds, round);
  if (p->shaderSignedZeroInfNanPreserveFloat32) can |= SPIRV_KEEPS_NAN;
  if (p->shaderSignedZeroInfNanPreserveFloat64 && f64) can |= SPIRV_KEEPS_NAN_64;
  if (f64) can |= SPIRV_F64;
  if (f16 && can & SPIRV_KEEPS_DENORMALS_16 && can & SPIRV_ROUNDS_16) can |= SPIRV_F16;
  return can;
}

static bool is_fast_at_dots(const vk *d) {
  VkPhysicalDeviceShaderIntegerDotProductPropertiesKHR dots = {
    .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES_KHR};
  VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &dots};
  d->GetPhysicalDeviceProperties2(d->physical, &all);
  return dots.integerDotProduct4x8BitPackedMixedSignednessAccelerated;
}

static void ask_vulkan(vk *d, bool f16, bool f64, uint32_t time_bits) {
  VkPhysicalDeviceVulkan12Properties v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  VkPhysicalDeviceVulkan11Properties v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES,
                                            .pNext = &v12};
  VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &v11};
  const VkPhysicalDeviceLimits *l = &all.properties.limits;
  d->GetPhysicalDeviceProperties2(d->physical, &all);
  d->GetPhysicalDeviceMemoryProperties(d->physical, &d->memory);
  d->can = float_controls(&v12, f16, f64);
  d->is_cpu = all.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  d->max_group = (int)min_i64(l->maxComputeWorkGroupInvocations, 1024);
  for (int i = 0; i < 3; i++) {
    d->max_group_at[i] = (int)min_i64(l->maxComputeWorkGroupSize[i], 1024);
    d->max_groups[i] = l->maxComputeWorkGroupCount[i];
  }
  if (d->max_groups[0] < INT32_MAX) d->can |= SPIRV_SPREADS;
  d->local_bytes = (int)min_i64(l->maxComputeSharedMemorySize, 65536);
  d->subgroup_size = (int)v11.subgroupSize;
  d->max_alloc = v11.maxMemoryAllocationSize;
  d->tick = time_bits ? (double)l->timestampPeriod * 1e-9 : 0;
  bool here = d->is_cpu || all.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  const VkMemoryPropertyFlags both = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
  for (uint32_t i = 0; i < d->memory.memoryHeapCount; i++)
    if (d->memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) d->bytes += d->memory.memoryHeaps[i].size;
  for (uint32_t i = 0; i < d->memory.memoryTypeCount; i++)
    d->unified |= here && (d->memory.memoryTypes[i].propertyFlags & both) == both;
}

static int have_device(vk *d, error *err) {
  vk_features f;
  uint32_t time_bits = 0;
  chain_features(&f);
  bool extended = chain_dots(d, &f);
  d->GetPhysicalDeviceFeatures2(d->physical, &f.all);
  bool f16 = f.v12.shaderFloat16, f64 = f.all.features.shaderFloat64, dots = extended && f.dots.shaderIntegerDotProduct;
  compute_family(d, d->physical, &d->family, &time_bits);
  ask_vulkan(d, f16, f64, time_bits);
  d->has_dots = dots && is_fast_at_dots(d);
  if (dots) d->can |= SPIRV_DOTS;
  chain_features(&f);
  if (dots && chain_dots(d, &f)) f.dots.shaderIntegerDotProduct = VK_TRUE;
  f.all.features = (VkPhysicalDeviceFeatures){.shaderInt64 = VK_TRUE, .shaderInt16 = VK_TRUE, .shaderFloat64 = f64};
  f.v11.storageBuffer16BitAccess = VK_TRUE;
  f.v12.shaderFloat16 = f16;
  f.v12.bufferDeviceAddress = f.v12.shaderInt8 = f.v12.storageBuffer8BitAccess = f.v12.timelineSemaphore = VK_TRUE;
  VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                   .queueFamilyIndex = d->family,
                                   .queueCount = 1,
                                   .pQueuePriorities = (const float[]){1}};
  VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                             .pNext = &f.all,
                             .queueCreateInfoCount = 1,
                             .pQueueCreateInfos = &queue,
                             .enabledExtensionCount = dots,
                             .ppEnabledExtensionNames =
                               (const char *[]){VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME}};
  VkResult r = d->CreateDevice(d->physical, &info, NULL, &d->device);
  if (r) return vk_failed(d, err, "vkCreateDevice", r);
  PFN_vkGetDeviceProcAddr get = d->GetDeviceProcAddr;
#define F(fn) \
  if (!(d->fn = (PFN_vk##fn)get(d->device, "vk" #fn))) return error_set(err, "%s lacks vk" #fn, d->name);
  VK_OF_DEVICE(F)
#undef F
  d->GetDeviceQueue(d->device, d->family, 0, &d->queue);
  return 0;
}

// Makes the objects that all kernels and commands share.
static int have_shared(vk *d, error *err) {
  VkPushConstantRange one = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = 8};
  VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .pushConstantRangeCount = 1,
                                       .pPushConstantRanges = &one};
  VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .flags = VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                  .queueFamilyIndex = d->family};
  VkResult r = d->CreatePipelineLayout(d->device, &layout, NULL, &d->layout);
  if (!r) r = d->CreatePipelineCache(d->device, &cache, NULL, &d->cache);
  if (!r) r = d->CreateCommandPool(d->device, &pool, NULL, &d->pool);
  return r ? vk_failed(d, err, "preparing the device", r) : 0;
}

static int open_candidate(vk *d, const char *which, error *err) {
  candidate all[MOST_PHYSICAL];
  int n = 0, best = -1;
  if (load_vulkan(d, err) || have_instance(d, err) || find_candidates(d, all, &n, err)) return -1;
  best = best_candidate(all, n, which, err);
  if (best < 0) return -1;
  d->physical = all[best].p;
  memcpy(d->name, all[best].name, sizeof d->name);
  memcpy(d->driver, all[best].driver, sizeof d->driver);
  return have_device(d, err) || have_shared(d, err) ? -1 : 0;
}

int vk_open(const char *which, vk **out, error *err) {
  vk *d = xcalloc(1, sizeof *d);
  *out = NULL;
  pthread_mutex_init(&d->lock, NULL);
  if (open_candidate(d, which, err)) { vk_close(d); return -1; }
  *out = d;
  return 0;
}

void vk_close(vk *d) {
  if (!d) return;
  if (d->fence) d->DestroyFence(d->device, d->fence, NULL);
  if (d->pool) d->DestroyCommandPool(d->device, d->pool, NULL);
  if (d->cache) d->DestroyPipelineCache(d->device, d->cache, NULL);
  if (d->layout) d->DestroyPipelineLayout(d->device, d->layout, NULL);
  if (d->device && d->DestroyDevice) d->DestroyDevice(d->device, NULL);
  PFN_vkDestroyDebugUtilsMessengerEXT drop =
    d->messenger ? (PFN_vkDestroyDebugUtilsMessengerEXT)d->get(d->instance, "vkDestroyDebugUtilsMessengerEXT") : NULL;
  if (drop) drop(d->instance, d->messenger, NULL);
  if (d->instance && d->DestroyInstance) d->DestroyInstance(d->instance, NULL);
  // The loader stays loaded: drivers have threads and exit handlers that do not survive dlclose.
  pthread_mutex_destroy(&d->lock);
  free(d);
}

const char *vk_name(const vk *d) { return d->name; }
int vk_complaints(const vk *d) { return d->complaints; }
render_options vk_render_options(const vk *d) { return (render_options){.spirv = d->can}; }

static bool knows_bytes(const void *d, const char *feature) {
  return ((const vk *)d)->can & SPIRV_DOTS && !strcmp(feature, "dp4a");
}
descriptor_set vk_dots(const vk *d) { return descriptors_where(knows_bytes, d); }

void vk_target(const vk *d, target *out) {
  *out = render_find("spirv")->target;
  out->descriptors = d->has_dots ? vk_dots(d) : 0;
  out->max_local_bytes = d->local_bytes;
  out->max_group = d->max_group;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// The first allowed memory type with all of these properties; -1 if there is none.
static int memory_type(const vk *d, uint32_t allowed, VkMemoryPropertyFlags want) {
  for (uint32_t i = 0; i < d->memory.memoryTypeCount; i++)
    if (allowed >> i & 1 && (d->memory.memoryTypes[i].propertyFlags & want) == want) return (int)i;
  return -1;
}

static int type_for(const vk *d, uint32_t allowed, bool host) {
  const VkMemoryPropertyFlags own = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                              seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                              cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const VkMemoryPropertyFlags one[] = {own | seen | cached, own | seen, seen | cached, seen},
                              apart[] = {seen | cached, seen}, local[] = {own, 0};
  const VkMemoryPropertyFlags *of = d->unified ? one : host ? apart : local;
  size_t n = d->unified ? COUNT(one) : host ? COUNT(apart) : COUNT(local);
  int type = -1;
  for (size_t i = 0; i < n && type < 0; i++) type = memory_type(d, allowed, of[i]);
  return type;
}

static VkResult bind_memory(const vk *d, uint32_t type, uint64_t size, vk_memory *m) {
  VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                     .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                               .pNext = &flags,
                               .allocationSize = size,
                               .memoryTypeIndex = type};
  VkResult r = d->AllocateMemory(d->device, &info, NULL, &m->memory);
  if (!r) r = d->BindBufferMemory(d->device, m->buffer, m->memory, 0);
  void *at = NULL;
  // memory that is not coherent would need flushes: treated as invisible to the host
  const VkMemoryPropertyFlags seen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  if (!r && (d->memory.memoryTypes[type].propertyFlags & seen) == seen)
    r = d->MapMemory(d->device, m->memory, 0, VK_WHOLE_SIZE, 0, &at);
  m->mapped = at;
  return r;
}

int vk_make(const vk *d, uint64_t size, bool host, vk_memory *out, error *err) {
  char what[80];
  plain_snprintf(what, sizeof what, "%.2f GiB of memory", (double)size / 0x1p30);
  *out = (vk_memory){.size = size};
  if (size > d->max_alloc)
    return error_set(err,
                     "Vulkan: %s gives at most %.2f GiB in one piece, and %.2f GiB are needed; a smaller context (-c) "
                     "or chunk (-ub) needs less",
                     d->name, (double)d->max_alloc / 0x1p30, (double)size / 0x1p30);
  VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                             .size = size ? size : 1,
                             .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
                                      VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
  VkResult r = d->CreateBuffer(d->device, &info, NULL, &out->buffer);
  if (r) { out->buffer = VK_NULL_HANDLE; return vk_failed(d, err, what, r); }
  VkMemoryRequirements need;
  d->GetBufferMemoryRequirements(d->device, out->buffer, &need);
  int type = type_for(d, need.memoryTypeBits, host);
  r = type < 0 ? VK_ERROR_FEATURE_NOT_PRESENT : bind_memory(d, (uint32_t)type, need.size, out);
  if (r) { vk_drop(d, out); return vk_failed(d, err, what, r); }
  out->address = d->GetBufferDeviceAddress(
    d->device, &(VkBufferDeviceAddressInfo){.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                            .buffer = out->buffer});
  return 0;
}

void vk_drop(const vk *d, vk_memory *m) {
  if (m->buffer) d->DestroyBuffer(d->device, m->buffer, NULL);
  if (m->memory) d->FreeMemory(d->device, m->memory, NULL);
  *m = (vk_memory){0};
}

// ---- commands -------------------------------------------------------------------------------------------------------

int vk_begin(vk *d, VkCommandBuffer *out, error *err) {
  VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                      .commandPool = d->pool,
                                      .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                      .commandBufferCount = 1};
  VkCommandBufferBeginInfo once = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                   .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  *out = NULL;
  pthread_mutex_lock(&d->lock);
  VkResult r = d->AllocateCommandBuffers(d->device, &info, out);
  if (!r) r = d->BeginCommandBuffer(*out, &once);
  if (!r) return 0;
  if (*out) d->FreeCommandBuffers(d->device, d->pool, 1, out);
  pthread_mutex_unlock(&d->lock);
  return vk_failed(d, err, "beginning commands", r);
}

// Devices that are only compiled for have no fences.
VkResult vk_run_and_wait(vk *d, VkCommandBuffer c) {
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &c};
  VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  VkResult r = d->fence ? VK_SUCCESS : d->CreateFence(d->device, &fence, NULL, &d->fence);
  if (!r) r = d->QueueSubmit(d->queue, 1, &info, d->fence);
  if (!r) r = d->WaitForFences(d->device, 1, &d->fence, VK_TRUE, UINT64_MAX);
  return r ? r : d->ResetFences(d->device, 1, &d->fence);
}

int vk_end(vk *d, VkCommandBuffer c, error *err) {
  vk_barrier(d, c);
  VkResult r = d->EndCommandBuffer(c);
  if (!r) r = vk_run_and_wait(d, c);
  d->FreeCommandBuffers(d->device, d->pool, 1, &c);
  pthread_mutex_unlock(&d->lock);
  return r ? vk_failed(d, err, "running commands", r) : 0;
}

void vk_barrier(const vk *d, VkCommandBuffer c) {
  const VkPipelineStageFlags ours = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                         .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                                          VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT |
                                          VK_ACCESS_INDIRECT_COMMAND_READ_BIT | VK_ACCESS_HOST_READ_BIT};
  d->CmdPipelineBarrier(c, ours, ours | VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &all, 0,
                        NULL, 0, NULL);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static int check_group(const vk *d, const program *p, error *err) {
  int64_t items = 1;
  for (int i = 0; i < 3; i++) {
    int64_t n = p->local[i] && p->local[i]->op == OP_CONST ? p->local[i]->a : 1;
    if (n > d->max_group_at[i]) items = INT32_MAX;
    items *= n;
  }
  int64_t local = program_group_bytes(p);
  if (items > d->max_group)
    return error_set(err, "Vulkan: %s: work-groups of more than the %d work-items that %s takes", p->name,
                     d->max_group, d->name);
  if (local > d->local_bytes)
    return error_set(err, "Vulkan: %s: %lld bytes of a work-group's memory, and %s has %d", p->name, (long long)local,
                     d->name, d->local_bytes);
  return 0;
}

static void unload_pipeline_of(remote_code *k) { vk_code_free((vk_code *)k); }

vk_code *vk_compile(vk *d, const program *p, int n_bufs, const uint32_t *words, size_t n, error *err) {
  if (check_group(d, p, err)) return NULL;
  VkShaderModuleCreateInfo text = {
    .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = n * sizeof *words, .pCode = words};
  VkShaderModule module = VK_NULL_HANDLE;
  VkResult r = d->CreateShaderModule(d->device, &text, NULL, &module);
  if (r) { vk_failed(d, err, p->name, r); return NULL; }
  vk_code *k = xcalloc(1, sizeof *k);
  *k = (vk_code){{unload_pipeline_of, n_bufs}, d, p, VK_NULL_HANDLE};
  VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                .module = module,
                                                .pName = "main"},
                                      .layout = d->layout};
  r = d->CreateComputePipelines(d->device, d->cache, 1, &info, NULL, &k->pipeline);
  d->DestroyShaderModule(d->device, module, NULL);
  if (!r) return k;
  k->pipeline = VK_NULL_HANDLE;
  vk_code_free(k);
  vk_failed(d, err, p->name, r);
  return NULL;
}

void vk_code_free(vk_code *k) {
  if (!k) return;
  if (k->pipeline) k->d->DestroyPipeline(k->d->device, k->pipeline, NULL);
  free(k);
}

// ---- launching ------------------------------------------------------------------------------------------------------

int vk_shape(const vk *d, const program *p, const int64_t n[3], uint32_t groups[3], error *err) {
  const uint32_t *most = d->max_groups;
  int64_t both = min_i64((int64_t)most[0] * most[1], INT32_MAX);
  for (int i = 0; i < 3; i++) {
    if (n[i] > (!i && render_spreads(p, d->can) ? both : most[i]))
      return error_set(err, "Vulkan: %s: %lld work-groups in dimension %d, and %s takes %u", p->name, (long long)n[i],
                       i, d->name, most[i]);
    groups[i] = (uint32_t)n[i];
  }
  if (groups[0] <= most[0]) return 0;
  groups[1] = (groups[0] - 1) / most[0] + 1;
  groups[0] = (groups[0] - 1) / groups[1] + 1;
  return 0;
}

int vk_groups(const vk_code *k, const int64_t *vars, uint32_t groups[3], error *err) {
  int some = 1;
  int64_t n[3];
  for (int i = 0; i < 3; i++) {
    n[i] = k->p->global[i] ? program_eval(k->p, k->p->global[i], vars) : 1;
    die_if(n[i] < 0, "Vulkan: %s: %lld work-groups", k->p->name, (long long)n[i]);
    some &= n[i] > 0;
  }
  return vk_shape(k->d, k->p, n, groups, err) ? -1 : some;
}

void vk_dispatch(const vk_code *k, VkCommandBuffer c, VkDeviceAddress arguments, const uint32_t groups[3]) {
  const vk *d = k->d;
  d->CmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, k->pipeline);
  d->CmdPushConstants(c, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof arguments, &arguments);
  d->CmdDispatch(c, groups[0], groups[1], groups[2]);
}

enum { SPARE_BYTES = 64 /* after a buffer, as in remote.h */ };

// One launch; at: its buffers on the device, followed by its arguments.
typedef struct one_launch {
  vk_code *k;
  unsigned char *const *bufs;
  size_t *sizes;
  const int64_t *vars;
  int64_t lo, hi;
  vk_memory *at;
} one_launch;

static int fill_launch(const one_launch *l, error *err) {
  const program *p = l->k->p;
  const vk *d = l->k->d;
  vk_memory *last = &l->at[p->n_bufs];
  if (vk_make(d, (uint64_t)vk_n_arguments(p) * 8, true, last, err)) return -1;
  uint64_t *args = (uint64_t *)(void *)last->mapped;
  for (int i = 0; i < p->n_bufs; i++) {
    if (vk_make(d, l->sizes[i] + SPARE_BYTES, true, &l->at[i], err)) return -1;
    if (l->sizes[i]) memcpy(l->at[i].mapped, l->bufs[i], l->sizes[i]);
    *args++ = l->at[i].address;
  }
  for (int i = 0; i < p->n_vars; i++) *args++ = (uint64_t)l->vars[i];
  args[0] = (uint64_t)l->lo;
  args[1] = (uint64_t)l->hi;
  args[2] = p->global[0] ? (uint64_t)program_eval(p, p->global[0], l->vars) : 1;
  return 0;
}

static int run_launch(const one_launch *l, error *err) {
  const program *p = l->k->p;
  uint32_t groups[3];
  VkCommandBuffer c;
  int some = vk_groups(l->k, l->vars, groups, err);
  if (some <= 0) return some;
  if (fill_launch(l, err) || vk_begin(l->k->d, &c, err)) return -1;
  vk_dispatch(l->k, c, l->at[p->n_bufs].address, groups);
  if (vk_end(l->k->d, c, err)) return -1;
  for (int i = 0; i < p->n_bufs; i++)
    if (p->bufs[i].written && l->sizes[i]) memcpy(l->bufs[i], l->at[i].mapped, l->sizes[i]);
  return 0;
}

int vk_launch(vk_code *k, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi,
              error *err) {
  const program *p = k->p;
  size_t *lengths = xcalloc((size_t)p->n_bufs + 1, sizeof *lengths);
  vk_memory *at = xcalloc((size_t)p->n_bufs + 1, sizeof *at);
  for (int i = 0; i < p->n_bufs; i++)
    lengths[i] = sizes ? sizes[i] : (size_t)p->bufs[i].elems * (size_t)dtype_size(p->bufs[i].dt);
  int r = run_launch(&(one_launch){k, bufs, lengths, vars, lo, hi, at}, err);
  for (int i = 0; i <= p->n_bufs; i++) vk_drop(k->d, &at[i]);
  free(lengths);
  free(at);
  return r;
}
#endif
