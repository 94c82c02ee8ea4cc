// Changes that a program makes to its address space keep their meaning while the memory is swapped
// out.
#include "check.h"
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <ucontext.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static void *move(void *old, size_t from, size_t to, int flags, void *target) {
    void *at = mremap(old, from, to, flags, target);
    if (at == MAP_FAILED) FAIL("mremap(%p, %zu, %zu, %d, %p): %s", old, from, to, flags, target, strerrordesc_np(errno));
    return at;
}

// Mappings grow, move, shrink, move onto other memory, and lose pieces from the middle.
static void remap(size_t bytes) {
    size_t half = bytes / 2;
    char *a = map(half);
    fill_all(a, half, 1);
    press(half);
    // The mapping grows. It has to move if another follows it, and may stay otherwise.
    a = move(a, half, bytes, MREMAP_MAYMOVE, 0);
    check_all(a, half, 1);
    zero_all(a + half, half);
    for (size_t page = half / PAGE; page < bytes / PAGE; page++) fill_page(a + page * PAGE, page, 1);
    press(half);
    check_all(a, bytes, 1);
    // The mapping shrinks.
    CHECK(move(a, bytes, half, 0, 0) == a);
    CHECK(msync(a + half, PAGE, MS_ASYNC) == -1 && errno == ENOMEM);
    // It moves onto other swapped memory, whose contents go.
    char *b = map(bytes);
    fill_all(b, bytes, 2);
    press(half);
    a = move(a, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, b + PAGE * 5);
    CHECK(a == b + PAGE * 5);
    check_all(a, half, 1);
    for (size_t page = 0; page < bytes / PAGE; page++)
        if (page < 5 || page >= 5 + half / PAGE) check_page(b + page * PAGE, page, 2);
    CHECK(munmap(b, bytes) == 0);
    // Pieces out of the middle of one mapping move to odd places.
    a = map(half);
    fill_all(a, half, 3);
    char *places = map(bytes);
    CHECK(munmap(places, bytes) == 0);
    size_t piece = 37 * PAGE, count = half / piece;
    press(half);
    for (size_t i = 0; i < count; i++)
        CHECK(move(a + i * piece, piece, piece, MREMAP_MAYMOVE | MREMAP_FIXED, places + (count - 1 - i) * (piece + PAGE)) ==
              places + (count - 1 - i) * (piece + PAGE));
    press(half);
    for (size_t i = 0; i < count; i++)
        for (size_t page = 0; page < 37; page++)
            check_page(places + (count - 1 - i) * (piece + PAGE) + page * PAGE, i * 37 + page, 3);
}

