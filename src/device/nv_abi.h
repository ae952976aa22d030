// The interface of NVIDIA's kernel driver (DEV=NV): numbers and structures, declared from the published sources of its
// open kernel modules, so that building needs no NVIDIA headers. Each definition names the header that it describes;
// those without a folder are in src/common/sdk/nvidia/inc. Names are Weft's own.
//
// The driver does not guarantee a stable interface. Differences between the versions that Weft knows are in nv_versions
// (nv_rm.c); other versions are refused.
#ifndef WEFT_DEVICE_NV_ABI_H
#define WEFT_DEVICE_NV_ABI_H
#include <stdint.h>

// ---- /dev/nvidiactl and /dev/nvidia<n> ------------------------------------------------------------------------------

// kernel-open/common/inc/nv-ioctl-numbers.h, src/nvidia/arch/nvalloc/unix/include/nv_escape.h. All are _IOWR('F', ...).
enum nv_escape {
  NV_FREE = 0x29,
  NV_CONTROL = 0x2a,
  NV_ALLOC = 0x2b,
  NV_MAP = 0x4e,
  NV_CARDS = 200,
  NV_REGISTER_FILE = 201,
  NV_VERSION = 210
};
enum { NV_MAGIC = 'F', NV_MOST_CARDS = 32 };

// kernel-open/common/inc/nv-ioctl.h
typedef struct nv_version_query { uint32_t command, reply; char text[64]; } nv_version_query;
enum { NV_VERSION_ASK = '2', NV_VERSION_KNOWN = 1 };
typedef struct nv_card {
  uint8_t valid;
  uint32_t domain;
  uint8_t bus, slot, function;
  uint16_t vendor, model;
  uint32_t id;
  uint16_t interrupt;
  uint64_t registers, registers_size, memory, memory_size;
  uint32_t minor;                  // number of its device file
  uint8_t name[10];
} nv_card;
typedef struct nv_register_file { int32_t control; } nv_register_file;

// nvos.h: NVOS00, NVOS21, NVOS54, NVOS33. status: the driver's error code, 0 is success.
typedef struct nv_free { uint32_t client, parent, object, status; } nv_free;
typedef struct nv_alloc {
  uint32_t client, parent, object, class;
  uint64_t params;
  uint32_t params_size, status;    // size 0: the size of the class's structure
} nv_alloc;
typedef struct nv_control {
  uint32_t client, object, command, flags;
  uint64_t params;
  uint32_t params_size, status;
} nv_control;
// with the file that is then mapped, src/nvidia/arch/nvalloc/unix/include/nv-unix-nvos-params-wrappers.h
typedef struct nv_map {
  uint32_t client, device, memory;
  uint64_t offset, length, address;
  uint32_t status, flags;
  int32_t file;
} nv_map;
enum { NV_MAP_WRITE_COMBINED = 2 << 23 };        // in flags: bits 25:23

// class/cl0080.h, cl2080.h
typedef struct nv_device_params {
  uint32_t number, share_client, target_client, target_device, flags;
  uint64_t space_size, space_from, space_to;
  uint32_t space_mode;
} nv_device_params;
enum { NV_SPACES_OPTIONAL = 0 };
typedef struct nv_subdevice_params { uint32_t number; } nv_subdevice_params;

// nvos.h: NV_VASPACE_ALLOCATION_PARAMETERS
typedef struct nv_space_params {
  uint32_t index, flags;
  uint64_t size, from, to;
  uint32_t big_page;
  uint64_t base;
  uint32_t pasid;
} nv_space_params;
enum { NV_SPACE_EXTERNAL = 1 << 3, NV_SPACE_FAULTS = 1 << 6 };

// nvos.h: NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS, NV_CTXSHARE_ALLOCATION_PARAMETERS
typedef struct nv_group_params { uint32_t error, ecc_error, space, engine; uint8_t for_plugin; } nv_group_params;
typedef struct nv_context_params { uint32_t space, flags, number; } nv_context_params;
enum { NV_ENGINE_GRAPHICS = 1 /* class/cl2080_notification.h */, NV_CONTEXT_ASYNC = 1 };

// alloc/alloc_channel.h: the fields of NV_CHANNEL_ALLOC_PARAMS that are used. The rest is reserved and zero.
typedef struct nv_channel_params {
  uint32_t error, buffer;
  uint64_t ring;
  uint32_t entries, flags, context, space, registers[8];
  uint64_t registers_offset[8];
  uint32_t engine, id;
  uint8_t reserved[376];
} nv_channel_params;

