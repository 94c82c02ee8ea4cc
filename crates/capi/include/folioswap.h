/* folioswap: memory larger than its limit, for C and C++. See folioswap(3).
 *
 * Sizes are in bytes. Functions that can fail return FOLIOSWAP_OK (0) or a negative code;
 * folioswap_last_error() says more.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 * Made by cbindgen from crates/capi/src. Do not edit. */

#ifndef FOLIOSWAP_H
#define FOLIOSWAP_H

#include <stddef.h>
#include <stdint.h>

// Advice: the range is not needed for long, and its pages leave now.
#define FOLIOSWAP_PAGE_OUT 1

// Advice: the range leaves before anything else when memory is short.
#define FOLIOSWAP_COLD 2

// Advice: the range comes back now, in order, as far as there is room.
#define FOLIOSWAP_WILL_NEED 3

// Advice: the range comes back now, ready to be written, even without room. It may leave again.
#define FOLIOSWAP_POPULATE 4

// The smallest limit of a space, in bytes.
#define FOLIOSWAP_SHMEM_LEAST_LIMIT (4 << 20)

// `huge`: single pages.
#define FOLIOSWAP_HUGE_NEVER 0

// `huge`: large folios.
#define FOLIOSWAP_HUGE_ALWAYS 1

// `huge`: large folios that do not reach beyond the object's size.
#define FOLIOSWAP_HUGE_WITHIN_SIZE 2

// The result of a search that finds no offset.
#define FOLIOSWAP_NO_OFFSET UINT64_MAX

// The smallest limit, in bytes.
#define FOLIOSWAP_LEAST_LIMIT (8 << 20)

// `when_full`: the limit gives way, so that the program goes on.
#define FOLIOSWAP_WHEN_FULL_EXCEED 0

// `when_full`: the process is ended by abort(3), with a message.
#define FOLIOSWAP_WHEN_FULL_ABORT 1

// `notices`: one line to standard error when the program thrashes.
#define FOLIOSWAP_NOTICES_STDERR 0

// `notices`: no line.
#define FOLIOSWAP_NOTICES_SILENT 1

// The result of a function: 0, or why the call was refused. A refused call has changed nothing
// (folioswap_region_read and folioswap_region_write say how much they did). Later versions may add
// codes.
typedef enum {
    // The call succeeded.
    FOLIOSWAP_OK = 0,
    // An argument is a null pointer, is not UTF-8, or is not a size, device, priority, range or
    // option.
    FOLIOSWAP_EINVAL = -1,
    // The limit is below the smallest one, FOLIOSWAP_LEAST_LIMIT.
    FOLIOSWAP_ELIMIT = -2,
    // The process has no memory, address space, mapping, descriptor or thread left, or the size is
    // larger than any can be.
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
    // Another system call failed. After folioswap_region_read and folioswap_region_write errno
    // says why.
    FOLIOSWAP_ESYSTEM = -10,
    // The library has a bug; please report the message.
    FOLIOSWAP_EBUG = -11,
    // The contents are as large as they may be, or memory and swap are both full. No stored
    // content is lost.
    FOLIOSWAP_ENOSPC = -12,
    // A page cannot be read back from swap; the message names it. The page stays lost until it is
    // overwritten as a whole, truncated or punched.
    FOLIOSWAP_EIO = -13,
    // A range ends beyond the largest offset, 2^63 - 1.
    FOLIOSWAP_EFBIG = -14,
} FolioswapCode;

// A range of a region that stays resident.
typedef struct FolioswapPin FolioswapPin;

// Private memory, all zero at first, which is read and written like any other. A function that
// changes a region's size or contents must be its only user; threads may share it for the others.
typedef struct FolioswapRegion FolioswapRegion;

// Contents by offset: a file without a name, in memory. Any number of threads may use an object at
// once; reads and writes of one page exclude each other.
typedef struct FolioswapShmemObject FolioswapShmemObject;