// A mapping that no report announces before it is found.
static char *map_unheard(size_t bytes) {
    char *at = (char *)syscall(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void populate_zeroes(char *at, size_t bytes) { CHECK(madvise(at, bytes, MADV_POPULATE_READ) == 0 || errno == EINVAL); }

// The memory is first read, which costs no memory and is not seen, and then written.
static void zeroes(size_t bytes) {
    char *a = map(bytes);
    zero_all(a, bytes);
    fill_all(a, bytes, 1);
    check_all(a, bytes, 1);
    CHECK(munmap(a, bytes) == 0);
    // All other memory is managed by now, and these writes are as fast as can be.
    a = map_unheard(bytes);
    populate_zeroes(a, bytes);
    fill_all(a, bytes, 2);
    check_all(a, bytes, 2);
}

// Children do the same with memory that their parent has read: once before any of it is managed,
// then just before the fork.
static void zeroes_forked(size_t bytes) {
    char *a = map(bytes);
    zero_all(a, bytes);
    for (int child = 0; child < 3; child++) {
        if (child == 1) {
            char *more = map(bytes / 2);
            fill_all(more, bytes / 2, 9);
            check_all(more, bytes / 2, 9);
            CHECK(munmap(more, bytes / 2) == 0);
        }
        if (child > 0) {
            CHECK(munmap(a, bytes) == 0);
            a = map_unheard(bytes);
            populate_zeroes(a, bytes);
        }
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            zero_all(a, bytes);
            fill_all(a, bytes, child);
            check_all(a, bytes, child);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    fill_all(a, bytes, 7);
    check_all(a, bytes, 7);
}

// The mapping grows step by step, as with realloc, and is verified now and then.
static void remap_steps(size_t bytes) {
    size_t size = MIB;
    char *a = map(size);
    fill_all(a, size, 4);
    while (size < bytes) {
        size_t next = (size + size / 3 + PAGE) / PAGE * PAGE;
        if (next > bytes) next = bytes;
        a = move(a, size, next, MREMAP_MAYMOVE, 0);
        for (size_t page = size / PAGE; page < next / PAGE; page++) {
            check_zero(a + page * PAGE, page);
            fill_page(a + page * PAGE, page, 4);
        }
        size = next;
        for (size_t page = 0; page < size / PAGE; page += 61) check_page(a + page * PAGE, page, 4);
    }
    check_all(a, size, 4);
    while (size > MIB) {
        size_t next = size / 2 / PAGE * PAGE;
        a = move(a, size, next, MREMAP_MAYMOVE, 0);
        size = next;
        check_all(a, size, 4);
    }
}

// The old place stays mapped and must read as zeroes.
static void remap_keep(size_t bytes) {
    size_t half = bytes / 2;
    char *a = map(half);
    for (int round = 0; round < 3; round++) {
        fill_all(a, half, round);
        press(half);
        char *b = move(a, half, half, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
        CHECK(b != a);
        zero_all(a, half);
        check_all(b, half, round);
        fill_all(a, half, 60);
        check_all(b, half, round);
        check_all(a, half, 60);
        CHECK(munmap(b, half) == 0);
    }
}

static size_t slice_bytes;
static char *shared;

static void *give_up(void *argument) {
    size_t thread = (size_t)argument, pages = slice_bytes / PAGE;
    // The threads take turns page by page, so that the neighbours of a page always belong to other
    // threads.
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < pages; i++) fill_page(shared + (i * 4 + thread) * PAGE, i, thread * 8 + round);
        for (size_t i = round; i < pages; i += 3) {
            char *at = shared + (i * 4 + thread) * PAGE;
            check_page(at, i, thread * 8 + round);
            CHECK(madvise(at, PAGE, MADV_DONTNEED) == 0);
            check_zero(at, i);
            if (i % 2) fill_page(at, i, 77);
        }
        for (size_t i = 0; i < pages; i++) {
            char *at = shared + (i * 4 + thread) * PAGE;
            if (i % 3 != round) check_page(at, i, thread * 8 + round);
            else if (i % 2) check_page(at, i, 77);
            else check_zero(at, i);
        }
    }
    return 0;
}

// After MADV_DONTNEED a page reads as zeroes, whether it was swapped out, resident or on its way.
static void dontneed(size_t bytes) {
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    for (size_t page = 0; page < bytes / PAGE; page += 3) CHECK(madvise(a + page * PAGE, PAGE, MADV_DONTNEED) == 0);
    for (size_t page = 0; page < bytes / PAGE; page++)
        if (page % 3) check_page(a + page * PAGE, page, 1);
        else check_zero(a + page * PAGE, page);
    fill_all(a, bytes, 2);
    CHECK(madvise(a, bytes, MADV_DONTNEED) == 0);
    zero_all(a, bytes);
    fill_all(a, bytes, 3);
    CHECK(madvise(a + bytes / 4, bytes / 2, MADV_DONTNEED) == 0);
    zero_all(a + bytes / 4, bytes / 2);
    check_all(a, bytes / 4, 3);
    CHECK(munmap(a, bytes) == 0);
    slice_bytes = bytes / 4;
    shared = map(bytes);
    pthread_t workers[4];
    for (size_t i = 0; i < 4; i++) CHECK(pthread_create(&workers[i], 0, give_up, (void *)i) == 0);
    for (size_t i = 0; i < 4; i++) pthread_join(workers[i], 0);
}

// After MADV_FREE a page has its old contents or zeroes, and later writes to it stay.
static void lazy_free(size_t bytes) {
    char *a = map(bytes);
    for (uint64_t round = 1; round <= 3; round++) {
        fill_all(a, bytes, round);
        CHECK(madvise(a, bytes, MADV_FREE) == 0);
        for (size_t page = 0; page < bytes / PAGE; page += 5) fill_page(a + page * PAGE, page, 30 + round);
        press(bytes / 2);
        for (size_t page = 0; page < bytes / PAGE; page++) {
            char *at = a + page * PAGE;
            if (page % 5 == 0) check_page(at, page, 30 + round);
            else if (*(uint64_t *)at == 0) check_zero(at, page);
            else check_page(at, page, round);
        }
    }
}

// The other kinds of advice do not change the contents.
static void advices(size_t bytes) {
    static const int all[] = {MADV_COLD, MADV_PAGEOUT, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WILLNEED,
                              MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL, MADV_DONTDUMP, MADV_DODUMP};
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        // MADV_PAGEOUT may be refused without swap, and the huge page advice without support for
        // huge pages.
        int result = madvise(a + i * 5 * PAGE, bytes - i * 11 * PAGE, all[i]);
        CHECK(result == 0 || errno == EINVAL);
        for (size_t page = i; page < bytes / PAGE; page += 9) check_page(a + page * PAGE, page, 1);
    }
    size_t part = bytes / 16;
    CHECK(madvise(a, part, MADV_POPULATE_READ) == 0);
    CHECK(madvise(a + part, part, MADV_POPULATE_WRITE) == 0);
    check_all(a, bytes, 1);
}

// MAP_FIXED over swapped memory, and unmapping and mapping again, read as zeroes, and the
// neighbours keep their contents.
static void replace(size_t bytes) {
    char *a = map(bytes);
    size_t quarter = bytes / 4;
    for (int round = 0; round < 3; round++) {
        fill_all(a, bytes, 1);
        char *middle = a + quarter + round * PAGE;
        if (round == 1) {
            CHECK(munmap(middle, quarter) == 0);
            CHECK(mmap(middle, quarter, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
                       -1, 0) == middle);
        } else {
            CHECK(mmap(middle, quarter, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                       0) == middle);
        }
        zero_all(middle, quarter);
        fill_all(middle, quarter, 5);
        press(bytes / 2);
        check_all(middle, quarter, 5);
        size_t first = (middle - a) / PAGE;
        for (size_t page = 0; page < bytes / PAGE; page++)
            if (page < first || page >= first + quarter / PAGE) check_page(a + page * PAGE, page, 1);
    }
    // A file is mapped over the middle, and unmapped again.
    char name[] = "/var/tmp/folioswap-acc-map-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0);
    for (size_t page = 0; page < 512; page++) {
        char buffer[PAGE];
        fill_page(buffer, page, 6);
        CHECK(write(file, buffer, PAGE) == PAGE);
    }
    fill_all(a, bytes, 2);
    press(bytes / 2);
    CHECK(mmap(a + quarter, 512 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == a + quarter);
    check_all(a + quarter, 512 * PAGE, 6);
    fill_all(a + quarter, 512 * PAGE, 7);
    press(bytes / 2);
    check_all(a + quarter, 512 * PAGE, 7);
    check_all(a, quarter, 2);
    CHECK(mmap(a + quarter, 512 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a + quarter);
    zero_all(a + quarter, 512 * PAGE);
    for (size_t page = quarter / PAGE + 512; page < bytes / PAGE; page++) check_page(a + page * PAGE, page, 2);
    CHECK(munmap(a, bytes) == 0);
    // Many small holes are made.
    for (int round = 0; round < 20; round++) {
        a = map(bytes / 8);
        zero_all(a, bytes / 8);
        fill_all(a, bytes / 8, round);
        for (size_t page = 0; page < bytes / 8 / PAGE; page += 16) CHECK(munmap(a + page * PAGE, PAGE * 2) == 0);
        for (size_t page = 0; page < bytes / 8 / PAGE; page++)
            if (page % 16 > 1) check_page(a + page * PAGE, page, round);
        CHECK(munmap(a, bytes / 8) == 0);
    }
}

static sigjmp_buf back;
static void *volatile fault_address;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fault_address = info->si_addr;
    siglongjmp(back, 1);
}

static void expect_fault(volatile char *at, bool write) {
    if (sigsetjmp(back, 1) == 0) {
        if (write) *at = 1;
        else (void)*at;
        FAIL("%s of %p should have been refused", write ? "a write" : "a read", (void *)at);
    }
    CHECK(fault_address == (void *)at);
}

static size_t present(char *at, size_t bytes) {
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CHECK(map >= 0);
    size_t count = 0;
    for (size_t page = 0; page < bytes / PAGE; page++) {
        uint64_t word;
        CHECK(pread(map, &word, 8, ((uintptr_t)at / PAGE + page) * 8) == 8);
        count += word >> 63;
    }
    close(map);
    return count;
}

#define EVERY 16

// Whether the kernel moves two mappings by one call, if it serves neither by a userfaultfd.
static bool can_move_several(void) {
    char *from = mmap(0, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *to = mmap(0, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(from != MAP_FAILED && to != MAP_FAILED && mprotect(from + PAGE, PAGE, PROT_NONE) == 0);
    return mremap(from, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

// Eight mappings in a row, and a gap in the place of a ninth, move by one call and back again.
static void move_several(size_t bytes) {
    enum { PARTS = 9, GAP = 5 };
    if (!can_move_several()) return;
    size_t part = bytes / PARTS / PAGE * PAGE, whole = part * PARTS;
    char *a = map(whole), *b = map(whole);
    fill_all(a, whole, 1);
    // What differs in this is a mapping of its own.
    for (int i = 0; i < PARTS; i += 2) CHECK(madvise(a + i * part, part, MADV_DONTDUMP) == 0);
    CHECK(munmap(a + GAP * part, part) == 0);
    for (int round = 0; round < 3; round++) {
        press(whole);
        fill_page(b + GAP * part, 7, 7);
        CHECK(mremap(a, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, b) == b);
        for (size_t page = 0; page < whole / PAGE; page++)
            if (page / (part / PAGE) != GAP) check_page(b + page * PAGE, page, round + 1);
        check_page(b + GAP * part, 7, 7);
        for (size_t page = 0; page < whole / PAGE; page++)
            if (page / (part / PAGE) != GAP) fill_page(b + page * PAGE, page, round + 2);
        char *other = a;
        a = b, b = other;
        CHECK(munmap(a + GAP * part, part) == 0);
        // Nothing else may come to lie in the old place.
        CHECK(mmap(b, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == b);
        CHECK(mprotect(b + GAP * part, part, PROT_READ | PROT_WRITE) == 0);
    }
}

// A program that leaves a hole in what it has mapped may map there again later: alone it knows that
// nobody else does.
static void holes(size_t bytes) {
    size_t quarter = bytes / 4;
    char *a = map(bytes), *hole = a + quarter;
    fill_all(a, bytes, 1);
    for (uint64_t round = 0; round < 4; round++) {
        CHECK(munmap(hole, 2 * quarter) == 0);
        // This is larger than the hole.
        press(bytes);
        CHECK(mmap(hole, 2 * quarter, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole);
        fill_all(hole, 2 * quarter, round + 2);
        press(bytes);
        check_all(hole, 2 * quarter, round + 2);
        check_all(a, quarter, 1);
        for (size_t page = 3 * quarter / PAGE; page < bytes / PAGE; page++) check_page(a + page * PAGE, page, 1);
    }
}

// A child that reads what lies between the guards.
static pid_t forked_reader(const char *at, size_t pages) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) return child;
    for (size_t page = 0; page < pages; page++)
        if (page % EVERY) check_page(at + page * PAGE, page, 1);
    _exit(0);
}

// Guards that are installed while memory is away, or in memory that was never touched, stay, and
// what lies beside them is right; when they are removed there are zeroes.
static void guards(size_t bytes) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, 0) == 0);
    size_t half = bytes / 2, pages = half / PAGE;
    char *a = map(half), *fresh = map(half);
    fill_all(a, half, 1);
    press(half);
    // Half of the guards come by the C library, half by a system call that nobody sees.
    for (size_t page = 0; page < pages; page += EVERY) {
        void *at = a + page * PAGE, *other = fresh + page * PAGE;
        if (madvise(at, PAGE, MADV_GUARD_INSTALL) != 0) {
            CHECK(errno == EINVAL);
            return;
        }
        CHECK(syscall(SYS_madvise, other, PAGE, MADV_GUARD_INSTALL) == 0);
    }
    for (int round = 0; round < 3; round++) {
        for (size_t page = 0; page < pages; page++) {
            if (page % EVERY == 0) {
                expect_fault(a + page * PAGE, round % 2);
                expect_fault(fresh + page * PAGE, round % 2);
            } else {
                check_page(a + page * PAGE, page, 1);
                if (round == 0) check_zero(fresh + page * PAGE, page);
                fill_page(fresh + page * PAGE, page, 2);
            }
        }
        press(half);
        wait_ok(forked_reader(a, pages));
    }
    for (size_t page = 0; page < pages; page += EVERY) {
        CHECK(madvise(a + page * PAGE, PAGE, MADV_GUARD_REMOVE) == 0);
        CHECK(madvise(fresh + page * PAGE, PAGE, MADV_GUARD_REMOVE) == 0);
    }
    for (size_t page = 0; page < pages; page++) {
        if (page % EVERY == 0) {
            check_zero(a + page * PAGE, page);
            check_zero(fresh + page * PAGE, page);
        } else {
            check_page(a + page * PAGE, page, 1);
            check_page(fresh + page * PAGE, page, 2);
        }
    }
    // A range that is away becomes one guard, and is zero afterwards.
    fill_all(a, half, 3);
    press(half);
    CHECK(madvise(a + half / 4, half / 2, MADV_GUARD_INSTALL) == 0);
    check_all(a, half / 4, 3);
    CHECK(madvise(a + half / 4, half / 2, MADV_GUARD_REMOVE) == 0);
    zero_all(a + half / 4, half / 2);
    for (size_t page = pages / 4 * 3; page < pages; page++) check_page(a + page * PAGE, page, 3);
}

static void expect_protection(char *read_only, char *none, size_t bytes) {
    for (size_t page = 0; page < bytes / PAGE; page += 97) {
        expect_fault(read_only + page * PAGE + 8, true);
        expect_fault(none + page * PAGE, false);
        expect_fault(none + page * PAGE, true);
    }
}

// Protection is kept: forbidden accesses fault, and allowed ones read the right data. Memory that
// becomes read-only may be swapped out at that time, and comes back right. Once resident it cannot
// be moved out, so it stays, and the limit holds with it (the test's harness checks that).
static void protect(size_t bytes) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, 0) == 0);
    char *a = map(bytes);
    size_t part = bytes / 16, pages = part / PAGE;
    char *read_only = a, *none = a + part;
    fill_all(a, bytes, 1);
    press(bytes / 2);
    CHECK(mprotect(read_only, part, PROT_READ) == 0);
    CHECK(mprotect(none, part, PROT_NONE) == 0);
    if (present(read_only, part) > pages / 2) FAIL("it was not out when it was made read-only");
    expect_protection(read_only, none, part);
    for (size_t page = 0; page < pages; page++) check_page(read_only + page * PAGE, page, 1);
    press(bytes / 2);
    if (present(read_only, part) != pages) FAIL("only %zu of %zu read-only pages stayed", present(read_only, part), pages);
    expect_protection(read_only, none, part);
    for (size_t page = 0; page < pages; page++) check_page(read_only + page * PAGE, page, 1);
    for (size_t page = 2 * pages; page < bytes / PAGE; page++) check_page(a + page * PAGE, page, 1);
    press(bytes / 2);
    CHECK(mprotect(none, part, PROT_READ) == 0);
    for (size_t page = pages; page < 2 * pages; page++) check_page(a + page * PAGE, page, 1);
    expect_fault(none, true);
    // Once writable again, all of it can leave, and does.
    CHECK(mprotect(a, bytes, PROT_READ | PROT_WRITE) == 0);
    check_all(a, bytes, 1);
    fill_all(a, bytes, 2);
    press(bytes / 2);
    if (present(a, 2 * part) > pages) FAIL("%zu pages that are writable again stayed", present(a, 2 * part));
    check_all(a, bytes, 2);
    CHECK(munmap(a, bytes) == 0);
    // Memory is reserved without access at first, as arenas and collectors do; a sixteenth of it
    // becomes read-only when it is full.
    char *b = mmap(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(b != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += 64 * PAGE) {
        CHECK(mprotect(b + at, 64 * PAGE, PROT_READ | PROT_WRITE) == 0);
        for (size_t page = at / PAGE; page < at / PAGE + 64; page++) fill_page(b + page * PAGE, page, 3);
        if (at % (1024 * PAGE) == 0) CHECK(mprotect(b + at, 64 * PAGE, PROT_READ) == 0);
    }
    check_all(b, bytes, 3);
    for (size_t at = 0; at < bytes; at += 1024 * PAGE) expect_fault(b + at + 5, true);
    check_all(b, bytes, 3);
}

// More memory than the limit becomes read-only while most of it is swapped out: it comes back page
// by page and cannot leave again.
static void protect_too_much(size_t bytes) {
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    CHECK(mprotect(a, bytes, PROT_READ) == 0);
    check_all(a, bytes, 1);
}

// Locked memory comes back and stays.
static void lock(size_t bytes) {
    size_t locked = 4 * MIB;
    char *a = map(bytes), *b = map(locked);
    fill_all(b, locked, 1);
    fill_all(a, bytes, 2);
    if (mlock(b, locked) != 0) FAIL("mlock: %s", strerrordesc_np(errno));
    CHECK(present(b, locked) == locked / PAGE);
    check_all(a, bytes, 2);
    press(bytes / 2);
    if (present(b, locked) != locked / PAGE) FAIL("%zu of %zu locked pages are resident", present(b, locked), locked / PAGE);
    check_all(b, locked, 1);
    CHECK(munlock(b, locked) == 0);
    press(bytes);
    check_all(b, locked, 1);
    check_all(a, bytes, 2);
    CHECK(mlock2(b, locked, MLOCK_ONFAULT) == 0);
    check_all(b, locked, 1);
}

// All of the program's memory is locked while most of what there was is swapped out: a part of it
// comes back and stays, and what is mapped later is locked as well.
static void lock_all(size_t bytes) {
    size_t kept = 6 * MIB, later = 2 * MIB;
    char *a = map(bytes), *b = map(kept);
    fill_all(b, kept, 1);
    fill_all(a, bytes, 2);
    check_all(a, bytes, 2);
    CHECK(munmap(a, bytes) == 0);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    CHECK(present(b, kept) == kept / PAGE);
    char *c = map(later);
    CHECK(present(c, later) == later / PAGE);
    fill_all(c, later, 3);
    CHECK(munlockall() == 0);
    CHECK(mlockall(MCL_CURRENT) == 0);
    press(bytes);
    CHECK(present(b, kept) == kept / PAGE && present(c, later) == later / PAGE);
    CHECK(munlockall() == 0);
    press(bytes);
    check_all(b, kept, 1);
    check_all(c, later, 3);
    CHECK(mlockall(MCL_CURRENT | MCL_ONFAULT) == 0);
    check_all(b, kept, 1);
    errno = 0;
    CHECK(mlockall(MCL_ONFAULT) == -1 && errno == EINVAL);
    CHECK(mlockall(64) == -1 && errno == EINVAL);
}

// More than the limit is locked.
static void lock_too_much(size_t bytes) {
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    CHECK(mlockall(MCL_CURRENT) == 0);
    check_all(a, bytes, 1);
}

// The heap grows and shrinks by brk(2).
static void heap(size_t bytes) {
    char *start = sbrk(0);
    start += -(uintptr_t)start % PAGE;
    CHECK(brk(start) == 0);
    size_t step = bytes / 8 / PAGE * PAGE;
    for (int part = 0; part < 8; part++) {
        CHECK(brk(start + (part + 1) * step) == 0);
        for (size_t page = part * step / PAGE; page < (part + 1) * step / PAGE; page++) {
            check_zero(start + page * PAGE, page);
            fill_page(start + page * PAGE, page, 1);
        }
    }
    check_all(start, 8 * step, 1);
    CHECK(brk(start + 3 * step) == 0);
    check_all(start, 3 * step, 1);
    CHECK(brk(start + 8 * step) == 0);
    zero_all(start + 3 * step, 5 * step);
    for (size_t page = 3 * step / PAGE; page < 8 * step / PAGE; page++) fill_page(start + page * PAGE, page, 1);
    check_all(start, 8 * step, 1);
    CHECK(brk(start) == 0);
}

static size_t stack_bytes;
static pthread_barrier_t barrier;

static __attribute__((noinline)) uint64_t deep(uint64_t depth, uint64_t thread) {
    volatile uint64_t frame[1024];
    uint64_t x = mix(depth * 64 + thread);
    for (int i = 0; i < 1024; i++) frame[i] = i % 4 < 2 ? x + i : 3;
    if (depth > 0) deep(depth - 1, thread);
    else pthread_barrier_wait(&barrier), pthread_barrier_wait(&barrier);
    for (int i = 0; i < 1024; i++)
        if (frame[i] != (i % 4 < 2 ? x + i : 3)) FAIL("thread %lu, frame %lu, word %d is %#lx", thread, depth, i, frame[i]);
    return frame[5];
}

static void *stacked(void *argument) {
    deep(stack_bytes / (8192 + 512), (size_t)argument);
    return 0;
}

// The deep stacks of many threads lie idle while memory is needed elsewhere.
static void stacks(size_t bytes) {
    enum { THREADS = 24 };
    stack_bytes = bytes / 2 / THREADS;
    pthread_t workers[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstacksize(&attributes, stack_bytes + MIB) == 0);
    CHECK(pthread_barrier_init(&barrier, 0, THREADS + 1) == 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&workers[i], &attributes, stacked, (void *)i) == 0);
        pthread_barrier_wait(&barrier);
        press(bytes);
        pthread_barrier_wait(&barrier);
        for (size_t i = 0; i < THREADS; i++) pthread_join(workers[i], 0);
    }
}

