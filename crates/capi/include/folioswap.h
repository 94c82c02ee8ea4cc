/* folioswap: memory larger than its limit, for C and C++. See folioswap(3).
 *
 * Sizes are in bytes. Functions that can fail return FOLIOSWAP_OK (0) or a negative code; folioswap_last_error() says more.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 * Made by cbindgen from crates/capi/src. Do not edit. */

#ifndef FOLIOSWAP_H
#define FOLIOSWAP_H

#include <stddef.h>
#include <stdint.h>

// Advice: the range is not needed for long, its pages leave now.
#define FOLIOSWAP_PAGE_OUT 1

// Advice: it leaves before anything else when memory is short.
#define FOLIOSWAP_COLD 2

// Advice: it is brought back now, in order, as far as there is room.
#define FOLIOSWAP_WILL_NEED 3

// Advice: it is brought back now, ready to be written, whether there is room or not; it may leave again.
#define FOLIOSWAP_POPULATE 4

// The least limit of a space in bytes.
#define FOLIOSWAP_SHMEM_LEAST_LIMIT (4 << 20)

// `huge`: single pages.
#define FOLIOSWAP_HUGE_NEVER 0

// `huge`: large folios.
#define FOLIOSWAP_HUGE_ALWAYS 1

// `huge`: large folios that do not reach beyond the object's size.
#define FOLIOSWAP_HUGE_WITHIN_SIZE 2

// There is no such offset.
#define FOLIOSWAP_NO_OFFSET UINT64_MAX

// The least limit in bytes.
#define FOLIOSWAP_LEAST_LIMIT (8 << 20)

// `when_full`: the limit gives way, so that the program goes on.
#define FOLIOSWAP_WHEN_FULL_EXCEED 0

// `when_full`: the process is ended by abort(3), with a message.
#define FOLIOSWAP_WHEN_FULL_ABORT 1

// What a function returns: 0, or why it did not do what it was asked. Whatever was refused has changed nothing. New codes may come.
typedef enum {
    // Done.
    FOLIOSWAP_OK = 0,
    // An argument is a null pointer, is not UTF-8, or is not a size, device, priority, range or option.
    FOLIOSWAP_EINVAL = -1,
    // The limit is below the least, FOLIOSWAP_LEAST_LIMIT.
    FOLIOSWAP_ELIMIT = -2,
    // There is no memory, address space, mapping, descriptor or thread left, or more was asked for than can be.
    FOLIOSWAP_ENOMEM = -3,
    // The process may not use userfaultfd.
    FOLIOSWAP_EPERM = -4,
    // The kernel is too old.
    FOLIOSWAP_ENOSYS = -5,
    // The swap file cannot be made.
    FOLIOSWAP_EFILE = -6,
    // The swap is closed.
    FOLIOSWAP_ECLOSED = -7,
    // This process is a fork of the one that made the swap.
    FOLIOSWAP_EFORKED = -8,
    // The process runs under `folioswap run`.
    FOLIOSWAP_EMANAGED = -9,
    // The system refused something else.
    FOLIOSWAP_ESYSTEM = -10,
    // A bug in the library; please report the message.
    FOLIOSWAP_EBUG = -11,
    // Contents are as large as they may be, or memory and swap are both full. Nothing that was stored is lost.
    FOLIOSWAP_ENOSPC = -12,
    // A page cannot be read back from swap; the message names it. It stays so until it is overwritten as a whole, truncated or punched.
    FOLIOSWAP_EIO = -13,
    // A range ends beyond the largest offset, 2^63 - 1.
    FOLIOSWAP_EFBIG = -14,
} FolioswapCode;

// A range of a region that stays resident.
typedef struct FolioswapPin FolioswapPin;

// Private memory, all zero at first. Its bytes are read and written like any others. Functions that change its size or contents need it alone; for the
// others threads may share it.
typedef struct FolioswapRegion FolioswapRegion;

// Contents by offset: a file without a name, in memory. Any number of threads may use it at once; reads and writes of one page exclude each other.
typedef struct FolioswapShmemObject FolioswapShmemObject;

// A limit for the contents of objects, and where what is cold goes. Threads may share it.
typedef struct FolioswapShmemSpace FolioswapShmemSpace;

