// Words that the kernel reads and writes where it cannot wait for a page that is away.
#include "check.h"
#include <linux/futex.h>

#define MUTEXES 64
#define APART (16 * PAGE)

// Everything but the pages that the kernel uses is away.
static void leave(char *memory, size_t bytes) {
    press(bytes);
    CHECK(madvise(memory, MUTEXES * APART, MADV_PAGEOUT) == 0);
}

struct mutexes {
    pthread_mutex_t *all[MUTEXES];
    pthread_barrier_t step;
};

static void *owner(void *argument) {
    struct mutexes *mutexes = argument;
    for (int i = 0; i < MUTEXES; i++) CHECK(pthread_mutex_lock(mutexes->all[i]) == 0);
    pthread_barrier_wait(&mutexes->step);
    pthread_barrier_wait(&mutexes->step);
    return 0;
}

// The owner of robust mutexes ends; whoever locks them then is told so.
static void owner_ends(size_t bytes, int protocol) {
    char *memory = map(MUTEXES * APART);
    fill_all(memory, MUTEXES * APART, 1);
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, protocol) == 0);
    struct mutexes mutexes;
    CHECK(pthread_barrier_init(&mutexes.step, 0, 2) == 0);
    for (int i = 0; i < MUTEXES; i++) {
        // The last one lies across the border of two pages.
        size_t within = i == MUTEXES - 1 ? PAGE - sizeof(pthread_mutex_t) / 2 : 0;
        mutexes.all[i] = (void *)(memory + i * APART + within);
        CHECK(pthread_mutex_init(mutexes.all[i], &attributes) == 0);
    }
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, owner, &mutexes) == 0);
    pthread_barrier_wait(&mutexes.step);
    leave(memory, bytes);
    pthread_barrier_wait(&mutexes.step);
    CHECK(pthread_join(thread, 0) == 0);
    for (int i = 0; i < MUTEXES; i++) {
        struct timespec until;
        CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
        until.tv_sec += 20;
        int result = pthread_mutex_timedlock(mutexes.all[i], &until);
        if (result != EOWNERDEAD) FAIL("mutex %d: %s instead of EOWNERDEAD", i, strerror(result));
        CHECK(pthread_mutex_consistent(mutexes.all[i]) == 0);
        CHECK(pthread_mutex_unlock(mutexes.all[i]) == 0);
    }
    for (int i = 0; i < MUTEXES - 1; i++)
        for (size_t page = 1; page < APART / PAGE; page++)
            check_page(memory + i * APART + page * PAGE, i * (APART / PAGE) + page, 1);
}

static void robust(size_t bytes) { owner_ends(bytes, PTHREAD_PRIO_NONE); }
static void robust_inheriting(size_t bytes) { owner_ends(bytes, PTHREAD_PRIO_INHERIT); }

// Mutexes that pass on priority are handed over by the kernel.
struct contended {
    pthread_mutex_t *mutex;
    char *memory;
    size_t bytes;
    unsigned long turns;
};
static void *contend(void *argument) {
    struct contended *contended = argument;
    for (int i = 0; i < 200; i++) {
        CHECK(pthread_mutex_lock(contended->mutex) == 0);
        contended->turns++;
        if (i % 100 == 0) leave(contended->memory, contended->bytes);
        CHECK(pthread_mutex_unlock(contended->mutex) == 0);
    }
    return 0;
}
static void inheriting(size_t bytes) {
    char *memory = map(MUTEXES * APART);
    fill_all(memory, MUTEXES * APART, 1);
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    struct contended contended = {(void *)(memory + APART), memory, bytes, 0};
    CHECK(pthread_mutex_init(contended.mutex, &attributes) == 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], 0, contend, &contended) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], 0) == 0);
    CHECK(contended.turns == 4 * 200);
}

// Threads without the C library, whose words the kernel clears when they end.
static _Atomic int may_end;
// Thread control blocks that name themselves, where the threads have some of ours.
static uintptr_t blocks[17][64] __attribute__((aligned(64)));
static _Atomic int have_blocks;
static int bare(void *argument) {
    (void)argument;
#ifdef __x86_64__
    if (have_blocks) {
        uintptr_t own;
        __asm__ volatile("mov %%fs:0, %0" : "=r"(own));
        if (own < (uintptr_t)blocks || own >= (uintptr_t)(blocks + 17)) __builtin_trap();
    }
#endif
    while (!may_end) syscall(SYS_sched_yield);
    syscall(SYS_exit, 0);
    return 0;
}
static void cleared_by(long begin(char *stack, int flags, _Atomic int *word), size_t bytes) {
    char *memory = map(MUTEXES * APART), *stacks = map(16 * APART);
    fill_all(memory, MUTEXES * APART, 1);
    int shared = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    _Atomic int *words[16];
    for (int i = 0; i < 16; i++) {
        words[i] = (void *)(memory + i * APART + 512);
        *words[i] = 99;
        CHECK(begin(stacks + (i + 1) * APART - 64, shared | CLONE_CHILD_CLEARTID, words[i]) > 0);
    }
    leave(memory, bytes);
    may_end = 1;
    // They are the only other threads: each has ended once it is not listed any more.
    for (;;) {
        int left = 0;
        for (int i = 0; i < 16; i++) left += *words[i] != 0;
        if (left == 0) break;
        usleep(1000);
    }
}

static long begin(char *stack, int flags, _Atomic int *word) { return clone(bare, stack, flags, 0, 0, 0, word); }
static void cleared(size_t bytes) { cleared_by(begin, bytes); }