// One huge buffer grows by realloc, and others beside it.
static void grow(size_t bytes) {
    size_t size = 100000, used = 0;
    char *a = malloc(size), *others[64] = {0};
    CHECK(a);
    for (unsigned round = 0; size < bytes; round++) {
        for (; used + 8 <= size; used += 8) *(uint64_t *)(a + used) = used % 32 < 16 ? mix(used) : used % 4096;
        size = size * 5 / 4 + 8;
        a = realloc(a, size);
        CHECK(a);
        free(others[round % 64]);
        others[round % 64] = malloc(200000);
        memset(others[round % 64], round, 200000);
        for (size_t at = 0; at < used; at += 8 * 31)
            if (*(uint64_t *)(a + at) != (at % 32 < 16 ? mix(at) : at % 4096)) FAIL("round %u: byte %zu is wrong", round, at);
    }
    for (size_t at = 0; at < used; at += 8)
        if (*(uint64_t *)(a + at) != (at % 32 < 16 ? mix(at) : at % 4096)) FAIL("byte %zu is wrong", at);
    free(a);
}

static void *churner(void *argument) {
    enum { COUNT = 2000 };
    size_t thread = (size_t)argument, share = slice_bytes, held = 0;
    struct block {
        uint64_t *at;
        size_t words, seed;
    } *blocks = calloc(COUNT, sizeof *blocks);
    CHECK(blocks);
    for (size_t n = 0, done = 0; done < 3 * share; n++) {
        struct block *block = &blocks[mix(n * 8 + thread) % COUNT];
        if (block->at) {
            for (size_t i = 0; i < block->words; i++)
                if (block->at[i] != (i % 4 < 2 ? mix(block->seed + i) : block->seed))
                    FAIL("block of %zu words at %p: word %zu is %#lx", block->words, (void *)block->at, i, block->at[i]);
            held -= block->words * 8;
            free(block->at);
            block->at = 0;
        }
        if (held > share) continue;
        // Sizes range from 16 bytes to 1 MiB, evenly distributed in the exponent.
        size_t power = 4 + mix(n * 16 + thread) % 17;
        block->words = (1UL << power) / 8 + mix(n) % 3;
        block->seed = n * 4 + thread;
        block->at = malloc(block->words * 8);
        CHECK(block->at);
        for (size_t i = 0; i < block->words; i++) block->at[i] = i % 4 < 2 ? mix(block->seed + i) : block->seed;
        held += block->words * 8;
        done += block->words * 8;
    }
    return 0;
}

