// What NVIDIA's kernel driver takes, against its published sources: sizes and places that a compiler gave for the
// headers of versions 550.90.12, 565.77, 570.86.16, 575.64.05, 580.95.05, 590.48.01 and 595.45.04
// (open-gpu-kernel-modules), and the numbers of commands and classes there. Where versions differ the row says which.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "device/nv_abi.h"

// name there, size there, ours
#define SIZES(S) \
  S("nv_ioctl_rm_api_version_t", 72, nv_version_query) \
  S("nv_ioctl_card_info_t", 72, nv_card) \
  S("nv_ioctl_register_fd_t", 4, nv_register_file) \
  S("NVOS00_PARAMETERS", 16, nv_free) \
  S("NVOS21_PARAMETERS", 32, nv_alloc) \
  S("NVOS54_PARAMETERS", 32, nv_control) \
  S("nv_ioctl_nvos33_parameters_with_fd", 56, nv_map) \
  S("NV0080_ALLOC_PARAMETERS", 56, nv_device_params) \
  S("NV2080_ALLOC_PARAMETERS", 4, nv_subdevice_params) \
  S("NV_VASPACE_ALLOCATION_PARAMETERS", 56, nv_space_params) \
  S("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", 20, nv_group_params) \
  S("NV_CTXSHARE_ALLOCATION_PARAMETERS", 12, nv_context_params) \
  S("NV_MEMORY_ALLOCATION_PARAMS", 128, nv_memory_params) \
  S("NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS", 32, nv_get_gpu) \
  S("NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS", 16, nv_get_classes) \
  S("NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", 268, nv_get_uuid) \
  S("NV2080_CTRL_GR_GET_INFO_PARAMS", 32, nv_get_gr) \
  S("NV2080_CTRL_FB_GET_INFO_PARAMS", 16, nv_get_fb) \
  S("NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS (from 575 on; 2 before)", 3, nv_schedule) \
  S("NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS", 4, nv_token) \
  S("NvNotification", 16, nv_notice) \
  S("UVM_INITIALIZE_PARAMS", 16, uvm_initialize) \
  S("UVM_MM_INITIALIZE_PARAMS", 8, uvm_share_mm) \
  S("UVM_REGISTER_GPU_PARAMS", 40, uvm_register_gpu) \
  S("UVM_REGISTER_GPU_VASPACE_PARAMS", 32, uvm_register_space) \
  S("UVM_REGISTER_CHANNEL_PARAMS", 56, uvm_register_channel) \
  S("UVM_UNREGISTER_CHANNEL_PARAMS (up to 580)", 28, uvm_unregister_channel) \
  S("UVM_UNREGISTER_CHANNEL_PARAMS (from 590 on)", 12, uvm_unregister_channel_590) \
  S("UVM_CREATE_EXTERNAL_RANGE_PARAMS", 24, uvm_create_external) \
  S("UvmGpuMappingAttributes", 36, uvm_attributes) \
  S("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", 9264, uvm_map_external) \
  S("UVM_FREE_PARAMS (up to 580)", 24, uvm_free) \
  S("UVM_FREE_PARAMS (from 590 on)", 16, uvm_free_590)

#define PLACES(P) \
  P("nv_ioctl_card_info_t.gpu_id", 16, nv_card, id) \
  P("nv_ioctl_card_info_t.minor_number", 56, nv_card, minor) \
  P("nv_ioctl_nvos33_parameters_with_fd.fd", 48, nv_map, file) \
  P("NV0080_ALLOC_PARAMETERS.vaMode", 48, nv_device_params, space_mode) \
  P("NV_VASPACE_ALLOCATION_PARAMETERS.vaBase", 40, nv_space_params, base) \
  P("NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS.engineType", 12, nv_group_params, engine) \
  P("NV_CHANNEL_ALLOC_PARAMS.gpFifoOffset", 8, nv_channel_params, ring) \
  P("NV_CHANNEL_ALLOC_PARAMS.gpFifoEntries", 16, nv_channel_params, entries) \
  P("NV_CHANNEL_ALLOC_PARAMS.flags", 20, nv_channel_params, flags) \
  P("NV_CHANNEL_ALLOC_PARAMS.hContextShare", 24, nv_channel_params, context) \
  P("NV_CHANNEL_ALLOC_PARAMS.hVASpace", 28, nv_channel_params, space) \
  P("NV_CHANNEL_ALLOC_PARAMS.hUserdMemory", 32, nv_channel_params, registers) \
  P("NV_CHANNEL_ALLOC_PARAMS.userdOffset", 64, nv_channel_params, registers_offset) \
  P("NV_CHANNEL_ALLOC_PARAMS.engineType", 128, nv_channel_params, engine) \
  P("NV_CHANNEL_ALLOC_PARAMS.cid", 132, nv_channel_params, id) \
  P("NV_MEMORY_ALLOCATION_PARAMS.attr", 24, nv_memory_params, attr) \
  P("NV_MEMORY_ALLOCATION_PARAMS.size", 64, nv_memory_params, size) \
  P("NV_MEMORY_ALLOCATION_PARAMS.limit", 88, nv_memory_params, limit) \
  P("NV_MEMORY_ALLOCATION_PARAMS.hVASpace", 108, nv_memory_params, space) \
  P("NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS.deviceInstance", 8, nv_get_gpu, device) \
  P("UVM_REGISTER_GPU_PARAMS.rmCtrlFd", 24, uvm_register_gpu, control) \
  P("UVM_REGISTER_GPU_PARAMS.rmStatus", 36, uvm_register_gpu, status) \
  P("UVM_REGISTER_GPU_VASPACE_PARAMS.rmStatus", 28, uvm_register_space, status) \
  P("UVM_REGISTER_CHANNEL_PARAMS.base", 32, uvm_register_channel, base) \
  P("UVM_REGISTER_CHANNEL_PARAMS.rmStatus", 48, uvm_register_channel, status) \
  P("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.perGpuAttributes", 24, uvm_map_external, gpus) \
  P("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.gpuAttributesCount", 9240, uvm_map_external, n) \
  P("UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.rmStatus", 9260, uvm_map_external, status)

