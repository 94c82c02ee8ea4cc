/* Sorts 40 MiB of numbers within 16 MiB, writes them to a file and reads them back. The program
 * checks each function that the header offers for swaps and regions.
 *
 *   cc -std=c99 sort.c $(pkg-config --cflags --libs folioswap) -o sort && ./sort
 */
#define _POSIX_C_SOURCE 199309L /* nanosleep, fileno */
#include <errno.h>
#include <folioswap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static void check_refusals(const FolioswapSwap *swap)
{
    const char *nonsense[] = {"disk:/dev/sda"};
    FolioswapSwap *none = NULL;
    FolioswapRegion *region = NULL;
    uint64_t value = 0;

    refused(folioswap_swap_new(64 * MIB, nonsense, 1, FOLIOSWAP_WHEN_FULL_EXCEED, &none), FOLIOSWAP_EINVAL, "a device");
    refused(folioswap_swap_new(1000, NULL, 0, FOLIOSWAP_WHEN_FULL_EXCEED, &none), FOLIOSWAP_ELIMIT, "a small limit");
    refused(folioswap_swap_new(64 * MIB, NULL, 0, 77, &none), FOLIOSWAP_EINVAL, "when_full");
    refused(folioswap_swap_new(64 * MIB, NULL, 0, 0, NULL), FOLIOSWAP_EINVAL, "NULL for the answer");
    refused(folioswap_region_new(swap, 0, &region), FOLIOSWAP_EINVAL, "a region of nothing");
    refused(folioswap_region_new(swap, (size_t)-1, &region), FOLIOSWAP_ENOMEM, "a region of everything");
    refused(folioswap_region_new(NULL, 1, &region), FOLIOSWAP_EINVAL, "NULL for the swap");
    refused(folioswap_swap_figure(swap, "nonsense", &value), FOLIOSWAP_EINVAL, "a figure");
    if (none != NULL || region != NULL || folioswap_region_base(NULL) != NULL)
        fail("what was refused changed something");
}