// Four threads call malloc and free with all sizes; every block is verified before it is freed.
static void churn(size_t bytes) {
    slice_bytes = bytes / 4;
    pthread_t workers[4];
    for (size_t i = 0; i < 4; i++) CHECK(pthread_create(&workers[i], 0, churner, (void *)i) == 0);
    for (size_t i = 0; i < 4; i++) pthread_join(workers[i], 0);
}

// Machine code that was written into memory leaves, returns, and still runs.
static void code(size_t bytes) {
    size_t size = bytes / 16;
    unsigned char *a = mmap(0, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(a != MAP_FAILED);
    for (size_t page = 0; page < size / PAGE; page++) {
        unsigned char *at = a + page * PAGE;
        fill_page(at, page, 1);
        at[0] = 0xb8; // mov eax, page; ret
        memcpy(at + 1, &(uint32_t){page}, 4);
        at[5] = 0xc3;
    }
    for (int round = 0; round < 2; round++) {
        press(bytes);
        for (size_t page = 0; page < size / PAGE; page++) {
            unsigned (*function)(void);
            void *at = a + page * PAGE;
            memcpy(&function, &at, sizeof at);
            CHECK(function() == page);
        }
        // The second time the memory is not writable.
        CHECK(mprotect(a, size, PROT_READ | PROT_EXEC) == 0);
    }
}

static char *signal_memory;
static size_t signal_bytes;
static volatile sig_atomic_t handled;

static void on_signal(int signal) {
    (void)signal;
    size_t page = mix(handled) % (signal_bytes / PAGE);
    check_page(signal_memory + page * PAGE, page, 1);
    handled++;
}

// Signal handlers run on an alternate stack that lies in swapped memory, and touch swapped memory.
static void signals(size_t bytes) {
    signal_bytes = bytes;
    signal_memory = map(bytes);
    stack_t alternate = {.ss_sp = map(64 * PAGE), .ss_size = 64 * PAGE};
    CHECK(sigaltstack(&alternate, 0) == 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, 0) == 0);
    fill_all(signal_memory, bytes, 1);
    for (int i = 0; i < 300; i++) {
        raise(SIGUSR1);
        for (int n = 0; n < 100; n++) {
            size_t page = mix(i * 100 + n) % (bytes / PAGE);
            check_page(signal_memory + page * PAGE, page, 1);
        }
    }
    CHECK(handled == 300);
}