// A limit, devices, and the engine that keeps it. Threads may share it.
typedef struct FolioswapSwap FolioswapSwap;

// A step of the histogram of the time that faults took.
typedef struct {
    // The longest time of the step, in nanoseconds.
    uint64_t at_most_ns;
    // Faults that took no longer, and longer than the step before.
    uint64_t faults;
} FolioswapLatency;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last function that failed in this thread did, and what to do about it: one line of English. Empty when none failed. It is valid until the
// next call of the library in this thread; do not free it.
const char *folioswap_last_error(void);

// Makes a group within `parent` and stores it in `*group`: a swap with a limit of its own besides, which has regions and groups of its own. What it
// takes counts towards its own limit and towards those of all around it; whichever leaves the least room is kept. Up to seven deep, and 63 in all.
//
// `devices` holds the `device_count` numbers of the devices that it may use, in the order in which they were given to folioswap_swap_new, from 0 on
// (of the built-in ones compressed RAM is 0 and the file 1); with none it may use all that the swap around it may. `when_full` says what happens
// when its own limit is reached and nothing can be swapped out. It starts three threads, and is given back by folioswap_swap_free; `parent` may be
// given back before.
//
// # Safety
// Handles are null or valid; `devices` holds so many numbers; `group` is null or may be written.
FolioswapCode folioswap_group_new(const FolioswapSwap *parent,
                                  uint64_t limit,
                                  const size_t *devices,
                                  size_t device_count,
                                  int when_full,
                                  FolioswapSwap **group);

// Makes a region of `bytes`, rounded up to pages, and stores it in `*region`. It begins at a multiple of 2 MiB and takes memory only where it is
// touched.
//
// # Safety
// The handle is null or valid; `region` is null or may be written.
FolioswapCode folioswap_region_new(const FolioswapSwap *swap,
                                   size_t bytes,
                                   FolioswapRegion **region);

// Makes a copy-on-write clone of a region and stores it in `*clone`: a region of its own with the same contents, of which nothing is stored twice.
// What is in memory leaves first; what cannot leave is copied. Other threads may read the original meanwhile.
//
// # Safety
// The handle is null or valid; `clone` is null or may be written.
FolioswapCode folioswap_region_clone(const FolioswapRegion *region,
                                     FolioswapRegion **clone);

// Gives a region back; NULL does nothing. No thread may use its memory from then on, as after munmap(2).
//
// # Safety
// Neither the handle nor the memory is used afterwards.
void folioswap_region_free(FolioswapRegion *region);

// The first byte. NULL: the handle is NULL.
//
// # Safety
// The handle is null or valid.
void *folioswap_region_base(const FolioswapRegion *region);

// The length in bytes, as it was asked for. 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
size_t folioswap_region_length(const FolioswapRegion *region);

// Says something of a range: FOLIOSWAP_PAGE_OUT (it is not needed for long: its pages leave now), FOLIOSWAP_COLD, FOLIOSWAP_WILL_NEED or
// FOLIOSWAP_POPULATE.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_region_advise(const FolioswapRegion *region,
                                      size_t offset,
                                      size_t bytes,
                                      int advice);

// Gives the contents of a range up: it reads as zeroes, and takes no memory where whole pages lie in it. The region may have no pins.
//
// # Safety
// The handle is null or valid, and no other thread uses the region.
FolioswapCode folioswap_region_dont_need(FolioswapRegion *region,
                                         size_t offset,
                                         size_t bytes);

// Makes a region larger; what is new is zero. It may move: ask folioswap_region_base again. The region may have no pins.
//
// # Safety
// The handle is null or valid, and no other thread uses the region.
FolioswapCode folioswap_region_grow(FolioswapRegion *region,
                                    size_t bytes);

// Stores in `*resident` how many bytes of the range's pages are in memory now.
//
// # Safety
// The handle is null or valid; `resident` is null or may be written.
FolioswapCode folioswap_region_resident(const FolioswapRegion *region, size_t offset, size_t bytes, size_t *resident);

// Brings a range into memory and keeps it there until the pin, stored in `*pin`, is freed. At most half of the limit can be pinned.
//
// # Safety
// The handle is null or valid; `pin` is null or may be written.
FolioswapCode folioswap_region_pin(const FolioswapRegion *region,
                                   size_t offset,
                                   size_t bytes,
                                   FolioswapPin **pin);

