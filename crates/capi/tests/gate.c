/* An ordinary user's calls on a region: standard I/O, a handler that leaves a call by a jump, a
 * thread that is cancelled in one, and vfork. */
#include "check.h"

#include <fcntl.h>
#include <folioswap.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (4 * MIB)

extern char **environ;

static FolioswapRegion *region;
static unsigned char *memory;
static sigjmp_buf left;

static size_t page_out(void)
{
    size_t resident = 0;
    int round;

    for (round = 0; round < 1000; round++) {
        CHECK(folioswap_region_advise(region, 0, BYTES, FOLIOSWAP_PAGE_OUT) == FOLIOSWAP_OK);
        CHECK(folioswap_region_resident(region, 0, BYTES, &resident) == FOLIOSWAP_OK);
        if (resident == 0)
            break;
        usleep(1000);
    }
    return resident;
}

static void leave(int signal)
{
    (void)signal;
    siglongjmp(left, 1);
}

/* Each call holds a page and never ends: what they hold is found, or nothing could leave. */
static void handlers_leave_calls(void)
{
    struct sigaction action;
    int ends[2];
    volatile int round;

    memset(&action, 0, sizeof(action));
    action.sa_handler = leave;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && pipe(ends) == 0);
    for (round = 0; round < 20000; round++) {
        if (sigsetjmp(left, 1) == 0) {
            sigset_t blocked, before;
            fd_set none;

            /* The signal waits until the call waits, which names the region. */
            sigemptyset(&blocked);
            sigaddset(&blocked, SIGUSR2);
            pthread_sigmask(SIG_BLOCK, &blocked, &before);
            raise(SIGUSR2);
            memset(memory + (round % 1000) * 4096, 0, sizeof(none));
            sigdelset(&before, SIGUSR2);
            pselect(1, (fd_set *)(memory + (round % 1000) * 4096), NULL, NULL, NULL, &before);
            CHECK(!"the call ended");
        }
    }
    /* Others use the stack again, and make calls. */
    for (round = 0; round < 3000; round++)
        CHECK(read(-1, memory, 1) == -1 && errno == EBADF);
    CHECK(page_out() == 0);
    close(ends[0]);
    close(ends[1]);
}

static void note(void *flag)
{
    *(int *)flag = 1;
}

static int cleaned;

static void *waits(void *ends)
{
    pthread_cleanup_push(note, &cleaned);
    CHECK(read(*(int *)ends, memory, 4096) > 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void a_thread_is_cancelled(void)
{
    int ends[2];
    pthread_t thread;
    void *result = NULL;

    CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, waits, ends) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0);
    usleep(20000);
    /* A library that cancels only at a call of its own does so when this call is over. */
    CHECK(write(ends[1], "ends", 4) == 4);
    CHECK(pthread_join(thread, &result) == 0 && (result == PTHREAD_CANCELED) == cleaned);
    close(ends[0]);
    close(ends[1]);
}

static int begun, zeroes;

static void *reads(void *buffer)
{
    int counts = 0;

    pthread_cleanup_push(note, &cleaned);
    __atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
    for (;;) {
        /* Some of the pages are away. */
        CHECK(read(zeroes, (char *)buffer + counts++ % 900 * 4096, 4096) == 4096);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* A thread is cancelled wherever it is, in the gate or before it. */
static void threads_are_cancelled_anywhere(void)
{
    unsigned char *plain = malloc(BYTES);
    pthread_t thread;
    void *result;
    int round;

    zeroes = open("/dev/zero", O_RDONLY);
    CHECK(zeroes >= 0);
    for (round = 0; round < 2000; round++) {
        cleaned = begun = 0;
        CHECK(pthread_create(&thread, NULL, reads, round % 2 ? memory : plain) == 0);
        while (!__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
            ;
        if (round % 16 == 1)
            CHECK(folioswap_region_advise(region, 0, BYTES, FOLIOSWAP_PAGE_OUT) == FOLIOSWAP_OK);
        usleep((unsigned)round * 7 % 300);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED && cleaned == 1);
    }
    /* What they held is found by later calls. */
    for (round = 0; round < 3000; round++)
        CHECK(read(-1, memory, 1) == -1 && errno == EBADF);
    close(zeroes);
    free(plain);
    CHECK(page_out() == 0);
}

static void standard_io(void)
{
    FILE *file = tmpfile();
    size_t at;

    CHECK(file != NULL);
    for (at = 0; at < BYTES; at++)
        memory[at] = (unsigned char)(at * 2654435761u >> 24);
    CHECK(page_out() == 0);
    CHECK(fwrite(memory, 1, BYTES, file) == BYTES && fflush(file) == 0);
    memset(memory, 0, BYTES);
    CHECK(page_out() == 0);
    rewind(file);
    CHECK(fread(memory, 1, BYTES, file) == BYTES);
    for (at = 0; at < BYTES; at++)
        CHECK(memory[at] == (unsigned char)(at * 2654435761u >> 24));
    fclose(file);
}

static void children(void)
{
    char *words[] = {"true", NULL};
    int round, status;
    pid_t child;

    for (round = 0; round < 50; round++) {
        CHECK(page_out() == 0);
        CHECK(posix_spawnp(&child, "true", NULL, NULL, words, environ) == 0);
        CHECK(waitpid(child, (int *)(memory + 4094), 0) == child);
        memcpy(&status, memory + 4094, sizeof(status));
        CHECK(status == 0);
        CHECK(system("exit 3") == 3 << 8);
        child = vfork();
        if (child == 0)
            _exit(5);
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    }
}

int main(void)
{
    FolioswapSwap *swap;
    const char *devices[] = {"zram"};

    CHECK(folioswap_swap_new(16 * MIB, devices, 1, FOLIOSWAP_WHEN_FULL_EXCEED, &swap) == FOLIOSWAP_OK);
    CHECK(folioswap_swap_serves_system_calls(swap) == 1);
    CHECK(folioswap_region_new(swap, BYTES, &region) == FOLIOSWAP_OK);
    memory = folioswap_region_base(region);
    standard_io();
    handlers_leave_calls();
    a_thread_is_cancelled();
    threads_are_cancelled_anywhere();
    children();
    folioswap_region_free(region);
    folioswap_swap_free(swap);
    puts("served");
    return 0;
}