// Shared anonymous memory is not swapped by folioswap; its contents are right, and it counts.
static void shared_memory(size_t bytes) {
    size_t part = bytes / 16;
    char *a = mmap(0, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *b = map(bytes);
    CHECK(a != MAP_FAILED);
    fill_all(a, part, 1);
    fill_all(b, bytes, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_all(a, part, 1);
        fill_all(a, part, 2);
        check_all(b, bytes, 1);
        _exit(0);
    }
    wait_ok(child);
    check_all(a, part, 2);
    check_all(b, bytes, 1);
}

static int user_fd;
static char *user_memory;

static void *serve(void *unused) {
    (void)unused;
    static _Alignas(PAGE) char source[PAGE];
    for (struct uffd_msg message; read(user_fd, &message, sizeof message) == sizeof message;) {
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        uintptr_t at = message.arg.pagefault.address & -PAGE;
        fill_page(source, (at - (uintptr_t)user_memory) / PAGE, 40);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)source, .len = PAGE};
        if (ioctl(user_fd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) FAIL("UFFDIO_COPY: %s", strerrordesc_np(errno));
    }
    return 0;
}

// A program that uses userfaultfd itself: the memory that it registers is left to it.
static void own_userfault(size_t bytes) {
    size_t part = bytes / 16;
    user_fd = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode only */);
    if (user_fd < 0) FAIL("userfaultfd: %s", strerrordesc_np(errno));
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(user_fd, UFFDIO_API, &api) == 0);
    user_memory = map(part);
    struct uffdio_register range = {.range = {(uintptr_t)user_memory, part}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(user_fd, UFFDIO_REGISTER, &range) == 0);
    pthread_t server;
    CHECK(pthread_create(&server, 0, serve, 0) == 0);
    char *b = map(bytes);
    fill_all(b, bytes, 1);
    check_all(user_memory, part, 40);
    fill_all(user_memory, part / 2, 41);
    check_all(b, bytes, 1);
    press(bytes / 2);
    check_all(user_memory, part / 2, 41);
    for (size_t page = part / 2 / PAGE; page < part / PAGE; page++) check_page(user_memory + page * PAGE, page, 40);
}

