// Advice that a program gives with madvise(2) is carried out: MADV_PAGEOUT, MADV_COLD,
// MADV_WILLNEED.
#include "check.h"

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif

static void advise(char *at, size_t bytes, int advice) {
    if (madvise(at, bytes, advice) != 0) FAIL("madvise(%p, %zu, %d): %s", (void *)at, bytes, advice, strerrordesc_np(errno));
}

// The number of resident pages.
static size_t resident(char *at, size_t bytes) {
    size_t pages = bytes / PAGE, count = 0;
    unsigned char *is_in = malloc(pages);
    CHECK(is_in && mincore(at, bytes, is_in) == 0);
    for (size_t page = 0; page < pages; page++) count += is_in[page] & 1;
    free(is_in);
    return count;
}

static void expect(const char *what, size_t is, size_t least, size_t most) {
    if (is < least || is > most) FAIL("%s: %zu pages, not %zu to %zu", what, is, least, most);
}

static void page_out(size_t bytes) {
    size_t pages = bytes / PAGE;
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    expect("before", resident(a, bytes), pages, pages);
    advise(a, bytes, MADV_PAGEOUT);
    expect("after", resident(a, bytes), 0, 0);
    check_all(a, bytes, 1);
    expect("touched", resident(a, bytes), pages, pages);
    // The range crosses pieces of 64 KiB, or lies within one: these pages leave and no others.
    size_t parts[][2] = {{5, 37}, {200, 1}, {400, 16}, {1000, 700}};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t first = parts[i][0], count = parts[i][1];
        advise(a + first * PAGE, count * PAGE, MADV_PAGEOUT);
        expect("of the part", resident(a + first * PAGE, count * PAGE), 0, 0);
        expect("around the part", resident(a, bytes), pages - count, pages - count);
        check_all(a, bytes, 1);
    }
    // Some pages keep their stored copy, and some have none any more.
    fill_all(a, bytes / 2, 2);
    advise(a, bytes, MADV_PAGEOUT);
    expect("clean and dirty", resident(a, bytes), 0, 0);
    check_all(a, bytes / 2, 2);
    for (size_t page = pages / 2; page < pages; page++) check_page(a + page * PAGE, page, 1);
    // A range that begins within a page, an empty one, one with a hole and a locked one are
    // answered as by the kernel.
    CHECK(madvise(a + 8, PAGE, MADV_PAGEOUT) == -1 && errno == EINVAL);
    CHECK(madvise(a, 0, MADV_PAGEOUT) == 0);
    CHECK(munmap(a + 100 * PAGE, 50 * PAGE) == 0);
    CHECK(madvise(a, 200 * PAGE, MADV_PAGEOUT) == -1 && errno == ENOMEM);
    expect("before the hole", resident(a, 100 * PAGE), 0, 0);
    expect("behind the hole", resident(a + 150 * PAGE, 50 * PAGE), 0, 0);
    CHECK(mlock(a + 300 * PAGE, 20 * PAGE) == 0);
    CHECK(madvise(a + 300 * PAGE, 20 * PAGE, MADV_PAGEOUT) == -1 && errno == EINVAL);
    expect("locked", resident(a + 300 * PAGE, 20 * PAGE), 20, 20);
    check_all(a, 100 * PAGE, 2);
    for (size_t page = 150; page < pages; page++) check_page(a + page * PAGE, page, page < pages / 2 ? 2 : 1);
}

// Cold pages leave first, although they lie behind the rest and were touched last.
static void cold(size_t bytes) {
    size_t half = bytes / 2, pages = half / PAGE;
    char *warm = map(bytes), *cold = warm + half;
    fill_all(warm, bytes, 1);
    // This pass makes all of the memory hot.
    advise(warm, bytes, MADV_PAGEOUT);
    check_all(warm, bytes, 1);
    advise(cold, half, MADV_COLD);
    expect("advised only", resident(cold, half), pages, pages);
    char *more = map(bytes * 9 / 16);
    fill_all(more, bytes * 9 / 16, 2);
    size_t left = resident(cold, half), kept = resident(warm, half);
    if (kept < pages * 9 / 10 || left > pages * 9 / 10) FAIL("%zu pages of the cold half are in, and %zu of the other, of %zu each", left, kept, pages);
    check_all(warm, bytes, 1);
    check_all(more, bytes * 9 / 16, 2);
}

static void will_need(size_t bytes) {
    size_t pages = bytes / PAGE;
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    advise(a, bytes, MADV_PAGEOUT);
    advise(a + 100 * PAGE, 500 * PAGE, MADV_WILLNEED);
    expect("wanted", resident(a + 100 * PAGE, 500 * PAGE), 500, 500);
    advise(a, bytes, MADV_WILLNEED);
    expect("all wanted", resident(a, bytes), pages, pages);
    check_all(a, bytes, 1);
    // MADV_WILLNEED asks for more than there is room for: as much as fits comes back.
    char *b = map(4 * bytes);
    fill_all(b, 4 * bytes, 2);
    advise(b, 4 * bytes, MADV_WILLNEED);
    check_all(b, 4 * bytes, 2);
    check_all(a, bytes, 1);
}

static char *storm_memory;
static size_t storm_pages;
static atomic_bool storm_over;
static uint8_t *storm_versions;

// Checks each page of its half and writes it anew, again and again.
static void *write_storm(void *which) {
    size_t half = storm_pages / 2, first = (uintptr_t)which * half;
    for (uint64_t random = (uintptr_t)which + 1; !storm_over; random = mix(random)) {
        size_t page = first + random % half;
        check_page(storm_memory + page * PAGE, page, storm_versions[page]);
        if (random >> 60 < 6) fill_page(storm_memory + page * PAGE, page, ++storm_versions[page]);
    }
    return 0;
}

static void *advise_storm(void *which) {
    static const int advices[] = {MADV_PAGEOUT, MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED};
    for (uint64_t random = 77 + (uintptr_t)which; !storm_over; random = mix(random)) {
        size_t most = random >> 40 & 1 ? 40 : 3000, count = 1 + (random >> 44) % most;
        advise(storm_memory + random % (storm_pages - count) * PAGE, count * PAGE, advices[random >> 62]);
    }
    return 0;
}

// Two threads write, two advise, and children are forked meanwhile and advise too.
static void storm(size_t bytes) {
    size_t still = bytes / 8;
    char *a = map(still);
    fill_all(a, still, 1);
    storm_pages = (bytes - still) / PAGE;
    storm_memory = map(storm_pages * PAGE);
    storm_versions = calloc(1, storm_pages);
    CHECK(storm_versions);
    fill_all(storm_memory, storm_pages * PAGE, 0);
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], 0, i < 2 ? write_storm : advise_storm, (void *)(i % 2)) == 0);
    for (int child = 0; child < 20; child++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            advise(a, still, MADV_PAGEOUT);
            check_all(a, still, 1);
            fill_all(a, still / 4, 3);
            advise(a, still / 2, MADV_PAGEOUT);
            check_all(a, still / 4, 3);
            for (size_t page = still / 4 / PAGE; page < still / PAGE; page++) check_page(a + page * PAGE, page, 1);
            _exit(0);
        }
        advise(a, still, child % 2 ? MADV_PAGEOUT : MADV_COLD);
        wait_ok(pid);
        check_all(a, still, 1);
    }
    storm_over = true;
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], 0) == 0);
    for (size_t page = 0; page < storm_pages; page++) check_page(storm_memory + page * PAGE, page, storm_versions[page]);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {{"page-out", page_out}, {"cold", cold}, {"will-need", will_need}, {"storm", storm}, {0, 0}};
    return run_case(tests, argc, argv);
}
