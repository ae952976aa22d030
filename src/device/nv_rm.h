// NVIDIA's kernel driver as files and ioctls (DEV=NV): device files, driver objects, and memory with equal addresses
// for the GPU and this process.
//
// All GPU addresses are from one reserved range of this process without access (NV_SPACE_*). Memory that the process
// uses is mapped there at its own address; other memory belongs to the GPU only, and touching it is a fault.
#ifndef WEFT_DEVICE_NV_RM_H
#define WEFT_DEVICE_NV_RM_H
#include "base/base.h"
#include "device/nv_abi.h"

// Rings, descriptors and semaphores must be below 1 TiB (40 bits).
#define NV_SPACE_FROM 0x1000000000ull
#define NV_SPACE_BYTES 0x8000000000ull

// Differences between driver versions, from version `major` on.
typedef struct nv_version_facts { int major; uint32_t schedule_bytes, name_bytes; bool uvm_590; } nv_version_facts;

enum nv_where {
  NV_VRAM,
  NV_VRAM_SEEN,                    // mapped for this process, which should only write
  NV_HOST                          // host memory, mapped for both
};
typedef struct nv_memory { uint64_t at, size; uint32_t handle; enum nv_where where; } nv_memory;
typedef struct nv_hole { uint64_t at, size; } nv_hole;

typedef struct nv_rm {
  int control, card, uvm, uvm_mm;  // descriptors; -1: not open
  char version[64];
  const nv_version_facts *facts;
  uint32_t client, device, subdevice;
  uint32_t minor, id;              // of the GPU: number of its device file, driver's id
  nv_uuid uuid;
  VEC(nv_memory) pieces;
  VEC(nv_hole) holes;              // in the reserved range
  bool reserved;
} nv_rm;

// Opens the files, checks the version, selects the first GPU. Returns -1 and a message; call nv_rm_close in either
// case.
int nv_rm_open(nv_rm *rm, error *err);
void nv_rm_close(nv_rm *rm);
// -1, with a message for the driver's status
int nv_rm_failed(error *err, const char *what, uint32_t status);
// params: the class's structure, zero-filled beyond the known fields; NULL: none
int nv_rm_make(const nv_rm *rm, uint32_t parent, uint32_t class, void *params, uint32_t *out, const char *what,
               error *err);
void nv_rm_drop(const nv_rm *rm, uint32_t parent, uint32_t object);
int nv_rm_control(const nv_rm *rm, uint32_t object, uint32_t command, void *params, size_t n, const char *what,
                  error *err);
int nv_rm_uvm(const nv_rm *rm, unsigned long command, void *params, const uint32_t *status, const char *what,
              error *err);
// Maps an object's bytes at address `where`, or anywhere if NULL. NULL and the reason on failure.
void *nv_rm_map(const nv_rm *rm, uint32_t parent, uint32_t object, uint64_t size, void *where, bool host,
                uint32_t flags, error *err);

// After this, memory can be allocated in the address space.
int nv_rm_use_space(nv_rm *rm, uint32_t space, error *err);
// Allocates uninitialised memory; 0 and err on failure. one_piece: physically contiguous.
uint64_t nv_rm_alloc(nv_rm *rm, uint64_t size, enum nv_where where, bool one_piece, error *err);
void nv_rm_free(nv_rm *rm, uint64_t at);
uint32_t nv_rm_handle(const nv_rm *rm, uint64_t at);       // of the memory that begins there
bool nv_rm_is_host(const nv_rm *rm, uint64_t at);          // is it host memory?
// Reserves addresses only; 0 if there are none left.
uint64_t nv_rm_addresses(nv_rm *rm, uint64_t size, uint64_t alignment);
#endif
