// Children read the memory that their parent had at the fork, whatever either does afterwards.
#include "check.h"
#include <spawn.h>

extern char **environ;

static char *memory;
static size_t size;

// Verifies all of the memory from any starting point, changes a third, and verifies again.
static void child_works(uint64_t version, unsigned number) {
    size_t pages = size / PAGE, start = mix(number) % pages;
    for (size_t i = 0; i < pages; i++) {
        size_t page = (start + i) % pages;
        check_page(memory + page * PAGE, page, version);
    }
    for (size_t page = number % 3; page < pages; page += 3) fill_page(memory + page * PAGE, page, 100 + number);
    for (size_t page = 0; page < pages; page++)
        check_page(memory + page * PAGE, page, page % 3 == number % 3 ? 100 + number : version);
    _exit(0);
}

// The parent rewrites everything while its children read.
static void storm(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    for (uint64_t round = 0; round < amount(2, 3); round++) {
        pid_t children[3];
        for (unsigned i = 0; i < 3; i++) {
            children[i] = fork();
            CHECK(children[i] >= 0);
            if (children[i] == 0) child_works(round, i);
        }
        fill_all(memory, size, round + 1);
        check_all(memory, size, round + 1);
        for (unsigned i = 0; i < 3; i++) wait_ok(children[i]);
        check_all(memory, size, round + 1);
    }
}

// The child ends at once; its own child goes on with memory that was inherited in two steps.
static void grandchildren(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    size_t wanted = amount(2, 3);
    for (size_t i = 0; i < wanted; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (size_t page = 0; page < size / PAGE; page += 2) fill_page(memory + page * PAGE, page, 1);
            pid_t grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild > 0) _exit(0);
            for (int pass = 0; pass < 2; pass++)
                for (size_t page = 0; page < size / PAGE; page++)
                    check_page(memory + page * PAGE, page, page % 2 == 0);
            CHECK(write(ends[1], "y", 1) == 1);
            _exit(0);
        }
        wait_ok(child);
        fill_all(memory, size, 2);
        fill_all(memory, size, 0);
    }
    close(ends[1]);
    char buffer[8];
    size_t got = 0;
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) got += n;
    if (got != wanted) FAIL("%zu of %zu grandchildren found their data", got, wanted);
    check_all(memory, size, 0);
}

// Each generation changes an eighth and forks the next.
static void generations(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    pid_t child = 0;
    for (uint64_t generation = 1; generation <= 5; generation++) {
        child = fork();
        CHECK(child >= 0);
        if (child > 0) {
            wait_ok(child);
            for (size_t page = 0; page < size / PAGE; page++)
                check_page(memory + page * PAGE, page, page % 8 != 0 && page % 8 < generation ? page % 8 : 0);
            if (generation > 1) _exit(0);
            return;
        }
        for (size_t page = generation; page < size / PAGE; page += 8) fill_page(memory + page * PAGE, page, generation);
    }
    for (size_t page = 0; page < size / PAGE; page++)
        check_page(memory + page * PAGE, page, page % 8 <= 5 ? page % 8 : 0);
    _exit(0);
}

// The parent has ended before the child looks.
static void orphan(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    // The parent's number is asked for before the fork, because the parent may have ended before
    // the child asks.
    pid_t parent = getpid();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) return;
    while (getppid() == parent) usleep(1000);
    check_all(memory, size, 0);
    fill_all(memory, size, 1);
    check_all(memory, size, 1);
    printf("child ok\n");
    fflush(stdout);
    _exit(0);
}

static atomic_bool stop;
static uint64_t *busy;
static size_t busy_bytes;

static void *change(void *argument) {
    size_t half = (size_t)argument, words = busy_bytes / 8;
    for (uint64_t n = 0; !stop; n++) {
        size_t page = mix(n + half) % (words / WORDS / 2) + half * (words / WORDS / 2);
        volatile uint64_t *at = busy + page * WORDS;
        at[0]++;
        atomic_signal_fence(memory_order_seq_cst);
        at[256]++;
    }
    return 0;
}