// A limit for the contents of objects, and the devices behind it. Threads may share it.
typedef struct FolioswapShmemSpace FolioswapShmemSpace;

// A limit, devices, and the engine that keeps the limit. Threads may share it.
typedef struct FolioswapSwap FolioswapSwap;

// A step of the histogram of fault durations.
typedef struct {
    // The longest duration of the step, in nanoseconds.
    uint64_t at_most_ns;
    // The faults that took no longer than this step, and longer than the step before.
    uint64_t faults;
} FolioswapLatency;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns why the last function that failed in this thread did so, and the next step: one line of
// English. The line is empty when none failed. It is valid until the next call of the library in
// this thread; do not free it.
const char *folioswap_last_error(void);

// Makes a group within `parent` and stores it in `*group`: a swap with a limit of its own, which
// may have regions and groups of its own. Its memory counts towards its own limit and those of all
// swaps around it, and the limit that is reached first is kept. Groups can be nested seven deep; a
// swap has at most 63.
//
// `devices` holds `device_count` numbers of devices that the group may use. A device's number is
// its position in folioswap_swap_new's array, from 0 on (of the built-in devices, compressed RAM
// is 0 and the file 1). With a `device_count` of 0 the group may use all devices that `parent` may
// use. `when_full` is the reaction when the group's own limit is reached and nothing more can be
// swapped out. The group starts three threads. Free it with folioswap_swap_free; `parent` may be
// freed before.
//
// # Safety
// Handles are null or valid; `devices` holds `device_count` numbers; `group` is null or may be
// written.
FolioswapCode folioswap_group_new(const FolioswapSwap *parent,
                                  uint64_t limit,
                                  const size_t *devices,
                                  size_t device_count,
                                  int when_full,
                                  FolioswapSwap **group);

// Makes a region of `bytes`, rounded up to pages, and stores it in `*region`. The region begins at
// a multiple of 2 MiB and takes memory only where it is touched.
//
// # Safety
// The handle is null or valid; `region` is null or may be written.
FolioswapCode folioswap_region_new(const FolioswapSwap *swap,
                                   size_t bytes,
                                   FolioswapRegion **region);

// Makes a copy-on-write clone of a region and stores it in `*clone`: another region with the same
// contents, whose stored pages are not stored twice. Resident pages leave first; pages that cannot
// leave are copied. Other threads may read the original meanwhile.
//
// # Safety
// The handle is null or valid; `clone` is null or may be written.
FolioswapCode folioswap_region_clone(const FolioswapRegion *region, FolioswapRegion **clone);

// Frees a region; NULL does nothing. As with munmap(2), no thread may use its memory afterwards.
//
// # Safety
// Neither the handle nor the memory is used afterwards.
void folioswap_region_free(FolioswapRegion *region);

// Returns the address of the first byte; NULL: the handle is NULL.
//
// # Safety
// The handle is null or valid.
void *folioswap_region_base(const FolioswapRegion *region);

// Returns the length in bytes, as requested; 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
size_t folioswap_region_length(const FolioswapRegion *region);

// Gives advice about a range: FOLIOSWAP_PAGE_OUT, FOLIOSWAP_COLD, FOLIOSWAP_WILL_NEED or
// FOLIOSWAP_POPULATE.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_region_advise(const FolioswapRegion *region,
                                      size_t offset,
                                      size_t bytes,
                                      int advice);

// Discards the contents of a range, which reads as zeroes afterwards. Whole pages in it take no
// memory any more. The region must not have pins.
//
// # Safety
// The handle is null or valid, and no other thread uses the region.
FolioswapCode folioswap_region_dont_need(FolioswapRegion *region, size_t offset, size_t bytes);

// Makes a region larger; the added bytes are zero. The region may move: call folioswap_region_base
// again. It must not have pins.
//
// # Safety
// The handle is null or valid, and no other thread uses the region.
FolioswapCode folioswap_region_grow(FolioswapRegion *region, size_t bytes);