int main(void)
{
    const char *devices[] = {"zram,prio=1", "file:/var/tmp,size=256M,prio=0"};
    const size_t count = 40 * MIB / sizeof(uint64_t);
    FolioswapSwap *swap = NULL;
    FolioswapRegion *region = NULL;
    FolioswapPin *pin = NULL;
    uint64_t *numbers, state = 88172645463325252u, out = 0, charge = 0;
    uint64_t sum = 0;
    const struct timespec pause = {0, 1000000};
    int tries;
    size_t number, resident = 0, needed = 0, done = 0;
    char text[512];
    FILE *file;

    must(folioswap_swap_new(16 * MIB, devices, 2, FOLIOSWAP_WHEN_FULL_EXCEED, &swap), "a swap");
    must(folioswap_region_new(swap, 40 * MIB, &region), "a region");
    check_refusals(swap);

    numbers = (uint64_t *)folioswap_region_base(region);
    for (number = 0; number < count; number++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers[number] = state;
        sum += state;
    }
    qsort(numbers, count, sizeof *numbers, compare);

    /* This works for every process; the range is larger than the limit. */
    file = tmpfile();
    if (file == NULL)
        fail("a file");
    must(folioswap_region_write(region, 0, fileno(file), 40 * MIB, &done), "write");
    if (done != 40 * MIB || lseek(fileno(file), 0, SEEK_SET) != 0)
        fail("what was written");
    must(folioswap_region_dont_need(region, 0, 40 * MIB), "dont_need");
    must(folioswap_region_read(region, 8, fileno(file), 40 * MIB - 8, &done), "read");
    if (done != 40 * MIB - 8 || numbers[0] != 0)
        fail("what was read");
    memmove(numbers, numbers + 1, 40 * MIB - 8);
    must(folioswap_region_read(region, 40 * MIB - 8, fileno(file), 8, &done), "read the rest");
    must(folioswap_region_read(region, 0, fileno(file), 8, &done), "read at the end");
    if (done != 0)
        fail("there is nothing behind the end");
    refused(folioswap_region_read(region, 1, fileno(file), 40 * MIB, &done), FOLIOSWAP_EINVAL, "beyond the end");
    refused(folioswap_region_write(region, 0, -1, 1, &done), FOLIOSWAP_EINVAL, "a negative descriptor");
    refused(folioswap_region_write(region, 0, fileno(file), 1, NULL), FOLIOSWAP_EINVAL, "NULL for the answer");
    fclose(file);
    done = 1;
    errno = 0;
    refused(folioswap_region_read(region, 0, 1 << 20, 8, &done), FOLIOSWAP_ESYSTEM, "no descriptor");
    if (done != 0 || errno != EBADF)
        fail("errno");

    /* Where system calls wait for memory, one reads what is swapped out, another fills it again. */
    file = tmpfile();
    if (file == NULL || fwrite(numbers, sizeof *numbers, count, file) != count)
        fail("writing");
    must(folioswap_region_dont_need(region, 0, 40 * MIB), "dont_need");
    if (numbers[0] != 0 || numbers[count - 1] != 0)
        fail("not zero");
    rewind(file);
    if (fread(numbers, sizeof *numbers, count, file) != count)
        fail("reading");
    fclose(file);
    for (number = 0; number < count; number++) {
        sum -= numbers[number];
        if (number > 0 && numbers[number] < numbers[number - 1])
            fail("not sorted");
    }
    if (sum != 0)
        fail("other numbers");

    must(folioswap_region_pin(region, MIB, 4096, &pin), "pin");
    /* Pages around the pinned one may still be on their way back with it. */
    for (tries = 0; tries < 5000; tries++) {
        must(folioswap_region_advise(region, 0, 4 * MIB, FOLIOSWAP_PAGE_OUT), "page_out");
        must(folioswap_region_resident(region, 0, 4 * MIB, &resident), "resident");
        if (resident == 4096)
            break;
        nanosleep(&pause, NULL);
    }
    if (resident != 4096)
        fail("only the pinned page stays");
    refused(folioswap_region_grow(region, 48 * MIB), FOLIOSWAP_EINVAL, "grow with a pin");
    refused(folioswap_region_advise(region, 40 * MIB, 1, FOLIOSWAP_COLD), FOLIOSWAP_EINVAL, "beyond the end");
    refused(folioswap_region_advise(region, 1, (size_t)-1, FOLIOSWAP_COLD), FOLIOSWAP_EINVAL, "beyond everything");
    folioswap_pin_free(pin);
    must(folioswap_region_grow(region, 48 * MIB), "grow");
    if (folioswap_region_length(region) != 48 * MIB)
        fail("length");

    must(folioswap_swap_set_notices(swap, FOLIOSWAP_NOTICES_SILENT), "set_notices");
    refused(folioswap_swap_set_notices(swap, 2), FOLIOSWAP_EINVAL, "notices");
    must(folioswap_swap_figure(swap, "thrashing_ms", &out), "thrashing_ms");
    must(folioswap_swap_set_limit(swap, 12 * MIB), "set_limit");
    must(folioswap_swap_figure(swap, "pswpout", &out), "pswpout");
    must(folioswap_swap_figure(swap, "charge", &charge), "charge");
    if (out == 0 || charge > 32 * MIB || folioswap_swap_limit(swap) != 12 * MIB)
        fail("the limit was not kept");
    must(folioswap_swap_describe(swap, text, sizeof text, &needed), "describe");
    if (strlen(text) + 1 != needed)
        fail("describe");
    must(folioswap_swap_close(swap), "close");
    refused(folioswap_region_new(swap, 1, &region), FOLIOSWAP_ECLOSED, "after close");
    folioswap_swap_free(swap);
    if (((uint64_t *)folioswap_region_base(region))[count] != 0)
        fail("a region outlives its swap");
    folioswap_region_free(region);
    folioswap_region_free(NULL);
    puts("sorted");
    return 0;
}