static void *forker(void *argument) {
    size_t number = (size_t)argument, quarter = size / 4;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int part = 0; part < 2; part++) {
                size_t start = (number + part) % 4 * (quarter / PAGE);
                for (size_t page = start; page < start + quarter / PAGE; page++)
                    check_page(memory + page * PAGE, page, 0);
            }
            for (size_t page = 0; page < busy_bytes / PAGE; page++) {
                uint64_t a = busy[page * WORDS], b = busy[page * WORDS + 256];
                if (a != b && a != b + 1) FAIL("busy page %zu: %lu and %lu", page, a, b);
                busy[page * WORDS] = 1UL << 40;
            }
            _exit(0);
        }
        wait_ok(child);
    }
    return 0;
}

// Several threads fork while others write.
static void threads(size_t bytes) {
    size = bytes / 4 * 3;
    busy_bytes = bytes / 4;
    memory = map(size);
    busy = (uint64_t *)map(busy_bytes);
    fill_all(memory, size, 0);
    pthread_t changers[2], forkers[4];
    for (size_t i = 0; i < 2; i++) CHECK(pthread_create(&changers[i], 0, change, (void *)i) == 0);
    for (size_t i = 0; i < 4; i++) CHECK(pthread_create(&forkers[i], 0, forker, (void *)i) == 0);
    for (size_t i = 0; i < 4; i++) pthread_join(forkers[i], 0);
    stop = true;
    for (size_t i = 0; i < 2; i++) pthread_join(changers[i], 0);
    for (size_t page = 0; page < busy_bytes / PAGE; page++)
        if (busy[page * WORDS] != busy[page * WORDS + 256] || busy[page * WORDS] >> 40)
            FAIL("busy page %zu: %lu and %lu", page, busy[page * WORDS], busy[page * WORDS + 256]);
    check_all(memory, size, 0);
}

// vfork + exec and posix_spawn, between touches of all memory.
static void spawn(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    size_t pages = size / PAGE;
    for (int i = 0; i < 60; i++) {
        pid_t child;
        if (i % 2) {
            child = vfork();
            if (child == 0) {
                execl("/bin/true", "true", (char *)0);
                _exit(127);
            }
        } else {
            char *words[] = {"true", 0};
            CHECK(posix_spawn(&child, "/bin/true", 0, 0, words, environ) == 0);
        }
        CHECK(child > 0);
        for (size_t n = 0; n < pages / 30; n++) {
            size_t page = mix(n * 64 + i) % pages;
            check_page(memory + page * PAGE, page, 0);
        }
        wait_ok(child);
    }
    // A vforked child reads and writes its parent's memory.
    volatile int seen = 0;
    pid_t child = vfork();
    if (child == 0) {
        for (size_t page = 0; page < pages; page += 7)
            if (*(uint64_t *)(memory + page * PAGE) != mix(page * 1000003)) _exit(1);
        seen = 42;
        _exit(0);
    }
    wait_ok(child);
    CHECK(seen == 42);
    check_all(memory, size, 0);
}