// Stores in `*resident` how many bytes of the pages of the range are in memory now.
//
// # Safety
// The handle is null or valid; `resident` is null or may be written.
FolioswapCode folioswap_region_resident(const FolioswapRegion *region,
                                        size_t offset,
                                        size_t bytes,
                                        size_t *resident);

// Brings a range into memory and keeps it there until the pin, which is stored in `*pin`, is
// freed. At most half of the limit can be pinned.
//
// # Safety
// The handle is null or valid; `pin` is null or may be written.
FolioswapCode folioswap_region_pin(const FolioswapRegion *region,
                                   size_t offset,
                                   size_t bytes,
                                   FolioswapPin **pin);

// Frees a pin; NULL does nothing. A region that was freed meanwhile goes with its last pin.
//
// # Safety
// The handle is not used afterwards.
void folioswap_pin_free(FolioswapPin *pin);

// Makes a space and stores it in `*space`. Its contents, tables and compressed store may take
// `limit` bytes together. The contents, resident or not, may be `size` bytes; 0: any number.
// `devices` are as for folioswap_swap_new, but only one "zram" and one "file:DIRECTORY" are
// possible; with a `device_count` of 0 the space has both. If `within` is not NULL, the limit is
// set aside from that swap's limit as long as the space lives. The space starts one thread.
//
// # Safety
// Pointers are null or valid for this call.
FolioswapCode folioswap_shmem_space_new(uint64_t limit,
                                        uint64_t size,
                                        const char *const *devices,
                                        size_t device_count,
                                        const FolioswapSwap *within,
                                        FolioswapShmemSpace **space);

// Frees a space; NULL does nothing. Its objects live on.
//
// # Safety
// The handle is not used afterwards.
void folioswap_shmem_space_free(FolioswapShmemSpace *space);

// Stores a figure in `*value`: "limit", "charge", "resident", "content", or a counter by the
// kernel's name ("pswpin", "pswpout", ...).
//
// # Safety
// The handle is null or valid; `name` is null or a string; `value` is null or may be written.
FolioswapCode folioswap_shmem_space_figure(const FolioswapShmemSpace *space,
                                           const char *name,
                                           uint64_t *value);

// Makes an empty object and stores it in `*object`. `huge` is FOLIOSWAP_HUGE_NEVER,
// FOLIOSWAP_HUGE_ALWAYS or FOLIOSWAP_HUGE_WITHIN_SIZE: the folios in which its contents come, as
// tmpfs's mount option of that name.
//
// # Safety
// The handle is null or valid; `object` is null or may be written.
FolioswapCode folioswap_shmem_object_new(const FolioswapShmemSpace *space,
                                         int huge,
                                         FolioswapShmemObject **object);

// Frees an object and all of its contents; NULL does nothing.
//
// # Safety
// The handle is not used afterwards.
void folioswap_shmem_object_free(FolioswapShmemObject *object);

// Returns the size in bytes: the end of the last write, or the size set by
// folioswap_shmem_set_size. 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
uint64_t folioswap_shmem_size(const FolioswapShmemObject *object);

// Returns the bytes of content, resident or swapped out, in whole pages (`st_blocks` times 512).
// 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
uint64_t folioswap_shmem_content_bytes(const FolioswapShmemObject *object);

// Copies up to `bytes` bytes from `offset` on into `into`, and stores in `*done` how many: fewer
// at the object's end. Holes read as zeroes. FOLIOSWAP_EIO: a page cannot be read back from swap.
//
// # Safety
// The handle is null or valid; `bytes` bytes may be written at `into`; `done` is null or may be
// written.
FolioswapCode folioswap_shmem_read(const FolioswapShmemObject *object,
                                   uint64_t offset,
                                   uint8_t *into,
                                   size_t bytes,
                                   size_t *done);