// Ends a pin; NULL does nothing. A region that was freed meanwhile goes with its last pin.
//
// # Safety
// The handle is not used afterwards.
void folioswap_pin_free(FolioswapPin *pin);

// Makes a space whose contents, tables and compressed store may take `limit` bytes in all, and stores it in `*space`. Contents may be `size` bytes, 0
// for any number. `devices` are as for folioswap_swap_new, but only one "zram" and one "file:DIRECTORY" can be; with none there are both. Where
// `within` is not NULL the limit is a part of that swap's, set aside as long as the space lives. It starts one thread.
//
// # Safety
// Pointers are null or valid for this call.
FolioswapCode folioswap_shmem_space_new(uint64_t limit,
                                        uint64_t size,
                                        const char *const *devices,
                                        size_t device_count,
                                        const FolioswapSwap *within,
                                        FolioswapShmemSpace **space);

// Gives a space back; NULL does nothing. Its objects go on.
//
// # Safety
// The handle is not used afterwards.
void folioswap_shmem_space_free(FolioswapShmemSpace *space);

// Stores a figure in `*value`: "limit", "charge", "resident", "content", or a counter by the kernel's name ("pswpin", "pswpout", ...).
//
// # Safety
// The handle is null or valid; `name` is null or a string; `value` is null or may be written.
FolioswapCode folioswap_shmem_space_figure(const FolioswapShmemSpace *space,
                                           const char *name,
                                           uint64_t *value);

// Makes an empty object and stores it in `*object`. `huge` is FOLIOSWAP_HUGE_NEVER, FOLIOSWAP_HUGE_ALWAYS or FOLIOSWAP_HUGE_WITHIN_SIZE: in which
// folios its contents come, as the mount options of tmpfs.
//
// # Safety
// The handle is null or valid; `object` is null or may be written.
FolioswapCode folioswap_shmem_object_new(const FolioswapShmemSpace *space,
                                         int huge,
                                         FolioswapShmemObject **object);

// Frees an object and all that is in it; NULL does nothing.
//
// # Safety
// The handle is not used afterwards.
void folioswap_shmem_object_free(FolioswapShmemObject *object);

// Its size in bytes: the end of what was written, or what folioswap_shmem_set_size said. 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
uint64_t folioswap_shmem_size(const FolioswapShmemObject *object);

// What of it is there, resident or swapped out, in bytes: whole pages (`st_blocks` times 512). 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
uint64_t folioswap_shmem_content_bytes(const FolioswapShmemObject *object);

// Copies up to `bytes` bytes from `offset` on into `into`, and stores in `*done` how many: fewer at the object's end. Holes are zeroes.
// FOLIOSWAP_EIO: a page cannot be read back from swap.
//
// # Safety
// The handle is null or valid; so many bytes may be written at `into`; `done` is null or may be written.
FolioswapCode folioswap_shmem_read(const FolioswapShmemObject *object,
                                   uint64_t offset,
                                   uint8_t *into,
                                   size_t bytes,
                                   size_t *done);

// Copies `bytes` bytes to `offset`, and stores in `*done` how many: fewer only where space ran out on the way. The object grows if they end behind its
// end. FOLIOSWAP_ENOSPC: there is no room for any.
//
// # Safety
// The handle is null or valid; so many bytes may be read at `from`; `done` is null or may be written.
FolioswapCode folioswap_shmem_write(const FolioswapShmemObject *object,
                                    uint64_t offset,
                                    const uint8_t *from,
                                    size_t bytes,
                                    size_t *done);

// Sets the size, as ftruncate(2): what lies behind a smaller one is freed, and reads as zeroes if the object grows again.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_shmem_set_size(const FolioswapShmemObject *object,
                                       uint64_t size);

// Frees what lies in a range of bytes: it reads as zeroes from now on. The size stays.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_shmem_punch_hole(const FolioswapShmemObject *object, uint64_t offset, uint64_t length);

// Makes sure that every page of a range of bytes is there, as posix_fallocate(3); the size grows to its end. Where there is no room
// (FOLIOSWAP_ENOSPC) it is as before.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_shmem_allocate(const FolioswapShmemObject *object,
                                       uint64_t offset,
                                       uint64_t length);

