/* A group within a swap, the histogram of its faults, and a shmem object larger than its limit.
 * The program checks each function that the header offers for them.
 *
 *   cc -std=c99 objects.c $(pkg-config --cflags --libs folioswap) -o objects && ./objects
 */
#include <folioswap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, folioswap_last_error());
    exit(1);
}

static void must(FolioswapCode code, const char *what)
{
    if (code != FOLIOSWAP_OK)
        fail(what);
}

/* Checks that a call was refused with this code and a text. */
static void refused(FolioswapCode code, FolioswapCode wanted, const char *what)
{
    if (code != wanted || folioswap_last_error()[0] == '\0') {
        fprintf(stderr, "%s: code %d instead of %d: %s\n", what, (int)code, (int)wanted, folioswap_last_error());
        exit(1);
    }
}

static unsigned char byte_at(size_t at)
{
    return (unsigned char)((at * 2654435761u) >> 13);
}

static void check_groups(void)
{
    const char *devices[] = {"zram,prio=1", "file:/var/tmp,size=256M,prio=0"};
    const size_t only_the_file[] = {1}, unknown[] = {0, 2};
    FolioswapSwap *swap = NULL, *group = NULL, *inner = NULL, *none = NULL;
    FolioswapRegion *region = NULL, *clone = NULL;
    FolioswapLatency steps[512];
    uint64_t charge = 0, faults = 0, counted = 0;
    size_t at, needed = 0;
    unsigned char *memory, *copy;

    must(folioswap_swap_new(64 * MIB, devices, 2, FOLIOSWAP_WHEN_FULL_EXCEED, &swap), "a swap");
    refused(folioswap_group_new(NULL, 16 * MIB, NULL, 0, 0, &none), FOLIOSWAP_EINVAL, "NULL for the swap");
    refused(folioswap_group_new(swap, 1000, NULL, 0, 0, &none), FOLIOSWAP_ELIMIT, "a small group");
    refused(folioswap_group_new(swap, 16 * MIB, unknown, 2, 0, &none), FOLIOSWAP_EINVAL, "an unknown device");
    refused(folioswap_group_new(swap, 16 * MIB, NULL, 1, 0, &none), FOLIOSWAP_EINVAL, "NULL for the devices");
    refused(folioswap_group_new(swap, 16 * MIB, NULL, 0, 77, &none), FOLIOSWAP_EINVAL, "when_full of a group");
    refused(folioswap_group_new(swap, 16 * MIB, NULL, 0, 0, NULL), FOLIOSWAP_EINVAL, "NULL for the group");
    if (none != NULL)
        fail("what was refused changed something");
    must(folioswap_group_new(swap, 16 * MIB, NULL, 0, FOLIOSWAP_WHEN_FULL_EXCEED, &group), "a group");
    must(folioswap_group_new(group, 12 * MIB, only_the_file, 1, FOLIOSWAP_WHEN_FULL_EXCEED, &inner), "a group within");
    must(folioswap_region_new(group, 40 * MIB, &region), "a region of the group");
    memory = (unsigned char *)folioswap_region_base(region);
    for (at = 0; at < 40 * MIB; at++)
        memory[at] = byte_at(at);
    for (at = 0; at < 40 * MIB; at++)
        if (memory[at] != byte_at(at))
            fail("another byte");
    refused(folioswap_region_clone(NULL, &clone), FOLIOSWAP_EINVAL, "NULL for the region");
    refused(folioswap_region_clone(region, NULL), FOLIOSWAP_EINVAL, "NULL for the clone");
    must(folioswap_region_clone(region, &clone), "a clone");
    copy = (unsigned char *)folioswap_region_base(clone);
    for (at = 0; at < 40 * MIB; at += 5000) {
        memory[at]++;
        if (copy[at] != byte_at(at) || folioswap_region_length(clone) != 40 * MIB)
            fail("a clone that is not apart");
    }
    folioswap_region_free(clone);
    must(folioswap_swap_figure(group, "charge", &charge), "charge");
    if (charge > 32 * MIB || folioswap_swap_limit(group) != 16 * MIB)
        fail("the group's limit was not kept");

    must(folioswap_swap_latency_histogram(group, NULL, 0, &needed), "steps needed");
    refused(folioswap_swap_latency_histogram(group, NULL, 1, NULL), FOLIOSWAP_EINVAL, "NULL for the steps");
    if (needed == 0 || needed > 512)
        fail("steps");
    must(folioswap_swap_latency_histogram(group, steps, 512, &needed), "the histogram");
    for (at = 0; at < needed; at++) {
        counted += steps[at].faults;
        if (steps[at].faults == 0 || (at > 0 && steps[at].at_most_ns <= steps[at - 1].at_most_ns))
            fail("a step");
    }
    must(folioswap_swap_figure(group, "faults", &faults), "faults");
    if (counted == 0 || counted > faults)
        fail("as many as there were faults");
    folioswap_swap_free(swap);
    folioswap_swap_free(inner);
    folioswap_swap_free(group);
    if (memory[40 * MIB - 1] != byte_at(40 * MIB - 1))
        fail("a region outlives its group");
    folioswap_region_free(region);
}