// Copies `bytes` bytes to `offset`, and stores in `*done` how many: fewer only where space ran out
// on the way. The object grows if they end behind its end. FOLIOSWAP_ENOSPC: there is no room for
// any.
//
// # Safety
// The handle is null or valid; `bytes` bytes may be read at `from`; `done` is null or may be
// written.
FolioswapCode folioswap_shmem_write(const FolioswapShmemObject *object,
                                    uint64_t offset,
                                    const uint8_t *from,
                                    size_t bytes,
                                    size_t *done);

// Sets the size, as ftruncate(2). Content behind a smaller size is freed, and reads as zeroes if
// the object grows again.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_shmem_set_size(const FolioswapShmemObject *object, uint64_t size);

// Frees the content of a range of bytes, which reads as zeroes afterwards. The size stays.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_shmem_punch_hole(const FolioswapShmemObject *object,
                                         uint64_t offset,
                                         uint64_t length);

// Allocates every page of a range of bytes that has none, as posix_fallocate(3); the size grows to
// the end of the range. Without room (FOLIOSWAP_ENOSPC) the object is as before.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_shmem_allocate(const FolioswapShmemObject *object,
                                       uint64_t offset,
                                       uint64_t length);

// Stores in `*found` the first offset at or behind `offset` with content, as lseek(2) with
// SEEK_DATA. FOLIOSWAP_NO_OFFSET: there is none.
//
// # Safety
// The handle is null or valid; `found` is null or may be written.
FolioswapCode folioswap_shmem_seek_data(const FolioswapShmemObject *object,
                                        uint64_t offset,
                                        uint64_t *found);

// Stores in `*found` the first offset at or behind `offset` that lies in a hole, as lseek(2) with
// SEEK_HOLE; the end counts as one. FOLIOSWAP_NO_OFFSET: `offset` is not before the end.
//
// # Safety
// The handle is null or valid; `found` is null or may be written.
FolioswapCode folioswap_shmem_seek_hole(const FolioswapShmemObject *object,
                                        uint64_t offset,
                                        uint64_t *found);

// Says that the object is not needed for long: its resident folios leave now. Stores in `*left`
// (unless it is NULL) the bytes that left; folios for which swap has no room stay.
//
// # Safety
// The handle is null or valid; `left` is null or may be written.
FolioswapCode folioswap_shmem_page_out(const FolioswapShmemObject *object, uint64_t *left);

// Stores a figure in `*value`: "limit", "charge", "resident", "faults", "fault_p50_ns",
// "fault_p99_ns", or a counter by the kernel's name ("pswpin", "pswpout", "pgmajfault",
// "64kB/swpout", ...).
//
// # Safety
// The handle is null or valid; `name` is null or a string; `value` is null or may be written.
FolioswapCode folioswap_swap_figure(const FolioswapSwap *swap, const char *name, uint64_t *value);

// Writes the histogram of fault durations into `steps`, shortest first, at most `count` steps, and
// stores in `*needed` (unless it is NULL) how many there are. Steps without faults are left out.
//
// # Safety
// The handle is null or valid; `steps` is null and `count` 0, or `count` steps may be written;
// `needed` is null or may be written.
FolioswapCode folioswap_swap_latency_histogram(const FolioswapSwap *swap,
                                               FolioswapLatency *steps,
                                               size_t count,
                                               size_t *needed);

// Writes a few lines of text into `text`, at most `bytes` bytes with the zero byte at the end, and
// stores in `*needed` (unless it is NULL) how many bytes would hold all of it.
//
// # Safety
// The handle is null or valid; `text` is null and `bytes` 0, or `bytes` bytes may be written;
// `needed` is null or may be written.
FolioswapCode folioswap_swap_describe(const FolioswapSwap *swap,
                                      char *text,
                                      size_t bytes,
                                      size_t *needed);

