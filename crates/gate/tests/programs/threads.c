// Threads: made and joined, forks while others make calls, cancellation, identities of all threads, robust mutexes,
// timers.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <aio.h>
static volatile int stop;
static void *number(void *argument) { usleep(100); return (void *)((long)argument * 3 + (gettid() > 0)); }
static void *busy(void *argument) {
    int pipes[2];
    if (pipe(pipes)) return (void *)1;
    long wrong = 0;
    for (unsigned char i = 0; !stop; i++) {
        unsigned char back;
        wrong += write(pipes[1], &i, 1) != 1 || read(pipes[0], &back, 1) != 1 || back != i || getppid() < 1;
    }
    close(pipes[0]), close(pipes[1]);
    return (void *)wrong;
}
static int cleaned;
static void clean(void *argument) { __atomic_fetch_add(&cleaned, 1, __ATOMIC_SEQ_CST); }
static void *blocked(void *argument) {
    int *pipes = argument;
    char byte;
    pthread_cleanup_push(clean, 0);
    if (read(pipes[0], &byte, 1) < 0) abort();
    pthread_cleanup_pop(0);
    return 0;
}
static void *sleeps(void *argument) {
    pthread_cleanup_push(clean, 0);
    sleep(100);
    pthread_cleanup_pop(0);
    return 0;
}
static pthread_mutex_t robust;
static void *dies_holding(void *argument) { pthread_mutex_lock(&robust); return 0; }
static volatile int ticks;
static void tick(union sigval value) { ticks++; }
int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 20;
    long sum = 0;
    for (int round = 0; round < 3; round++) {
        pthread_t threads[64];
        for (long i = 0; i < 64; i++) if (pthread_create(&threads[i], 0, number, (void *)i)) return 1;
        for (int i = 0; i < 64; i++) { void *r; pthread_join(threads[i], &r); sum += (long)r; }
    }
    printf("64 threads: %ld\n", sum);
    pthread_t workers[4];
    for (int i = 0; i < 4; i++) pthread_create(&workers[i], 0, busy, 0);
    int wrong = 0;
    for (int i = 0; i < rounds; i++) {
        pid_t p = fork();
        if (p == 0) {
            void *memory = malloc(100000);
            memset(memory, 1, 100000);
            pthread_t t;
            void *r;
            pthread_create(&t, 0, number, (void *)5);
            pthread_join(t, &r);
            _exit((long)r);
        }
        int status;
        waitpid(p, &status, 0);
        wrong += status != 16 << 8;
    }
    printf("forks of a threaded program: %d wrong\n", wrong);
    stop = 1;
    for (int i = 0; i < 4; i++) { void *r; pthread_join(workers[i], &r); wrong += (long)r; }
    printf("pipes: %d wrong\n", wrong);
    int pipes[2];
    if (pipe(pipes)) return 1;
    for (int i = 0; i < rounds; i++) {
        pthread_t t;
        void *r;
        pthread_create(&t, 0, i % 2 ? sleeps : blocked, pipes);
        if (i % 4 < 2) usleep(2000);
        pthread_cancel(t);
        pthread_join(t, &r);
        wrong += r != PTHREAD_CANCELED;
    }
    printf("cancelled: %d wrong, at least %d cleaned\n", wrong, cleaned >= rounds / 2 - 2);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_t t;
    pthread_create(&t, 0, dies_holding, 0);
    pthread_join(t, 0);
    printf("robust: %s\n", strerror(pthread_mutex_lock(&robust)));
    stop = 0;
    for (int i = 0; i < 4; i++) pthread_create(&workers[i], 0, busy, 0);
    for (int i = 0; i < 5; i++) wrong += setuid(getuid()) != 0 || setgid(getgid()) != 0;
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(workers[i], 0);
    printf("setuid: %d wrong\n", wrong);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick};
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {{0, 5000000}, {0, 5000000}};
    timer_settime(timer, 0, &often, 0);
    for (int i = 0; i < 1000 && ticks < 5; i++) usleep(5000);
    timer_delete(timer);
    printf("timer: %d\n", ticks >= 5);
    char text[16] = {0};
    struct aiocb block = {.aio_fildes = open("/proc/self/comm", O_RDONLY), .aio_buf = text, .aio_nbytes = 15};
    aio_read(&block);
    while (aio_error(&block) == EINPROGRESS) usleep(100);
    printf("aio: %zd\n", aio_return(&block));
    return 0;
}
