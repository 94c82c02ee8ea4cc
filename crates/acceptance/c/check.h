// Shared by the C programs: page patterns that can be verified, and failing with a message. The
// checks use no lock of the C library, so that they may run in a child made by a bare clone(2).
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1UL << 20)
#define WORDS (PAGE / 8)

static inline uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// Prints a message with write(2) alone.
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    char text[512];
    __builtin_va_list list;
    __builtin_va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    __builtin_va_end(list);
    if (length > (int)sizeof text - 1) length = sizeof text - 1;
    if (write(2, text, length) < 0) _exit(99);
}

#define FAIL(...)                                                                                                     \
    do {                                                                                                              \
        say("%s:%d (pid %d): ", __FILE_NAME__, __LINE__, (int)syscall(SYS_getpid));                                    \
        say(__VA_ARGS__);                                                                                             \
        say("\n");                                                                                                    \
        syscall(SYS_exit_group, 70);                                                                                  \
        __builtin_unreachable();                                                                                      \
    } while (0)

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) FAIL("not so: %s (%s)", #condition, strerror(errno));                                 \
    } while (0)

// Half of the words are noise, so that LZ4 halves such a page.
static inline void fill_page(void *at, uint64_t page, uint64_t version) {
    uint64_t *words = at, x = mix(page * 1000003 + version);
    words[0] = x;
    for (unsigned i = 1; i < WORDS; i++) words[i] = i % 4 < 2 ? (x = mix(x)) : 0x6f696c6f66206f6e;
}

// Prints the contents that a wrong page has instead.
static __attribute__((noinline, cold)) void wrong_page(const uint64_t *words, unsigned at, uint64_t page,
                                                       uint64_t version, uint64_t wanted) {
    uint64_t any = 0;
    for (unsigned i = 0; i < WORDS; i++) any |= words[i];
    for (uint64_t v = 0; any && v <= version + 8; v++)
        for (uint64_t p = page > 600 ? page - 600 : 0; p < page + 600; p++)
            if (words[0] == mix(p * 1000003 + v))
                FAIL("page %lu at %p, version %lu: word %u is %#lx instead of %#lx; begins like page %lu version %lu", page,
                     (void *)words, version, at, words[at], wanted, p, v);
    FAIL("page %lu at %p, version %lu: word %u is %#lx instead of %#lx; the page %s", page, (void *)words, version, at,
         words[at], wanted, any ? "begins unlike any" : "is all zero");
}

static inline void check_page(const void *at, uint64_t page, uint64_t version) {
    const uint64_t *words = at;
    uint64_t x = mix(page * 1000003 + version);
    if (words[0] != x) wrong_page(words, 0, page, version, x);
    for (unsigned i = 1; i < WORDS; i++) {
        uint64_t wanted = i % 4 < 2 ? (x = mix(x)) : 0x6f696c6f66206f6e;
        if (words[i] != wanted) wrong_page(words, i, page, version, wanted);
    }
}

static inline void check_zero(const void *at, uint64_t page) {
    const uint64_t *words = at;
    for (unsigned i = 0; i < WORDS; i++)
        if (words[i]) FAIL("page %lu at %p should be zero: word %u is %#lx", page, at, i, words[i]);
}

static inline void fill_all(char *at, size_t bytes, uint64_t version) {
    for (size_t page = 0; page < bytes / PAGE; page++) fill_page(at + page * PAGE, page, version);
}

static inline void check_all(const char *at, size_t bytes, uint64_t version) {
    for (size_t page = 0; page < bytes / PAGE; page++) check_page(at + page * PAGE, page, version);
}

static inline void zero_all(const char *at, size_t bytes) {
    for (size_t page = 0; page < bytes / PAGE; page++) check_zero(at + page * PAGE, page);
}

static inline char *map(size_t bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

// Pushes all other memory out with an allocation of this size that is written once and freed.
static inline void press(size_t bytes) {
    char *at = map(bytes);
    fill_all(at, bytes, 900);
    check_all(at, bytes, 900);
    CHECK(munmap(at, bytes) == 0);
}

static inline void wait_ok(pid_t pid) {
    int status = 0;
    pid_t got;
    do got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    CHECK(got == pid);
    if (status != 0)
        FAIL("child %d: %s %d", pid, WIFSIGNALED(status) ? "killed by signal" : "exit status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

// How much a program does: `whole` with FOLIOSWAP_LONG=1, else `brief`.
static inline size_t amount(size_t brief, size_t whole) {
    const char *is_long = getenv("FOLIOSWAP_LONG");
    return is_long && strcmp(is_long, "1") == 0 ? whole : brief;
}

struct test {
    const char *name;
    void (*run)(size_t bytes);
};

// The command line is PROGRAM CASE MEBIBYTES.
static inline int run_case(const struct test *tests, int argc, char **argv) {
    if (argc < 3) FAIL("usage: CASE MEBIBYTES");
    for (; tests->name; tests++)
        if (strcmp(tests->name, argv[1]) == 0) {
            tests->run(strtoul(argv[2], 0, 10) * MIB);
            printf("ok %s\n", argv[1]);
            return 0;
        }
    FAIL("no such case: %s", argv[1]);
}
