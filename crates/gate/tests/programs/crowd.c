// More calls under way than the gate has slots, and more children of a vfork than that: no slot is lost to children, and
// a vfork without a slot is right.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "on_stack.h"
extern char **environ;
static int has_room(char *tiny) {
    sigset_t old;
    return on_stack(tiny + 4096 + 160, SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&old, 8) == 0;
}
static int pipes[2];
static volatile int begun, arrived;
static void handler(int signal) { arrived++; }
static void *waits(void *argument) {
    struct pollfd poll = {pipes[0], POLLIN};
    __sync_fetch_and_add(&begun, 1);
    while (ppoll(&poll, 1, 0, 0) < 0);
    return 0;
}
static char stack[8192] __attribute__((aligned(16)));
static int leaves(void *argument) { _exit(0); }
int main(int count, char **arguments) {
    int children = count > 1 ? atoi(arguments[1]) : 700, wrong = 0, status;
    char *tiny = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(tiny, 4096, PROT_NONE);
    for (int i = 0; i < children; i++) {
        pid_t child = vfork();
        if (child == 0) _exit(7);
        wrong += waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7;
    }
    printf("vfork and exit: %d wrong, room %d\n", wrong, has_room(tiny));
    for (int i = 0; i < children; i++) {
        pid_t child = vfork();
        if (child == 0) { execl("/bin/true", "true", (char *)0); _exit(9); }
        wrong += waitpid(child, &status, 0) != child || status;
    }
    printf("vfork and exec: %d wrong, room %d\n", wrong, has_room(tiny));
    for (int i = 0; i < children; i++) {
        pid_t child;
        char *words[] = {"true", 0};
        int made = posix_spawn(&child, i % 2 ? "/bin/true" : "/none/such", 0, 0, words, environ);
        if (made == 0) wrong += waitpid(child, &status, 0) != child || (status && i % 2);
    }
    printf("posix_spawn: %d wrong, room %d\n", wrong, has_room(tiny));
    for (int i = 0; i < children; i++) {
        pid_t child = clone(leaves, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
        wrong += waitpid(child, &status, 0) != child || status;
    }
    printf("children with the same memory: %d wrong, room %d\n", wrong, has_room(tiny));
    // Threads that wait, more than there are slots.
    if (pipe(pipes)) return 1;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes), pthread_attr_setstacksize(&attributes, 65536);
    pthread_t threads[700];
    for (int i = 0; i < 700; i++) if (pthread_create(&threads[i], &attributes, waits, 0)) return 2;
    while (begun < 700) sched_yield();
    usleep(20000);
    signal(SIGALRM, handler);
    for (int i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (child == 0) { if (i % 2) execl("/bin/true", "true", (char *)0); _exit(0); }
        wrong += waitpid(child, &status, 0) != child || status;
        child = fork();
        if (child == 0) _exit(access("/", 0));
        wrong += waitpid(child, &status, 0) != child || status;
        sigset_t none;
        sigemptyset(&none);
        alarm(0), kill(getpid(), SIGALRM), sigprocmask(SIG_SETMASK, &none, 0);
    }
    printf("beside 700 that wait: %d wrong, arrived %d\n", wrong, arrived > 0);
    wrong += write(pipes[1], "x", 1) != 1;
    for (int i = 0; i < 700; i++) pthread_join(threads[i], 0);
    printf("all ended, room %d\n", has_room(tiny));
    return 0;
}
