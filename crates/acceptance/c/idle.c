// A program with text in memory that it leaves alone for a while.
//
// idle CASE MIB SECONDS
//   sleeps   fills its memory, leaves it alone for that long, and verifies all of it
//   forks    the same, but from the middle of that time on children verify a part each, while their
//            parent writes to single pages
#include "check.h"

static uint8_t *memory;
static size_t pages;
static uint8_t *versions;

// Words of two to nine letters out of 500, in an order of the page's own: zstd makes the page a
// third smaller than LZ4 does.
static void text_of(uint8_t *at, size_t page, uint64_t version) {
    uint64_t order = mix(page * 1000003 + version);
    for (size_t done = 0; done < PAGE;) {
        order = mix(order);
        uint64_t word = mix(order % 500);
        for (size_t letters = 2 + word % 8; letters > 0 && done < PAGE; letters--) {
            at[done++] = 'a' + (word >>= 4) % 26;
        }
        if (done < PAGE) at[done++] = ' ';
    }
}

static void fill(size_t page) {
    versions[page]++;
    text_of(memory + page * PAGE, page, versions[page]);
}

static void verify(size_t first, size_t step) {
    uint8_t wanted[PAGE];
    for (size_t page = first; page < pages; page += step) {
        text_of(wanted, page, versions[page]);
        if (memcmp(wanted, memory + page * PAGE, PAGE) != 0) FAIL("page %zu of %zu is wrong", page, pages);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fork_until(double end) {
    for (size_t round = 0; now() < end; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            verify(round % 32, 32);
            _exit(0);
        }
        for (size_t page = round; page < pages; page += pages / 8) fill(page);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(status == 0);
        usleep(100000);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    pages = strtoul(arguments[2], NULL, 10) * MIB / PAGE;
    double seconds = strtod(arguments[3], NULL);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    versions = mmap(NULL, pages, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(memory != MAP_FAILED && versions != MAP_FAILED);
    for (size_t page = 0; page < pages; page++) fill(page);
    if (strcmp(arguments[1], "forks") == 0) {
        usleep(seconds * 0.6 * 1e6);
        fork_until(now() + seconds * 0.4);
    } else {
        usleep(seconds * 1e6);
    }
    verify(0, 1);
    printf("ok %s\n", arguments[1]);
}
