// Vulkan as a device (DEV=VK): kernels from the SPIR-V renderer, run by the installed driver.
//
// The loader, libvulkan.so.1, is opened at the first vk_open, not linked. A build without Vulkan's headers has these
// functions too; they return an error. Devices need Vulkan 1.2, buffer addresses, and integers of 8, 16 and 64 bits,
// also in memory; doubles and float controls are used if available.
#ifndef WEFT_DEVICE_VULKAN_H
#define WEFT_DEVICE_VULKAN_H
#include "base/str.h"
#include "codegen/program.h"
#include "render/render.h"

typedef struct vk vk;                            // a device with its queue; may be used from several threads
typedef struct vk_code vk_code;                  // a compiled kernel

// which: a number in the driver's order, or a part of a device's name; NULL or "": the best one (GPUs before
// processors). Returns -1 and a message: what to install, what the device lacks, or what failed.
int vk_open(const char *which, vk **out, error *err);
void vk_close(vk *d);                            // after all its kernels are freed; NULL is fine
const char *vk_name(const vk *d);                // "driver: device", for people
void vk_target(const vk *d, target *out);        // capabilities for codegen
descriptor_set vk_dots(const vk *d);             // all supported dot products, even if the device executes them slowly
render_options vk_render_options(const vk *d);   // options for the renderer
int vk_complaints(const vk *d);                  // messages of the validation layer (VK_VALIDATE=1) so far
struct device;
// DEV=VK: vulkan_plan.c. which: as for vk_open
int vk_start(struct device *d, error *err);
// all devices of all drivers, the one that vk_open uses first; -1 and the reason if there is none
int vk_list(str *out, error *err);

// Loads a kernel from p's words (from render_spirv), with n_bufs buffers. NULL and err if the driver rejects it. p must
// outlive the kernel: a launch evaluates its sizes.
vk_code *vk_compile(vk *d, const program *p, int n_bufs, const uint32_t *words, size_t n, error *err);
void vk_code_free(vk_code *k);                   // NULL is fine

// Runs the kernel and waits. bufs: p->n_bufs pointers to host memory; sizes: their bytes, or NULL for those of p; vars:
// p->n_vars values. lo, hi: tiles, for a program with a tile loop; one with work-groups runs all of them.
int vk_launch(vk_code *k, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi,
              error *err);
#endif
