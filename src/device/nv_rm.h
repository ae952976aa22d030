// NVIDIA's kernel driver as files and ioctls (DEV=NV): the files, objects that it makes, and memory that both the GPU
// and this process name by the same addresses.
//
// All of the GPU's addresses come from one range of this process that is reserved and holds nothing (NV_SPACE_*).
// Memory that the process is to see is mapped there at its own address; the rest is the GPU's alone, and touching it is
// a fault.
#ifndef WEFT_DEVICE_NV_RM_H
#define WEFT_DEVICE_NV_RM_H
#include "base/base.h"
#include "device/nv_abi.h"

// What the GPU can be told of: rings, descriptors and semaphores have to lie below 1 TiB (40 bits).
#define NV_SPACE_FROM 0x1000000000ull
#define NV_SPACE_BYTES 0x8000000000ull

// What differs between the driver's versions, from the one on that is named.
typedef struct nv_version_facts { int major; uint32_t schedule_bytes, name_bytes; bool uvm_590; } nv_version_facts;

enum nv_where {
  NV_VRAM,
  NV_VRAM_SEEN,                    // mapped for this process, which should only write there
  NV_HOST                          // of this machine, mapped for both
};
typedef struct nv_memory { uint64_t at, size; uint32_t handle; enum nv_where where; } nv_memory;
typedef struct nv_hole { uint64_t at, size; } nv_hole;

typedef struct nv_rm {
  int control, card, uvm, uvm_mm;  // files; -1: not open
  char version[64];
  const nv_version_facts *facts;
  uint32_t client, device, subdevice;
  uint32_t minor, id;              // of the GPU: of its file, and the driver's
  nv_uuid uuid;
  VEC(nv_memory) pieces;
  VEC(nv_hole) holes;              // of the reserved range
  bool reserved;
} nv_rm;

// Opens the files, asks for the version, takes the first GPU. -1 and a sentence; nv_rm_close either way.
int nv_rm_open(nv_rm *rm, error *err);
void nv_rm_close(nv_rm *rm);
// -1, with what the driver said (one of its numbers)
int nv_rm_failed(error *err, const char *what, uint32_t status);
// params: the class's structure, with all that later versions may have added as zeros; NULL: none
int nv_rm_make(const nv_rm *rm, uint32_t parent, uint32_t class, void *params, uint32_t *out, const char *what,
               error *err);
void nv_rm_drop(const nv_rm *rm, uint32_t parent, uint32_t object);
int nv_rm_control(const nv_rm *rm, uint32_t object, uint32_t command, void *params, size_t n, const char *what,
                  error *err);
int nv_rm_uvm(const nv_rm *rm, unsigned long command, void *params, const uint32_t *status, const char *what,
              error *err);
// Maps an object's bytes; where: at that address, or NULL. NULL and why not.
void *nv_rm_map(const nv_rm *rm, uint32_t parent, uint32_t object, uint64_t size, void *where, bool host,
                uint32_t flags, error *err);

// From here on memory can be made: the GPU's addresses are those of the space.
int nv_rm_use_space(nv_rm *rm, uint32_t space, error *err);
// Bytes of what was there. 0 and err: there is none. one_piece: side by side in the GPU's memory, too.
uint64_t nv_rm_alloc(nv_rm *rm, uint64_t size, enum nv_where where, bool one_piece, error *err);
void nv_rm_free(nv_rm *rm, uint64_t at);
uint32_t nv_rm_handle(const nv_rm *rm, uint64_t at);       // of the memory that begins there
bool nv_rm_is_host(const nv_rm *rm, uint64_t at);          // whether that is of this machine
// So many addresses with nothing there; 0: there are no more.
uint64_t nv_rm_addresses(nv_rm *rm, uint64_t size, uint64_t alignment);
#endif
