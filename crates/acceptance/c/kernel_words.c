// Words that the kernel reads and writes where it cannot wait for a page that is away.
#include "check.h"

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
static int bare(void *argument) {
    (void)argument;
    while (!may_end) syscall(SYS_sched_yield);
    syscall(SYS_exit, 0);
    return 0;
}
static void cleared(size_t bytes) {
    char *memory = map(MUTEXES * APART), *stacks = map(16 * APART);
    fill_all(memory, MUTEXES * APART, 1);
    int shared = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    _Atomic int *words[16];
    for (int i = 0; i < 16; i++) {
        words[i] = (void *)(memory + i * APART + 512);
        *words[i] = 99;
        char *stack = stacks + (i + 1) * APART - 64;
        CHECK(clone(bare, stack, shared | CLONE_CHILD_CLEARTID, 0, 0, 0, words[i]) > 0);
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

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"robust", robust}, {"robust-inheriting", robust_inheriting}, {"inheriting", inheriting}, {"cleared", cleared}, {0, 0},
    };
    return run_case(tests, argc, argv);
}
