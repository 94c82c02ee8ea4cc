/* The first swap of an ordinary user is made while a thread stands where it is hard to stop:
 *
 *   below     in a handler that has interrupted a call, and has left words like a frame on its stack
 *   once      in such a handler, which is not installed any more
 *   within    the swap is made by such a handler
 *   many      300 threads wait in calls that end by a signal
 *   leader    the first thread has ended
 *   kernel    a thread of the kernel's serves io_uring
 *   vfork     a thread waits for the child of a vfork: the next swap serves calls
 *   blocks    a thread blocks all signals for ever: the swap serves no calls, and says so soon
 */
#include "check.h"

#include <folioswap.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *devices[] = {"zram"};
static volatile int in_handler, over;
static int expected = 1;

static void swap_and_call(void)
{
    FolioswapSwap *swap;
    FolioswapRegion *region;
    struct timespec begun, ended;
    int ends[2];
    char *memory;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    CHECK(folioswap_swap_new(16 * MIB, devices, 1, FOLIOSWAP_WHEN_FULL_EXCEED, &swap) == FOLIOSWAP_OK);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    CHECK(ended.tv_sec - begun.tv_sec < 5);
    CHECK(folioswap_swap_serves_system_calls(swap) == expected);
    CHECK(folioswap_region_new(swap, MIB, &region) == FOLIOSWAP_OK);
    memory = folioswap_region_base(region);
    memset(memory, 1, MIB);
    CHECK(folioswap_region_advise(region, 0, MIB, FOLIOSWAP_PAGE_OUT) == FOLIOSWAP_OK);
    CHECK(pipe(ends) == 0 && write(ends[1], "word", 5) == 5);
    if (expected)
        CHECK(read(ends[0], memory, 5) == 5 && strcmp(memory, "word") == 0);
}

static void __attribute__((noinline)) wait_below(void)
{
    volatile char room[4096];

    room[0] = room[4095] = 0;
    in_handler = 1;
    while (!over)
        usleep(100);
}

static void waits(int signal)
{
    struct sigaction before;

    (void)signal;
    sigaction(SIGUSR1, NULL, &before);
    wait_below();
}

static void *pauses(void *nothing)
{
    CHECK(pause() == -1 && errno == EINTR);
    return nothing;
}

static void makes(int signal)
{
    (void)signal;
    swap_and_call();
}

static void *after_leader(void *nothing)
{
    (void)nothing;
    usleep(50000);
    swap_and_call();
    puts("stood");
    exit(0);
}

static void *vforks(void *nothing)
{
    pid_t child = vfork();

    if (child == 0) {
        in_handler = 1;
        usleep(1500000);
        _exit(0);
    }
    CHECK(child > 0);
    return nothing;
}

static void *blocks(void *nothing)
{
    unsigned long all = ~0ul;

    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all)) == 0);
    in_handler = 1;
    while (!over)
        usleep(100);
    return nothing;
}

static void *polls(void *nothing)
{
    while (!over)
        CHECK(poll(NULL, 0, 100) == 0 || errno == EINTR);
    return nothing;
}

static void set_handler(int signal, void (*handler)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void signals_once(int signal)
{
    struct sigaction action;

    CHECK(sigaction(signal, NULL, &action) == 0);
    action.sa_flags |= SA_RESETHAND;
    CHECK(sigaction(signal, &action, NULL) == 0);
}

int main(int count, char **words)
{
    const char *which = count > 1 ? words[1] : "";
    pthread_t thread;

    if (strcmp(which, "many") == 0) {
        static pthread_t threads[300];
        int each;

        for (each = 0; each < 300; each++)
            CHECK(pthread_create(&threads[each], NULL, polls, NULL) == 0);
        usleep(50000);
        swap_and_call();
        over = 1;
        for (each = 0; each < 300; each++)
            CHECK(pthread_join(threads[each], NULL) == 0);
    } else if (strcmp(which, "below") == 0 || strcmp(which, "once") == 0) {
        set_handler(SIGUSR1, waits);
        if (strcmp(which, "once") == 0)
            signals_once(SIGUSR1);
        CHECK(pthread_create(&thread, NULL, pauses, NULL) == 0);
        usleep(20000);
        CHECK(pthread_kill(thread, SIGUSR1) == 0);
        while (!in_handler)
            usleep(100);
        swap_and_call();
        over = 1;
        CHECK(pthread_join(thread, NULL) == 0);
    } else if (strcmp(which, "within") == 0) {
        struct itimerval soon = {{0, 0}, {0, 20000}};

        set_handler(SIGALRM, makes);
        CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
        CHECK(pause() == -1 && errno == EINTR);
    } else if (strcmp(which, "leader") == 0) {
        CHECK(pthread_create(&thread, NULL, after_leader, NULL) == 0);
        pthread_exit(NULL);
    } else if (strcmp(which, "kernel") == 0) {
        struct io_uring_params parameters;

        memset(&parameters, 0, sizeof(parameters));
        parameters.flags = IORING_SETUP_SQPOLL;
        parameters.sq_thread_idle = 10000;
        CHECK(syscall(SYS_io_uring_setup, 8, &parameters) >= 0 || errno == ENOSYS || errno == EPERM);
        swap_and_call();
    } else if (strcmp(which, "vfork") == 0) {
        pthread_t other;

        CHECK(pthread_create(&other, NULL, polls, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, vforks, NULL) == 0);
        while (!in_handler)
            usleep(100);
        expected = 0;
        swap_and_call();
        CHECK(pthread_join(thread, NULL) == 0);
        expected = 1;
        swap_and_call();
        /* The library tells all threads by the signal with which they were stopped. */
        CHECK(setgid(getgid()) == 0);
        over = 1;
        CHECK(pthread_join(other, NULL) == 0);
    } else if (strcmp(which, "blocks") == 0) {
        expected = 0;
        CHECK(pthread_create(&thread, NULL, blocks, NULL) == 0);
        while (!in_handler)
            usleep(100);
        swap_and_call();
        over = 1;
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        return 2;
    }
    puts("stood");
    return 0;
}
