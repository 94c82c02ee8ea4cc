// Folios of every order, huge pages among them: walks that make them, and random operations that
// split them, against an oracle.
#include "check.h"

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#define HUGE (2 * MIB)

static char *map_aligned(size_t bytes) {
    char *at = map(bytes + HUGE);
    return (char *)(((uintptr_t)at + HUGE - 1) & ~(HUGE - 1));
}

// The kilobytes that a field of /proc/self/smaps states for the mapping at this address.
static size_t of_mapping(const char *at, const char *field) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps);
    char line[512];
    size_t found = 0, start, end, kilobytes, length = strlen(field);
    bool inside = false;
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%zx-%zx ", &start, &end) == 2) inside = (size_t)at >= start && (size_t)at < end;
        if (inside && strncmp(line, field, length) == 0 && sscanf(line + length, ": %zu", &kilobytes) == 1) found = kilobytes;
    }
    fclose(smaps);
    return found;
}

// The walks go in order, backwards, over every other page, and in order again: each pass checks the
// contents that the last one wrote.
static void walk(size_t bytes) {
    char *a = map_aligned(bytes);
    size_t pages = bytes / PAGE;
    fill_all(a, bytes, 1);
    check_all(a, bytes, 1);
    for (size_t page = pages; page-- > 0;) {
        check_page(a + page * PAGE, page, 1);
        fill_page(a + page * PAGE, page, 2);
    }
    for (size_t odd = 0; odd < 2; odd++)
        for (size_t page = odd; page < pages; page += 2) check_page(a + page * PAGE, page, 2);
    fill_all(a, bytes, 3);
    for (size_t i = 0; i < 2000; i++) {
        size_t page = mix(i) % pages;
        check_page(a + page * PAGE, page, 3);
    }
    check_all(a, bytes, 3);
}

// The memory leaves, and comes back in order: if one size alone is allowed, it leaves and comes
// back in that size.
static void there_and_back(size_t bytes) {
    char *a = map_aligned(bytes);
    fill_all(a, bytes, 1);
    check_all(a, bytes, 1);
}

// Memory of huge pages leaves and comes back: the resident part is then huge.
static void huge(size_t bytes) {
    char *a = map_aligned(bytes);
    CHECK(madvise(a, bytes, MADV_HUGEPAGE) == 0);
    fill_all(a, bytes, 1);
    // With nothing resident nothing is huge: while the store is as large as the limit, all of the
    // memory may be swapped out.
    if (of_mapping(a, "Rss") > 0 && of_mapping(a, "AnonHugePages") == 0) {
        printf("no huge pages here\n");
        return;
    }
    check_all(a, bytes, 1);
    size_t resident = of_mapping(a, "Rss"), whole = of_mapping(a, "AnonHugePages");
    fprintf(stderr, "resident %zu kB, huge %zu kB\n", resident, whole);
    if (whole * 10 < resident * 9) FAIL("of %zu kB only %zu are huge", resident, whole);
    // Parts of huge pages are given back, of which some are swapped out and some resident.
    for (size_t block = 0; block + HUGE <= bytes; block += HUGE) {
        size_t first = block / PAGE + 100;
        CHECK(madvise(a + first * PAGE, 50 * PAGE, MADV_DONTNEED) == 0);
    }
    for (size_t page = 0; page < bytes / PAGE; page++) {
        if (page % 512 >= 100 && page % 512 < 150) check_zero(a + page * PAGE, page);
        else check_page(a + page * PAGE, page, 1);
    }
}

// After a fork and the child's end no process shares the memory, which is only read from then on:
// it leaves all the same.
static void forked(size_t bytes) {
    size_t first = bytes / 3;
    char *a = map_aligned(first);
    CHECK(madvise(a, first, MADV_HUGEPAGE) == 0);
    fill_all(a, first, 1);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(0);
    wait_ok(pid);
    press(bytes - first);
    check_all(a, first, 1);
    press(bytes - first);
    check_all(a, first, 1);
}

// Each thread counts in a word of its own in every page, so that a lost update is found.
#define COUNTERS 3
#define PASSES 3
static char *counted;
static size_t counted_pages;

static void *count(void *argument) {
    size_t word = (size_t)argument;
    for (uint64_t pass = 0; pass < PASSES; pass++)
        for (size_t i = 0; i < counted_pages; i++) {
            size_t page = word == 1 ? counted_pages - 1 - i : i;
            uint64_t *at = (uint64_t *)(counted + page * PAGE) + 8 * word;
            if (*at != pass) FAIL("page %zu, word %zu: %lu instead of %lu", page, word, *at, pass);
            *at = pass + 1;
        }
    return 0;
}

static void counters(size_t bytes) {
    counted = map_aligned(bytes);
    counted_pages = bytes / PAGE;
    pthread_t threads[COUNTERS];
    for (size_t i = 0; i < COUNTERS; i++) CHECK(pthread_create(&threads[i], 0, count, (void *)i) == 0);
    for (size_t i = 0; i < COUNTERS; i++) CHECK(pthread_join(threads[i], 0) == 0);
    for (size_t page = 0; page < counted_pages; page++)
        for (size_t word = 0; word < COUNTERS; word++)
            CHECK(*((uint64_t *)(counted + page * PAGE) + 8 * word) == PASSES);
}