static pid_t bare_clone(void) { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

// A child that no C library prepared: its parent brings back the pages that it touches, and no
// thread can take them out of it again. The child reads and writes a part of its inheritance that
// fits the limit, while its parent rewrites everything or waits.
static void raw_clone(size_t bytes) {
    enum { STEP = 32 };
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    for (uint64_t round = 0; round < 3; round++) {
        // Memory that is resident at the clone stays in the child, and counts for good, so it must
        // be small. Pressure of less than twice the limit would leave it to the clock which pages
        // those are.
        press(bytes);
        pid_t child = bare_clone();
        CHECK(child >= 0);
        if (child == 0) {
            for (size_t page = round; page < size / PAGE; page += STEP) check_page(memory + page * PAGE, page, round);
            for (size_t page = round; page < size / PAGE; page += 2 * STEP) fill_page(memory + page * PAGE, page, 50);
            for (int pass = 0; pass < 3; pass++)
                for (size_t page = round; page < size / PAGE; page += STEP)
                    check_page(memory + page * PAGE, page, (page - round) % (2 * STEP) ? round : 50);
            syscall(SYS_exit_group, 0);
        }
        if (round != 1) {
            fill_all(memory, size, round + 1);
            wait_ok(child);
        } else {
            wait_ok(child);
            check_all(memory, size, round);
            fill_all(memory, size, round + 1);
        }
        check_all(memory, size, round + 1);
    }
}

// Such a child reads more than the limit holds.
static void raw_clone_too_much(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    pid_t child = bare_clone();
    CHECK(child >= 0);
    if (child == 0) {
        for (;;) check_all(memory, size, 0);
    }
    wait_ok(child);
}

// The parent of a bare clone ends first. The child finds its data or is ended; it never reads
// anything else.
static void raw_orphan(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    pid_t child = bare_clone();
    CHECK(child >= 0);
    if (child > 0) {
        usleep(20000);
        return;
    }
    for (int pass = 0; pass < 3; pass++) check_all(memory, size, 0);
    syscall(SYS_exit_group, 0);
}

// Memory that a child shall not inherit (MADV_DONTFORK), or shall find empty (MADV_WIPEONFORK).
static void advice(size_t bytes) {
    size_t part = bytes / 4;
    char *wiped = map(part), *kept = map(part), *absent = map(part);
    fill_all(wiped, part, 1);
    fill_all(kept, part, 2);
    fill_all(absent, part, 3);
    CHECK(madvise(wiped, part, MADV_WIPEONFORK) == 0);
    CHECK(madvise(absent, part, MADV_DONTFORK) == 0);
    press(bytes / 2);
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            zero_all(wiped, part);
            check_all(kept, part, 2);
            int ends[2];
            CHECK(pipe(ends) == 0);
            // A mapping of this process may lie there by now, but no memory of its parent's.
            size_t found = 0;
            for (size_t page = 0; page < part / PAGE; page += 16) {
                uint64_t word;
                ssize_t got = write(ends[1], absent + page * PAGE, sizeof word);
                if (got == -1) {
                    CHECK(errno == EFAULT);
                    continue;
                }
                CHECK(got == sizeof word && read(ends[0], &word, sizeof word) == sizeof word);
                CHECK(word != mix(page * 1000003 + 3));
                found++;
            }
            CHECK(found < part / PAGE / 16);
            fill_all(wiped, part, 7);
            fill_all(kept, part, 7);
            press(bytes / 2);
            check_all(wiped, part, 7);
            check_all(kept, part, 7);
            _exit(0);
        }
        wait_ok(child);
        check_all(wiped, part, 1);
        check_all(kept, part, 2);
        check_all(absent, part, 3);
    }
}

// A child checks every eighth page of memory that it shall find empty, or unchanged.
static void sample(const char *at, size_t bytes, uint64_t version) {
    for (size_t page = 0; page < bytes / PAGE; page += 8)
        if (version) check_page(at + page * PAGE, page, version);
        else check_zero(at + page * PAGE, page);
}