static void check_objects(void)
{
    const char *ram[] = {"ram,size=64M"}, *zram[] = {"zram"};
    FolioswapShmemSpace *space = NULL, *small = NULL, *none = NULL;
    FolioswapShmemObject *object = NULL, *no_object = NULL;
    unsigned char *bytes = (unsigned char *)malloc(MIB), *back = (unsigned char *)malloc(MIB);
    uint64_t value = 0, out = 0;
    size_t at, part, done = 0;

    if (bytes == NULL || back == NULL)
        exit(1);
    refused(folioswap_shmem_space_new(1000, 0, NULL, 0, NULL, &none), FOLIOSWAP_ELIMIT, "a small space");
    refused(folioswap_shmem_space_new(8 * MIB, 0, ram, 1, NULL, &none), FOLIOSWAP_EINVAL, "a device that it does not take");
    refused(folioswap_shmem_space_new(8 * MIB, 0, NULL, 0, NULL, NULL), FOLIOSWAP_EINVAL, "NULL for the space");
    must(folioswap_shmem_space_new(16 * MIB, 0, NULL, 0, NULL, &space), "a space");
    refused(folioswap_shmem_object_new(space, 77, &no_object), FOLIOSWAP_EINVAL, "huge");
    if (none != NULL || no_object != NULL)
        fail("what was refused changed something");
    must(folioswap_shmem_object_new(space, FOLIOSWAP_HUGE_ALWAYS, &object), "an object");
    for (part = 0; part < 40; part++) {
        for (at = 0; at < MIB; at++)
            bytes[at] = byte_at(part * MIB + at);
        must(folioswap_shmem_write(object, part * MIB, bytes, MIB, &done), "write");
        if (done != MIB)
            fail("all of it");
    }
    for (part = 0; part < 40; part++) {
        must(folioswap_shmem_read(object, part * MIB, back, MIB, &done), "read");
        for (at = 0; at < MIB; at++)
            if (done != MIB || back[at] != byte_at(part * MIB + at))
                fail("another byte");
    }
    must(folioswap_shmem_space_figure(space, "charge", &value), "charge");
    must(folioswap_shmem_space_figure(space, "pswpout", &out), "pswpout");
    refused(folioswap_shmem_space_figure(space, "nonsense", &value), FOLIOSWAP_EINVAL, "a figure");
    if (value > 16 * MIB || out == 0 || folioswap_shmem_size(object) != 40 * MIB)
        fail("the limit was not kept");

    must(folioswap_shmem_punch_hole(object, MIB, 2 * MIB), "punch_hole");
    must(folioswap_shmem_seek_hole(object, 0, &value), "seek_hole");
    if (value != MIB || folioswap_shmem_content_bytes(object) != 38 * MIB)
        fail("a hole");
    must(folioswap_shmem_seek_data(object, MIB, &value), "seek_data");
    if (value != 3 * MIB)
        fail("behind the hole");
    must(folioswap_shmem_read(object, MIB - 1, back, 2, &done), "read at a hole");
    if (done != 2 || back[0] != byte_at(MIB - 1) || back[1] != 0)
        fail("a hole reads as zeroes");
    must(folioswap_shmem_set_size(object, 10 * MIB), "set_size");
    must(folioswap_shmem_seek_data(object, 10 * MIB, &value), "seek_data at the end");
    must(folioswap_shmem_read(object, 10 * MIB, back, MIB, &done), "read at the end");
    if (value != FOLIOSWAP_NO_OFFSET || done != 0)
        fail("nothing is behind the end");
    must(folioswap_shmem_page_out(object, &value), "page_out");
    refused(folioswap_shmem_write(object, (uint64_t)-1, bytes, 1, &done), FOLIOSWAP_EFBIG, "beyond everything");
    refused(folioswap_shmem_write(object, 0, NULL, 1, &done), FOLIOSWAP_EINVAL, "NULL to write");
    refused(folioswap_shmem_read(NULL, 0, back, 1, &done), FOLIOSWAP_EINVAL, "NULL to read of");
    folioswap_shmem_space_free(space);
    must(folioswap_shmem_read(object, 0, back, 1, &done), "an object outlives its space's handle");
    folioswap_shmem_object_free(object);

    must(folioswap_shmem_space_new(8 * MIB, 2 * MIB, zram, 1, NULL, &small), "a space of 2 MiB");
    must(folioswap_shmem_object_new(small, FOLIOSWAP_HUGE_NEVER, &object), "an object in it");
    refused(folioswap_shmem_allocate(object, 0, 4 * MIB), FOLIOSWAP_ENOSPC, "more than fits");
    must(folioswap_shmem_allocate(object, 0, MIB), "allocate");
    if (folioswap_shmem_size(object) != MIB)
        fail("size");
    folioswap_shmem_object_free(object);
    folioswap_shmem_space_free(small);
    folioswap_shmem_object_free(NULL);
    folioswap_shmem_space_free(NULL);
    free(bytes);
    free(back);
}

int main(void)
{
    check_groups();
    check_objects();
    puts("kept");
    return 0;
}