// nvos.h: NV_MEMORY_ALLOCATION_PARAMS
typedef struct nv_memory_params {
  uint32_t owner, type, flags, width, height;
  int32_t pitch;
  uint32_t attr, attr2, format, compression, zcull;
  uint64_t range_from, range_to, size, alignment, offset, limit, address;
  uint32_t tags, space, internal, tag;
  int32_t node;
} nv_memory_params;
enum { NV_TYPE_IMAGE = 0, NV_TYPE_NOTIFIER = 13, NV_FORMAT_PLAIN = 6 };
// in flags: NVOS32_ALLOC_FLAGS_IGNORE_BANK_PLACEMENT, _ALIGNMENT_FORCE, _MEMORY_HANDLE_PROVIDED, _MAP_NOT_REQUIRED,
// _PERSISTENT_VIDMEM
enum {
  NV_MEMORY_ANY_BANK = 0x1,
  NV_MEMORY_ALIGNED = 0x100,
  NV_MEMORY_HAS_HANDLE = 0x4000,
  NV_MEMORY_UNMAPPED = 0x8000,
  NV_MEMORY_PERSISTENT = 0x10000
};
// in attr: page size 24:23, location 26:25, physicality 28:27, coherency 31:29
#define NV_ATTR_HUGE (3u << 23)
#define NV_ATTR_HOST (1u << 25)
#define NV_ATTR_ONE_PIECE (2u << 27)
#define NV_ATTR_PIECES (3u << 27)
#define NV_ATTR_WRITE_BACK (5u << 29)
// in attr2: zero-bandwidth clears 1:0, GPU cache 3:2, huge pages 21:20
#define NV_ATTR2_PLAIN 1u
#define NV_ATTR2_CACHED (1u << 2)
#define NV_ATTR2_UNCACHED (2u << 2)
#define NV_ATTR2_2MB (1u << 20)

// Commands of NV_CONTROL: ctrl/ctrl0000/ctrl0000gpu.h, ctrl0080/ctrl0080gpu.h, ctrl2080/ctrl2080{gpu,gr,fb}.h,
// ctrla06c.h, ctrlc36f.h
enum nv_command {
  NV_GET_GPU = 0x205,
  NV_GET_CLASSES = 0x800201,
  NV_GET_NAME = 0x20800110,
  NV_GET_UUID = 0x2080014a,
  NV_GET_GR = 0x20801201,
  NV_GET_FB = 0x20801301
};
#define NV_SCHEDULE 0xa06c0101u
#define NV_GET_TOKEN 0xc36f0108u
typedef struct nv_get_gpu {
  uint32_t id, flags, device, subdevice, sli, board, instance;
  int32_t node;
} nv_get_gpu;
typedef struct nv_get_classes { uint32_t n; uint64_t at; } nv_get_classes;
typedef struct nv_get_uuid { uint32_t index, flags, length; uint8_t data[256]; } nv_get_uuid;
enum { NV_UUID_BINARY = 2 };
typedef struct nv_fact { uint32_t index, value; } nv_fact;
typedef struct nv_get_gr { uint32_t n; uint64_t at; uint64_t route[2]; } nv_get_gr;
typedef struct nv_get_fb { uint32_t n; uint64_t at; } nv_get_fb;
// ctrl0080/ctrl0080gr.h: maximum number of units in this kind of GPU
enum nv_gr_fact {
  NV_GR_SM_VERSION = 0x0c,
  NV_GR_WARPS = 0x0d /* of an SM */,
  NV_GR_GPCS = 0x14,
  NV_GR_TPCS = 0x17 /* of a GPC */,
  NV_GR_SMS = 0x20 /* of a TPC */
};
enum nv_fb_fact { NV_FB_TOTAL = 0x08 /* KiB */, NV_FB_FREE = 0x16 /* KiB */, NV_FB_L2 = 0x1b /* bytes */ };
typedef struct nv_schedule { uint8_t enable, skip_submit, skip_enable; } nv_schedule;
typedef struct nv_token { uint32_t token; } nv_token;

// ---- /dev/nvidia-uvm ------------------------------------------------------------------------------------------------