// The oracle knows the version of each page of an area; 0 is zeroes. An area belongs to one thread.
struct area {
    char *at;
    size_t pages, operations;
    uint64_t random;
    uint32_t *version;
};

static uint64_t draw(struct area *area, uint64_t below) {
    area->random = mix(area->random);
    return area->random % below;
}

static void check_range(struct area *area, const char *at, size_t first, size_t count) {
    for (size_t page = first; page < first + count; page++, at += PAGE) {
        if (area->version[page]) check_page(at, page, area->version[page]);
        else check_zero(at, page);
    }
}

static void advise(struct area *area, size_t first, size_t count, int advice) {
    if (madvise(area->at + first * PAGE, count * PAGE, advice) != 0)
        FAIL("madvise(%zu, %zu, %d): %s", first, count, advice, strerrordesc_np(errno));
}

static void forget(struct area *area, size_t first, size_t count) {
    for (size_t page = first; page < first + count; page++) area->version[page] = 0;
}

static void in_child(struct area *area, size_t first, size_t count) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        check_range(area, area->at + first * PAGE, first, count);
        for (size_t page = first; page < first + count; page += 7) fill_page(area->at + page * PAGE, page, 77);
        for (size_t page = first; page < first + count; page += 7) check_page(area->at + page * PAGE, page, 77);
        _exit(0);
    }
    // The parent writes meanwhile.
    for (size_t page = first; page < first + count; page += 5)
        fill_page(area->at + page * PAGE, page, ++area->version[page]);
    wait_ok(pid);
}

static void operate(struct area *area) {
    static const size_t lengths[] = {1, 3, 16, 40, 512, 1500};
    size_t count = lengths[draw(area, 6)], first = draw(area, area->pages - count);
    if (count == 512 || draw(area, 3) == 0) {
        first &= ~511UL;
        count = count < 512 ? count : 512;
    }
    char *at = area->at + first * PAGE;
    switch (draw(area, 24)) {
    case 0: case 1: case 2: case 3: case 4: case 5:
        for (size_t page = first; page < first + count; page++)
            fill_page(area->at + page * PAGE, page, ++area->version[page]);
        break;
    case 6: case 7:
        for (size_t page = first + count; page-- > first;)
            fill_page(area->at + page * PAGE, page, ++area->version[page]);
        break;
    case 8: case 9: case 10: case 11: case 12: check_range(area, at, first, count); break;
    case 13: advise(area, first, count, MADV_DONTNEED); forget(area, first, count); break;
    case 14: case 15: advise(area, first, count, MADV_PAGEOUT); break;
    case 16: advise(area, first, count, MADV_COLD); break;
    case 17: advise(area, first, count, MADV_WILLNEED); break;
    case 18: advise(area, first, count, draw(area, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); break;
    case 19: {
        // Other memory takes its place while some of it is swapped out, also from another place
        // within 2 MiB.
        size_t bytes = count * PAGE, room = bytes + HUGE, before = draw(area, 512) * PAGE;
        char *base = map(room), *from = base + before;
        for (size_t page = 0; page < count; page++) fill_page(from + page * PAGE, first + page, ++area->version[first + page]);
        if (draw(area, 2)) CHECK(madvise(from, bytes / 2 & ~(PAGE - 1), MADV_PAGEOUT) == 0);
        CHECK(mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
        if (before) CHECK(munmap(base, before) == 0);
        CHECK(munmap(from + bytes, room - before - bytes) == 0);
        check_range(area, at, first, count);
        break;
    }
    case 20:
        // No other thread may take the hole that munmap(2) would leave.
        CHECK(mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == at);
        forget(area, first, count);
        break;
    case 21:
        CHECK(mprotect(at, count * PAGE, PROT_READ) == 0);
        check_range(area, at, first, count);
        CHECK(mprotect(at, count * PAGE, PROT_READ | PROT_WRITE) == 0);
        break;
    case 22:
        if (draw(area, 8) == 0) in_child(area, first, count);
        break;
    default: check_range(area, area->at + (first & ~511UL) * PAGE, first & ~511UL, 512); break;
    }
}

static void *operate_often(void *argument) {
    struct area *area = argument;
    for (size_t i = 0; i < area->operations; i++) operate(area);
    check_range(area, area->at, 0, area->pages);
    return 0;
}

static void oracle(size_t bytes) {
    enum { THREADS = 3 };
    struct area areas[THREADS];
    pthread_t threads[THREADS];
    const char *seed = getenv("SEED");
    for (size_t i = 0; i < THREADS; i++) {
        size_t pages = bytes / PAGE / THREADS & ~511UL;
        // Behind each is a hole: a mapping of its own.
        areas[i] = (struct area){map_aligned(pages * PAGE), pages, amount(700, 1500), mix(i + 100 * (seed ? strtoul(seed, 0, 10) : 1)),
                                 calloc(pages, sizeof(uint32_t))};
        CHECK(areas[i].version);
    }
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], 0, operate_often, &areas[i]) == 0);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"walk", walk}, {"there_and_back", there_and_back}, {"huge", huge}, {"forked", forked}, {"counters", counters}, {"oracle", oracle}, {0, 0},
    };
    return run_case(tests, argc, argv);
}