#define NUMBERS(N) \
  N("NV_ESC_RM_FREE", 0x29, NV_FREE) \
  N("NV_ESC_RM_CONTROL", 0x2a, NV_CONTROL) \
  N("NV_ESC_RM_ALLOC", 0x2b, NV_ALLOC) \
  N("NV_ESC_RM_MAP_MEMORY", 0x4e, NV_MAP) \
  N("NV_ESC_CARD_INFO", 200, NV_CARDS) \
  N("NV_ESC_REGISTER_FD", 201, NV_REGISTER_FILE) \
  N("NV_ESC_CHECK_VERSION_STR", 210, NV_VERSION) \
  N("NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", 0x205, NV_GET_GPU) \
  N("NV0080_CTRL_CMD_GPU_GET_CLASSLIST", 0x800201, NV_GET_CLASSES) \
  N("NV2080_CTRL_CMD_GPU_GET_GID_INFO", 0x2080014a, NV_GET_UUID) \
  N("NV2080_CTRL_CMD_GPU_GET_NAME_STRING", 0x20800110, NV_GET_NAME) \
  N("NV2080_CTRL_CMD_GR_GET_INFO", 0x20801201, NV_GET_GR) \
  N("NV2080_CTRL_CMD_FB_GET_INFO", 0x20801301, NV_GET_FB) \
  N("NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", 0xa06c0101u, NV_SCHEDULE) \
  N("NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", 0xc36f0108u, NV_GET_TOKEN) \
  N("UVM_REGISTER_GPU_VASPACE", 0x19, UVM_REGISTER_SPACE) \
  N("UVM_REGISTER_CHANNEL", 0x1b, UVM_REGISTER_CHANNEL) \
  N("UVM_UNREGISTER_CHANNEL", 0x1c, UVM_UNREGISTER_CHANNEL) \
  N("UVM_MAP_EXTERNAL_ALLOCATION", 0x21, UVM_MAP_EXTERNAL) \
  N("UVM_FREE", 0x22, UVM_FREE) \
  N("UVM_REGISTER_GPU", 0x25, UVM_REGISTER_GPU) \
  N("UVM_CREATE_EXTERNAL_RANGE", 0x49, UVM_CREATE_EXTERNAL) \
  N("UVM_MM_INITIALIZE", 0x4b, UVM_SHARE_MM) \
  N("UVM_INITIALIZE", 0x30000001, UVM_INITIALIZE) \
  N("NV01_ROOT_CLIENT", 0x41, NV_CLASS_CLIENT) \
  N("NV01_MEMORY_SYSTEM", 0x3e, NV_CLASS_HOST_MEMORY) \
  N("NV01_MEMORY_LOCAL_USER", 0x40, NV_CLASS_MEMORY) \
  N("NV01_DEVICE_0", 0x80, NV_CLASS_DEVICE) \
  N("NV20_SUBDEVICE_0", 0x2080, NV_CLASS_SUBDEVICE) \
  N("FERMI_CONTEXT_SHARE_A", 0x9067, NV_CLASS_CONTEXT) \
  N("FERMI_VASPACE_A", 0x90f1, NV_CLASS_SPACE) \
  N("KEPLER_CHANNEL_GROUP_A", 0xa06c, NV_CLASS_GROUP) \
  N("TURING_USERMODE_A", 0xc461, NV_TURING_DOORBELL) \
  N("HOPPER_USERMODE_A", 0xc661, NV_HOPPER_DOORBELL) \
  N("AMPERE_CHANNEL_GPFIFO_A", 0xc56f, NV_AMPERE_RING) \
  N("HOPPER_CHANNEL_GPFIFO_A", 0xc86f, NV_HOPPER_RING) \
  N("AMPERE_COMPUTE_A", 0xc6c0, NV_AMPERE_A_COMPUTE) \
  N("AMPERE_COMPUTE_B", 0xc7c0, NV_AMPERE_B_COMPUTE) \
  N("ADA_COMPUTE_A", 0xc9c0, NV_ADA_COMPUTE) \
  N("HOPPER_COMPUTE_A", 0xcbc0, NV_HOPPER_COMPUTE) \
  N("AMPERE_DMA_COPY_A", 0xc6b5, NV_AMPERE_A_COPY) \
  N("AMPERE_DMA_COPY_B", 0xc7b5, NV_AMPERE_B_COPY) \
  N("HOPPER_DMA_COPY_A", 0xc8b5, NV_HOPPER_COPY) \
  N("AmpereAControlGPFifo.GPPut", 0x8c, NV_REGISTER_PUT) \
  N("NVC361_NOTIFY_CHANNEL_PENDING", 0x90, NV_DOORBELL) \
  N("NV2080_ENGINE_TYPE_GRAPHICS", 1, NV_ENGINE_GRAPHICS)