// kernel-open/nvidia-uvm/uvm_ioctl.h, uvm_linux_ioctl.h: plain numbers. Two structures became shorter with version 590;
// the older versions have no number in their names.
enum {
  UVM_REGISTER_SPACE = 25,
  UVM_REGISTER_CHANNEL = 27,
  UVM_UNREGISTER_CHANNEL = 28,
  UVM_MAP_EXTERNAL = 33,
  UVM_FREE = 34,
  UVM_REGISTER_GPU = 37,
  UVM_CREATE_EXTERNAL = 73,
  UVM_SHARE_MM = 75,
  UVM_INITIALIZE = 0x30000001
};
typedef struct nv_uuid { uint8_t at[16]; } nv_uuid;
typedef struct uvm_initialize { uint64_t flags; uint32_t status; } uvm_initialize;
typedef struct uvm_share_mm { int32_t file; uint32_t status; } uvm_share_mm;
typedef struct uvm_register_gpu {
  nv_uuid gpu;
  uint8_t numa;
  int32_t node, control;
  uint32_t client, partition, status;
} uvm_register_gpu;
typedef struct uvm_register_space {
  nv_uuid gpu;
  int32_t control;
  uint32_t client, space, status;
} uvm_register_space;
typedef struct uvm_register_channel {
  nv_uuid gpu;
  int32_t control;
  uint32_t client, channel;
  uint64_t base, length;
  uint32_t status;
} uvm_register_channel;
typedef struct uvm_unregister_channel { nv_uuid gpu; uint32_t client, channel, status; } uvm_unregister_channel;
typedef struct uvm_unregister_channel_590 { uint32_t client, channel, status; } uvm_unregister_channel_590;
typedef struct uvm_create_external { uint64_t base, length; uint32_t status; } uvm_create_external;
// kernel-open/nvidia-uvm/uvm_types.h
typedef struct uvm_attributes { nv_uuid gpu; uint32_t mapping, caching, format, bits, compression; } uvm_attributes;
enum { UVM_READ_WRITE_ATOMIC = 1 };
typedef struct uvm_map_external {
  uint64_t base, length, offset;
  uvm_attributes gpus[256];
  uint64_t n;
  int32_t control;
  uint32_t client, memory, status;
} uvm_map_external;
typedef struct uvm_free { uint64_t base, length; uint32_t status; } uvm_free;
typedef struct uvm_free_590 { uint64_t base; uint32_t status; } uvm_free_590;

// ---- classes of objects ---------------------------------------------------------------------------------------------

// nvos.h (NV01_ROOT_CLIENT), class/cl0080.h, cl2080.h, cl003e.h, cl0040.h, cl90f1.h, cla06c.h, cl9067.h; the rest in
// headers named after the numbers
enum nv_class {
  NV_CLASS_CLIENT = 0x41,
  NV_CLASS_HOST_MEMORY = 0x3e,
  NV_CLASS_MEMORY = 0x40,
  NV_CLASS_DEVICE = 0x80,
  NV_CLASS_SUBDEVICE = 0x2080,
  NV_CLASS_CONTEXT = 0x9067,
  NV_CLASS_SPACE = 0x90f1,
  NV_CLASS_GROUP = 0xa06c,
  NV_TURING_DOORBELL = 0xc461,
  NV_HOPPER_DOORBELL = 0xc661,
  NV_AMPERE_RING = 0xc56f,
  NV_HOPPER_RING = 0xc86f,
  NV_AMPERE_A_COMPUTE = 0xc6c0,
  NV_AMPERE_B_COMPUTE = 0xc7c0,
  NV_ADA_COMPUTE = 0xc9c0,
  NV_HOPPER_COMPUTE = 0xcbc0,
  NV_AMPERE_A_COPY = 0xc6b5,
  NV_AMPERE_B_COPY = 0xc7b5,
  NV_HOPPER_COPY = 0xc8b5
};

// The driver's notice about a failed channel: nvtypes.h, NvNotification. info is an Xid (nverror.h).
typedef struct nv_notice { uint32_t time[2], info; uint16_t more, status; } nv_notice;

// class/clc56f.h: registers of a channel; class/clc361.h: the doorbell page
enum { NV_REGISTER_PUT = 0x8c, NV_REGISTERS_BYTES = 0x200, NV_DOORBELL = 0x90, NV_DOORBELL_BYTES = 0x10000 };
#endif