// The same by the number of the system call.
static long futex(uint32_t *word, int operation, uint32_t value, uintptr_t more, uint32_t *other, uint32_t last) {
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, more, other, last);
}
static void by_number(size_t bytes) {
    static const int pi[] = {FUTEX_LOCK_PI, FUTEX_TRYLOCK_PI, FUTEX_LOCK_PI2, FUTEX_LOCK_PI, FUTEX_TRYLOCK_PI, FUTEX_LOCK_PI2};
    uint32_t me = syscall(SYS_gettid);
    char *memory = map(MUTEXES * APART);
    fill_all(memory, MUTEXES * APART, 1);
    for (int i = 0; i < MUTEXES; i++) {
        *(uint32_t *)(memory + i * APART) = 0;
        *(uint32_t *)(memory + i * APART + APART / 2) = 0;
    }
    leave(memory, bytes);
    for (int i = 0; i < MUTEXES; i++) {
        uint32_t *word = (void *)(memory + i * APART), *other = (void *)(memory + i * APART + APART / 2);
        // A page that came back by a read is not yet writable.
        if (i % 2) CHECK(*(volatile uint32_t *)word == 0 && *(volatile uint32_t *)other == 0);
        if (i < MUTEXES / 2) {
            CHECK(futex(word, FUTEX_WAKE_OP, 1, 1, other, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)) == 0);
            CHECK(*other == 5 && *word == 0);
            *other = 0;
        } else {
            CHECK(futex(word, pi[i % 6], 0, 0, 0, 0) == 0);
            CHECK((*word & FUTEX_TID_MASK) == me);
            CHECK(futex(word, FUTEX_UNLOCK_PI, 0, 0, 0, 0) == 0 && *word == 0);
        }
    }
    // What the kernel refuses is refused.
    uint32_t *nowhere = (void *)(8 * PAGE);
    CHECK(futex(nowhere, FUTEX_LOCK_PI, 0, 0, 0, 0) == -1 && errno == EFAULT);
    CHECK(futex((void *)memory, FUTEX_WAKE_OP, 1, 1, nowhere, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)) == -1 && errno == EFAULT);
    CHECK(futex((void *)memory, FUTEX_WAIT, 1, 0, 0, 0) == -1 && errno == EAGAIN);
    CHECK(syscall(SYS_madvise, memory + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_close, -1) == -1 && errno == EBADF);
    // All six arguments arrive, and so does an address.
    char *mapped = (void *)syscall(SYS_mmap, 0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    CHECK(mapped != MAP_FAILED && (mapped[PAGE] = 1));
    CHECK(syscall(SYS_mmap, 0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1L) == -1 && errno == EINVAL);
    mapped = (void *)syscall(SYS_mremap, mapped, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE, 0);
    CHECK(mapped != MAP_FAILED && mapped[PAGE] == 1 && mapped[63 * PAGE] == 0);
    for (size_t page = 0; page < MUTEXES * APART / PAGE; page++)
        if (page % (APART / PAGE / 2)) check_page(memory + page * PAGE, page, 1);
}

// A mutex that passes on priority, made of two instructions and the system call.
static void lock(uint32_t *word) {
    uint32_t none = 0, me = syscall(SYS_gettid);
    if (!__atomic_compare_exchange_n(word, &none, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        CHECK(futex(word, FUTEX_LOCK_PI, 0, 0, 0, 0) == 0);
}
static void unlock(uint32_t *word) {
    uint32_t none = 0, me = syscall(SYS_gettid);
    if (!__atomic_compare_exchange_n(word, &me, none, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        CHECK(futex(word, FUTEX_UNLOCK_PI, 0, 0, 0, 0) == 0);
}
struct shared {
    uint32_t *word;
    char *memory;
    size_t bytes;
    unsigned long turns;
};
static void *take_turns(void *argument) {
    struct shared *shared = argument;
    for (int i = 0; i < 200; i++) {
        lock(shared->word);
        shared->turns++;
        if (i % 100 == 0) leave(shared->memory, shared->bytes);
        unlock(shared->word);
    }
    return 0;
}
static void handed_over_by_number(size_t bytes) {
    char *memory = map(MUTEXES * APART);
    fill_all(memory, MUTEXES * APART, 1);
    struct shared shared = {(void *)(memory + APART), memory, bytes, 0};
    *shared.word = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], 0, take_turns, &shared) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], 0) == 0);
    CHECK(shared.turns == 4 * 200 && *shared.word == 0);
}

// clone by its number. On x86-64 the child returns to what lies on its stack, elsewhere to where its parent does, and is
// not tried.
static long begin_by_number(char *stack, int flags, _Atomic int *word) {
#ifdef __x86_64__
    static int next;
    uintptr_t *block = blocks[next++];
    *block = (uintptr_t)block;
    have_blocks = 1;
    *(uintptr_t *)stack = (uintptr_t)bare;
    return syscall(SYS_clone, flags | CLONE_SETTLS, stack, 0, word, block);
#else
    return clone(bare, stack, flags, 0, 0, 0, word);
#endif
}
static void cleared_by_number(size_t bytes) { cleared_by(begin_by_number, bytes); }

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"robust", robust}, {"robust-inheriting", robust_inheriting}, {"inheriting", inheriting}, {"cleared", cleared},
        {"by-number", by_number}, {"handed-over-by-number", handed_over_by_number}, {"cleared-by-number", cleared_by_number}, {0, 0},
    };
    return run_case(tests, argc, argv);
}