// The same where all memory is managed already, at the limit: memory that was never touched, and memory of which all that
// was written is away.
static void late_userfault(size_t bytes) {
    size_t part = bytes / 16;
    char *b = map(bytes);
    fill_all(b, bytes, 1);
    user_fd = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode only */);
    if (user_fd < 0) FAIL("userfaultfd: %s", strerrordesc_np(errno));
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(user_fd, UFFDIO_API, &api) == 0);
    user_memory = map(part);
    // Every other page has something.
    for (size_t page = 0; page < part / PAGE; page += 2) fill_page(user_memory + page * PAGE, page, 50);
    press(bytes);
    struct uffdio_register range = {.range = {(uintptr_t)user_memory, part}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(user_fd, UFFDIO_REGISTER, &range) != 0) FAIL("UFFDIO_REGISTER: %s", strerrordesc_np(errno));
    pthread_t server;
    CHECK(pthread_create(&server, 0, serve, 0) == 0);
    check_all(b, bytes, 1);
    for (int round = 0; round < 2; round++) {
        for (size_t page = 0; page < part / PAGE; page++) check_page(user_memory + page * PAGE, page, page % 2 ? 40 : 50);
        press(bytes / 2);
    }
    // Once the program serves it no more, it is managed again.
    CHECK(ioctl(user_fd, UFFDIO_UNREGISTER, &range.range) == 0);
    press(bytes / 2);
    for (size_t page = 0; page < part / PAGE; page++) check_page(user_memory + page * PAGE, page, page % 2 ? 40 : 50);
    // It may ask for it again and again, also in pieces.
    for (int round = 0; round < 8; round++) {
        struct uffdio_register piece = range;
        piece.range.start += part / 8 * round;
        piece.range.len = part / 8;
        if (ioctl(user_fd, UFFDIO_REGISTER, &piece) != 0) FAIL("piece %d: %s", round, strerrordesc_np(errno));
        press(bytes / 8);
    }
    for (size_t page = 0; page < part / PAGE; page++) check_page(user_memory + page * PAGE, page, page % 2 ? 40 : 50);
    check_all(b, bytes, 1);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"remap", remap},     {"remap-steps", remap_steps}, {"remap-keep", remap_keep}, {"dontneed", dontneed},
        {"free", lazy_free},  {"advices", advices},         {"replace", replace},       {"protect", protect}, {"protect-too-much", protect_too_much},
        {"guards", guards},   {"move-several", move_several}, {"holes", holes}, {"lock", lock},
        {"lock-all", lock_all}, {"lock-too-much", lock_too_much},
        {"heap", heap},               {"stacks", stacks},         {"grow", grow},
        {"churn", churn},     {"code", code},               {"signals", signals},       {"shared", shared_memory},
        {"userfault", own_userfault}, {"userfault-late", late_userfault}, {"zeroes", zeroes},           {"zeroes-forked", zeroes_forked}, {0, 0},
    };
    return run_case(tests, argc, argv);
}