static const struct { const char *name; size_t there, ours; } rows[] = {
#define S(name, size, type) {name, size, sizeof(type)},
#define P(name, at, type, member) {name, at, offsetof(type, member)},
#define N(name, number, value) {name, number, value},
  SIZES(S) PLACES(P) NUMBERS(N)
};

static void structures_are_the_drivers(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].there != rows[i].ours)
      fail_msg("%s is %zu, and ours %zu", rows[i].name, rows[i].there, rows[i].ours);
  // the largest that NV_CHANNEL_ALLOC_PARAMS has been, and room for what comes
  assert_true(sizeof(nv_channel_params) >= 368 + 128);
}

// Bits of flags, each by the place that nvos.h gives.
static void flags_are_the_drivers(void **state) {
  (void)state;
  assert_int_equal(NV_ATTR_HUGE, 3u << 23);                  // NVOS32_ATTR_PAGE_SIZE_HUGE, 24:23
  assert_int_equal(NV_ATTR_HOST, 1u << 25);                  // NVOS32_ATTR_LOCATION_PCI, 26:25
  assert_int_equal(NV_ATTR_ONE_PIECE, 2u << 27);             // NVOS32_ATTR_PHYSICALITY_CONTIGUOUS, 28:27
  assert_int_equal(NV_ATTR_PIECES, 3u << 27);                // _ALLOW_NONCONTIGUOUS
  assert_int_equal(NV_ATTR_WRITE_BACK, 5u << 29);            // NVOS32_ATTR_COHERENCY_WRITE_BACK, 31:29
  assert_int_equal(NV_ATTR2_PLAIN, 1);                       // NVOS32_ATTR2_ZBC_PREFER_NO_ZBC, 1:0
  assert_int_equal(NV_ATTR2_CACHED, 1 << 2);                 // NVOS32_ATTR2_GPU_CACHEABLE_YES, 3:2
  assert_int_equal(NV_ATTR2_UNCACHED, 2 << 2);
  assert_int_equal(NV_ATTR2_2MB, 1 << 20);                   // NVOS32_ATTR2_PAGE_SIZE_HUGE_2MB, 21:20
  assert_int_equal(NV_MAP_WRITE_COMBINED, 2 << 23);          // NVOS33_FLAGS_CACHING_TYPE_WRITECOMBINED, 25:23
  assert_int_equal(NV_SPACE_EXTERNAL, 1 << 3);               // NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED
  assert_int_equal(NV_SPACE_FAULTS, 1 << 6);                 // _ENABLE_PAGE_FAULTING
  assert_int_equal(NV_MEMORY_ANY_BANK, 0x1);                 // NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT
  assert_int_equal(NV_MEMORY_ALIGNED, 0x100);                // _ALIGNMENT_FORCE
  assert_int_equal(NV_MEMORY_HAS_HANDLE, 0x4000);            // _MEMORY_HANDLE_PROVIDED
  assert_int_equal(NV_MEMORY_UNMAPPED, 0x8000);              // _MAP_NOT_REQUIRED
  assert_int_equal(NV_MEMORY_PERSISTENT, 0x10000);           // _PERSISTENT_VIDMEM
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(structures_are_the_drivers),
                                     cmocka_unit_test(flags_are_the_drivers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
