// Forks that no C library makes, and signals in the midst of forks: what the system-call gate must
// see and leave as it is.
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

static char *memory;
static size_t size;

// A system call by an instruction of our own.
static long by_instruction(long number, long first, long second) {
    long result;
    register long fourth __asm__("r10") = 0;
    register long fifth __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(0L), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
    return result;
}

static pid_t fork_by_instruction(void) { return (pid_t)by_instruction(SYS_fork, 0, 0); }
static pid_t clone_by_instruction(void) { return (pid_t)by_instruction(SYS_clone, SIGCHLD, 0); }
static pid_t clone_by_number(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static void prepare(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
}

// The child reads what its parent had swapped out, writes some of it, and has a child of its own;
// pages that the parent had only read again count as unchanged in neither.
static void family(pid_t (*make)(void)) {
    for (int round = 0; round < 4; round++) {
        check_all(memory, size / 4, 0);
        pid_t child = make();
        CHECK(child >= 0);
        if (child == 0) {
            fill_all(memory, size / 4, 1);
            pid_t grandchild = make();
            CHECK(grandchild >= 0);
            if (grandchild == 0) {
                check_all(memory, size / 4, 1);
                for (size_t page = size / 4 / PAGE; page < size / PAGE; page++) check_page(memory + page * PAGE, page, 0);
                _exit(0);
            }
            check_all(memory, size / 4, 1);
            wait_ok(grandchild);
            for (size_t page = size / 4 / PAGE; page < size / PAGE; page++) check_page(memory + page * PAGE, page, 0);
            _exit(0);
        }
        check_all(memory, size, 0);
        wait_ok(child);
    }
}

static void instruction(size_t bytes) {
    prepare(bytes);
    family(fork_by_instruction);
    family(clone_by_instruction);
}

static void number(size_t bytes) {
    prepare(bytes);
    family(clone_by_number);
}

static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    // A page of the managed memory: it may be away.
    check_page(memory + size - PAGE, size / PAGE - 1, 0);
    ticks++;
}

// A signal each millisecond, with and without a stack of its own, while children are forked.
static void signals(size_t bytes) {
    prepare(bytes);
    static char stack[64 << 10];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    for (int with_stack = 0; with_stack < 2; with_stack++) {
        if (with_stack) CHECK(sigaltstack(&alternate, 0) == 0);
        struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART | (with_stack ? SA_ONSTACK : 0)};
        CHECK(sigaction(SIGALRM, &action, 0) == 0);
        struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
        CHECK(setitimer(ITIMER_REAL, &every, 0) == 0);
        for (int round = 0; round < 20; round++) {
            pid_t child = round % 2 ? clone_by_number() : fork();
            CHECK(child >= 0);
            if (child == 0) {
                CHECK(setitimer(ITIMER_REAL, &every, 0) == 0);
                check_all(memory, size / 4, 0);
                _exit(0);
            }
            check_all(memory, size / 8, 0);
            wait_ok(child);
        }
        CHECK(setitimer(ITIMER_REAL, &never, 0) == 0);
    }
    CHECK(ticks > 0);
}

// A handler that reads what is likely away, wherever it interrupts a fork of the C library's.
static volatile size_t looked_at;

static void look(int signal) {
    (void)signal;
    size_t pages = size / PAGE, page = looked_at;
    for (int count = 0; count < 4; count++) {
        page = (page + 4099) % pages;
        check_page(memory + page * PAGE, page, 0);
    }
    looked_at = page;
}

static void handlers(size_t bytes) {
    prepare(bytes);
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    // The kernel begins a fork anew that a signal interrupts: more of them than it can make in time
    // would keep it, and what handlers bring in meanwhile cannot leave.
    struct itimerval never = {{0, 0}, {0, 0}};
    for (int round = 0; round < 400; round++) {
        struct itimerval soon = {{0, 5000}, {0, 50 + round * 37 % 2000}};
        CHECK(setitimer(ITIMER_REAL, &soon, 0) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        CHECK(setitimer(ITIMER_REAL, &never, 0) == 0);
        wait_ok(child);
    }
    CHECK(looked_at > 0);
}

// Memory that was swapped out and then became read-only, or lies behind a file's mapping by now, is
// the child's all the same.
static void protected(size_t bytes) {
    prepare(bytes);
    size_t half = bytes / 2 / PAGE * PAGE;
    check_all(memory, size, 0);
    CHECK(mprotect(memory + half, half / 2, PROT_READ) == 0);
    CHECK(mprotect(memory + half + half / 2, half / 4, PROT_NONE) == 0);
    char *behind = map(3 * PAGE + (1 << 20));
    fill_all(behind + 2 * PAGE, (1 << 20) + PAGE, 5);
    CHECK(madvise(behind + 2 * PAGE, (1 << 20) + PAGE, 21 /* MADV_PAGEOUT */) == 0);
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0 && mmap(behind, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == behind);
    for (int round = 0; round < 3; round++) {
        pid_t child = round ? fork_by_instruction() : fork();
        CHECK(child >= 0);
        if (child == 0) {
            check_all(memory, half, 0);
            for (size_t page = half / PAGE; page < (half + half / 2) / PAGE; page++) check_page(memory + page * PAGE, page, 0);
            CHECK(mprotect(memory + half, half, PROT_READ | PROT_WRITE) == 0);
            for (size_t page = half / PAGE; page < size / PAGE; page++) check_page(memory + page * PAGE, page, 0);
            check_all(behind + 2 * PAGE, (1 << 20) + PAGE, 5);
            _exit(0);
        }
        wait_ok(child);
    }
    check_all(behind + 2 * PAGE, (1 << 20) + PAGE, 5);
}

// The parent waits for a child that has a copy of its memory.
static void waiting(size_t bytes) {
    prepare(bytes);
    for (int round = 0; round < 4; round++) {
        long flags = CLONE_VFORK | SIGCHLD;
        pid_t child = (pid_t)(round % 2 ? syscall(SYS_clone, flags, 0, 0, 0, 0) : by_instruction(SYS_clone, flags, 0));
        CHECK(child >= 0);
        if (child == 0) {
            check_all(memory, size / 2, 0);
            fill_all(memory, size / 8, 3);
            _exit(0);
        }
        wait_ok(child);
        check_all(memory, size, 0);
    }
}

// Whoever gives up his user can still fork.
static void user(size_t bytes) {
    prepare(bytes);
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    family(fork_by_instruction);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"instruction", instruction}, {"number", number}, {"signals", signals}, {"protected", protected},
        {"waiting", waiting},         {"user", user},     {"handlers", handlers}, {0, 0}};
    return run_case(tests, argc, argv);
}