// Makes a swap and stores it in `*swap`. Its regions, compressed store and tables may take `limit`
// bytes together. `devices` holds `device_count` strings such as "zram,prio=1" and
// "file:/var/tmp,size=10G,prio=0", in the grammar of `folioswap run --swap`. With a `device_count`
// of 0 the swap has compressed RAM, and a file without a name in /var/tmp behind it. `when_full`
// is FOLIOSWAP_WHEN_FULL_EXCEED or FOLIOSWAP_WHEN_FULL_ABORT. The swap starts three threads.
//
// # Safety
// Pointers are null or valid for this call.
FolioswapCode folioswap_swap_new(uint64_t limit,
                                 const char *const *devices,
                                 size_t device_count,
                                 int when_full,
                                 FolioswapSwap **swap);

// Frees a swap; NULL does nothing. Its regions live on, and its threads end with the last of them.
//
// # Safety
// The handle is not used afterwards.
void folioswap_swap_free(FolioswapSwap *swap);

// Refuses further regions. Existing regions live on.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_swap_close(const FolioswapSwap *swap);

// Changes the limit. A smaller limit makes the engine swap memory out in the background.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_swap_set_limit(const FolioswapSwap *swap, uint64_t limit);

// Lets pages that are swapped out from now on go to the devices of these tiers alone: their
// priorities with commas between them ("10,0"), or "all". Pages that are on others stay there.
//
// # Safety
// The handle is null or valid; `tiers` is a string.
FolioswapCode folioswap_swap_set_tiers(const FolioswapSwap *swap, const char *tiers);

// Returns the limit in bytes: the one that was set, unless it gave way because all devices were
// full. 0: the handle is NULL.
//
// # Safety
// The handle is null or valid.
uint64_t folioswap_swap_limit(const FolioswapSwap *swap);

// Chooses whether the library may write a line to standard error when the program has been
// thrashing for ten seconds, once for a swap: FOLIOSWAP_NOTICES_STDERR, as at first, or
// FOLIOSWAP_NOTICES_SILENT. The figure "thrashing_ms" tells in both cases.
//
// # Safety
// The handle is null or valid.
FolioswapCode folioswap_swap_set_notices(const FolioswapSwap *swap, int notices);

// Returns 1 if system calls such as read(2) work on memory that is swapped out. 0: they fail with
// EFAULT, since the process has userfaultfd for faults of user mode only, and no gate stands
// before the C library's calls; folioswap_region_pin before such a call makes it work.
// folioswap_region_read and folioswap_region_write work always.
//
// # Safety
// The handle is null or valid.
int folioswap_swap_serves_system_calls(const FolioswapSwap *swap);

// Reads from the descriptor `file` into `bytes` bytes of the region from `offset` on, until they
// are full or the descriptor is at its end, and stores in `*done` how many were read. It works for
// every process: where system calls cannot wait for memory that is swapped out
// (folioswap_swap_serves_system_calls is 0), pieces of at most 1 MiB are pinned in turn, so the
// range may be larger than the limit. Short reads are continued, and interrupted ones (EINTR)
// repeated. FOLIOSWAP_ESYSTEM: read(2) failed after `*done` bytes, and errno says why.
// FOLIOSWAP_EINVAL: the range is not within the region; nothing was read. FOLIOSWAP_ENOMEM: pins
// of others take all that can be pinned; nothing was read.
//
// # Safety
// The handle is null or valid; `done` is null or may be written; the descriptor is not closed
// meanwhile.
FolioswapCode folioswap_region_read(const FolioswapRegion *region,
                                    size_t offset,
                                    int file,
                                    size_t bytes,
                                    size_t *done);

// Writes `bytes` bytes of the region from `offset` on to the descriptor `file`, and stores in
// `*done` how many were written. It works for every process, as folioswap_region_read does. Short
// writes are continued, and interrupted ones repeated. FOLIOSWAP_ESYSTEM: write(2) failed after
// `*done` bytes, and errno says why. The other codes are those of folioswap_region_read.
//
// # Safety
// The handle is null or valid; `done` is null or may be written; the descriptor is not closed
// meanwhile.
FolioswapCode folioswap_region_write(const FolioswapRegion *region,
                                     size_t offset,
                                     int file,
                                     size_t bytes,
                                     size_t *done);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOLIOSWAP_H */