// Stores in `*found` the first offset at or behind `offset` with content, as lseek(2) with SEEK_DATA; FOLIOSWAP_NO_OFFSET: there is none.
//
// # Safety
// The handle is null or valid; `found` is null or may be written.
FolioswapCode folioswap_shmem_seek_data(const FolioswapShmemObject *object,
                                        uint64_t offset,
                                        uint64_t *found);

// Stores in `*found` the first offset at or behind `offset` in a hole, as lseek(2) with SEEK_HOLE; the end is one. FOLIOSWAP_NO_OFFSET: `offset` is
// not before the end.
//
// # Safety
// The handle is null or valid; `found` is null or may be written.
FolioswapCode folioswap_shmem_seek_hole(const FolioswapShmemObject *object,
                                        uint64_t offset,
                                        uint64_t *found);

// It is not needed for long: its resident folios leave now. Stores in `*left` (unless it is NULL) the bytes that did; what finds no place stays.
//
// # Safety
// The handle is null or valid; `left` is null or may be written.
FolioswapCode folioswap_shmem_page_out(const FolioswapShmemObject *object,
                                       uint64_t *left);

// Stores a figure in `*value`: "limit", "charge", "resident", "faults", "fault_p50_ns", "fault_p99_ns", or a counter by the kernel's name ("pswpin",
// "pswpout", "pgmajfault", "64kB/swpout", ...).
//
// # Safety
// The handle is null or valid; `name` is null or a string; `value` is null or may be written.
FolioswapCode folioswap_swap_figure(const FolioswapSwap *swap,
                                    const char *name,
                                    uint64_t *value);

// Writes the histogram of the time that faults took into `steps`, shortest first, at most `count` of them, and stores in `*needed` (unless it is NULL)
// how many there are. Steps without faults are left out.
//
// # Safety
// The handle is null or valid; `steps` is null and `count` 0, or so many may be written; `needed` is null or may be written.
FolioswapCode folioswap_swap_latency_histogram(const FolioswapSwap *swap,
                                               FolioswapLatency *steps,
                                               size_t count,
                                               size_t *needed);

// Writes a few lines for people into `text`, at most `bytes` with the zero byte at the end, and stores in `*needed` (unless it is NULL) how many
// would hold all of it.
//
// # Safety
// The handle is null or valid; `text` is null and `bytes` 0, or so many bytes may be written; `needed` is null or may be written.
FolioswapCode folioswap_swap_describe(const FolioswapSwap *swap,
                                      char *text,
                                      size_t bytes,
                                      size_t *needed);

// Makes a swap whose regions, compressed store and tables may take `limit` bytes in all, and stores it in `*swap`. `devices` holds `device_count`
// strings such as "zram,prio=1" and "file:/var/tmp,size=10G,prio=0", as `folioswap run --swap` takes them; with none there are compressed RAM
// and a file without a name in /var/tmp behind it. `when_full` is FOLIOSWAP_WHEN_FULL_EXCEED or FOLIOSWAP_WHEN_FULL_ABORT. It starts three threads.
//
// # Safety
// Pointers are null or valid for this call.
FolioswapCode folioswap_swap_new(uint64_t limit,
                                 const char *const *devices,
                                 size_t device_count,
                                 int when_full,
                                 FolioswapSwap **swap);

// Gives a swap back; NULL does nothing. Its regions go on, and its threads end with the last of them.
//
// # Safety
// The handle is not used afterwards.
void folioswap_swap_free(FolioswapSwap *swap);

// No region can be made from now on. Those there are go on.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_swap_close(const FolioswapSwap *swap);

// Changes the limit. Where it becomes smaller, memory is swapped out in the background from now on.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_swap_set_limit(const FolioswapSwap *swap, uint64_t limit);

// What may be occupied, in bytes: as given, unless all devices were full. 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
uint64_t folioswap_swap_limit(const FolioswapSwap *swap);

// 1: system calls such as read(2) work on memory that is swapped out. 0: they fail with EFAULT, since the process may use userfaultfd for its
// own accesses only; folioswap_region_pin before such a call makes it work.
//
// # Safety
// The handle is null or valid.
int folioswap_swap_serves_system_calls(const FolioswapSwap *swap);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOLIOSWAP_H */