// The same advice where the agent does not see it, or where it no longer holds: given by a system
// call of the program's own, for memory that moves or grows afterwards, or that is given back
// before anything is swapped out, with new memory in its place. The C library's fork and a bare
// clone are both used.
static void wiped(size_t bytes) {
    size_t part = bytes / 8;
    char *again = map(part);
    CHECK(madvise(again, part, MADV_WIPEONFORK) == 0);
    CHECK(munmap(again, part) == 0);
    CHECK(mmap(again, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == again);
    char *unseen = map(part), *moves = map(part), *grows = map(2 * part), *place = map(part), *kept = map(part);
    CHECK(syscall(SYS_madvise, unseen, part, MADV_WIPEONFORK) == 0);
    CHECK(madvise(moves, part, MADV_WIPEONFORK) == 0);
    CHECK(madvise(grows, part, MADV_WIPEONFORK) == 0);
    fill_all(again, part, 1);
    fill_all(unseen, part, 2);
    fill_all(moves, part, 3);
    fill_all(grows, part, 4);
    fill_all(kept, part, 5);
    press(bytes / 2);
    CHECK(mremap(moves, part, part, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK(munmap(grows + part, part) == 0);
    CHECK(mremap(grows, part, 2 * part, 0) == grows);
    fill_all(grows + part, part, 6);
    for (int round = 0; round < 4; round++) {
        press(bytes / 2);
        pid_t child = round % 2 ? bare_clone() : fork();
        CHECK(child >= 0);
        if (child == 0) {
            sample(unseen, part, 0);
            sample(place, part, 0);
            sample(grows, 2 * part, 0);
            sample(again, part, 1);
            sample(kept, part, 5);
            syscall(SYS_exit_group, 0);
        }
        wait_ok(child);
    }
    check_all(again, part, 1);
    check_all(unseen, part, 2);
    check_all(place, part, 3);
    check_all(grows, part, 4);
    check_all(grows + part, part, 6);
    check_all(kept, part, 5);
}

// Many short children exist at once, each of which checks a few pages.
static void burst(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    size_t pages = size / PAGE;
    for (int round = 0; round < 6; round++) {
        pid_t children[12];
        for (int i = 0; i < 12; i++) {
            children[i] = fork();
            CHECK(children[i] >= 0);
            if (children[i] == 0) {
                for (size_t n = 0; n < 500; n++) {
                    size_t page = mix(n * 1024 + round * 16 + i) % pages;
                    check_page(memory + page * PAGE, page, 0);
                    if (n % 5 == 0) memset(memory + page * PAGE, 0xee, PAGE), fill_page(memory + page * PAGE, page, 0);
                }
                _exit(0);
            }
        }
        for (int i = 0; i < 12; i++) wait_ok(children[i]);
    }
    check_all(memory, size, 0);
}

static void *fork_often(void *argument) {
    size_t pages = size / PAGE, first = (size_t)argument;
    for (size_t n = 0; n < 40; n++) {
        pid_t child = fork();
        CHECK(child >= 0);
        size_t page = mix(first + n * 8) % pages;
        if (child == 0) {
            check_page(memory + page * PAGE, page, 0);
            _exit(0);
        }
        // The next thread's fork begins while this one has not returned yet.
        wait_ok(child);
    }
    return NULL;
}

// Several threads make many short forks at once: one begins as soon as the one before it ends.
static void often(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
    pthread_t threads[6];
    for (size_t i = 0; i < 6; i++) CHECK(pthread_create(&threads[i], NULL, fork_often, (void *)i) == 0);
    for (size_t i = 0; i < 6; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    check_all(memory, size, 0);
}

// The mappings of this process, and its address space in KiB.
static void address_space(long *mappings, long *kib) {
    char line[512];
    *mappings = *kib = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) *mappings += 1;
    CHECK(fclose(file) == 0);
    CHECK((file = fopen("/proc/self/status", "r")) != NULL);
    while (fgets(line, sizeof line, file)) sscanf(line, "VmSize: %ld", kib);
    CHECK(fclose(file) == 0);
}

// Each generation is the only child of the one before, which has ended. The last has no more
// mappings and address space than an early one.
static void dynasty(size_t bytes) {
    int last = amount(600, 20000);
    size_t pages = bytes / PAGE;
    memory = map(bytes);
    fill_all(memory, bytes, 0);
    int done[2];
    CHECK(pipe(done) == 0);
    pid_t first = fork();
    CHECK(first >= 0);
    if (first > 0) {
        char answer = 0;
        CHECK(close(done[1]) == 0);
        wait_ok(first);
        CHECK(read(done[0], &answer, 1) == 1 && answer == 'y');
        check_all(memory, bytes, 0);
        return;
    }
    long early_mappings = 0, early_kib = 0, mappings, kib;
    for (int generation = 1; generation <= last; generation++) {
        size_t page = mix(generation) % pages;
        check_page(memory + page * PAGE, page, 0);
        if (generation == 100) address_space(&early_mappings, &early_kib);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child > 0) _exit(0);
    }
    address_space(&mappings, &kib);
    if (mappings > early_mappings + 8 || kib > early_kib + 4096)
        FAIL("generation 100 had %ld mappings and %ld KiB, generation %d has %ld and %ld", early_mappings, early_kib,
             last, mappings, kib);
    CHECK(write(done[1], "y", 1) == 1);
    _exit(0);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"storm", storm},         {"grandchildren", grandchildren}, {"generations", generations},
        {"orphan", orphan},       {"threads", threads},             {"spawn", spawn},
        {"raw-clone", raw_clone}, {"raw-clone-too-much", raw_clone_too_much}, {"raw-orphan", raw_orphan},       {"advice", advice},
        {"wiped", wiped},         {"burst", burst},         {"often", often},
        {"dynasty", dynasty},     {0, 0},
    };
    return run_case(tests, argc, argv);
}
