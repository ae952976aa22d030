// Vulkan as a device (DEV=VK): kernels from the SPIR-V renderer, run by whatever driver is installed.
//
// The loader, libvulkan.so.1, is opened when vk_open is first called and not linked. A Weft that was built without
// Vulkan's headers has these functions, too: they say so. Devices need Vulkan 1.2, addresses of buffers, and integers
// of 8, 16 and 64 bits, in memory as well; doubles and float controls are used if they are there.
#ifndef WEFT_DEVICE_VULKAN_H
#define WEFT_DEVICE_VULKAN_H
#include "base/str.h"
#include "codegen/program.h"
#include "render/render.h"

typedef struct vk vk;                            // a device with its queue; may be used from several threads
typedef struct vk_code vk_code;                  // a compiled kernel

// which: a number in the driver's order, or a part of a device's name; NULL or "": the best one (GPUs before
// processors). -1 and a message that says what to install, what the device lacks, or what failed.
int vk_open(const char *which, vk **out, error *err);
void vk_close(vk *d);                            // after all its kernels are freed; NULL is fine
const char *vk_name(const vk *d);                // "driver: device", for people
void vk_target(const vk *d, target *out);        // what codegen may ask of it
descriptor_set vk_dots(const vk *d);             // all dot products that it takes, also where it is slow at them
render_options vk_render_options(const vk *d);   // and what the renderer may
int vk_complaints(const vk *d);                  // messages of the validation layer (VK_VALIDATE=1) so far
struct device;
// DEV=VK: vulkan_plan.c. which: as for vk_open
int vk_start(struct device *d, error *err);
// all devices of all drivers, the one that vk_open takes first; -1: there is none, and why
int vk_list(str *out, error *err);

// A kernel of p's words (from render_spirv), which takes n_bufs buffers. NULL and err where the driver refuses them. p
// must outlive the kernel: a launch evaluates its sizes.
vk_code *vk_compile(vk *d, const program *p, int n_bufs, const uint32_t *words, size_t n, error *err);
void vk_code_free(vk_code *k);                   // NULL is fine

// Runs the kernel and waits for it. bufs: p->n_bufs pointers to host memory; sizes: their bytes, or NULL for what p
// says; vars: p->n_vars values. lo, hi: tiles, for a program with a tile loop; one with work-groups runs all of them.
int vk_launch(vk_code *k, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi,
              error *err);
#endif
