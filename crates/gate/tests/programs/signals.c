// Signals at 1 kHz: with and without an alternate stack, nested, left by siglongjmp, EINTR and SA_RESTART, masks, and
// coroutines.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
static volatile int alarms, nested, jumps;
static void handler(int signal) { alarms++; getppid(); if (alarms % 8 == 0) raise(SIGUSR2); }
static void inner(int signal) { nested++; syscall(SYS_gettid); }
static void clock_of(long us) { struct itimerval t = {{0, us}, {0, us}}; setitimer(ITIMER_REAL, &t, 0); }
static int calls(int wanted) {
    int wrong = 0, pipes[2];
    if (pipe(pipes)) return 1;
    for (unsigned char i = 0; alarms < wanted; i++) {
        unsigned char back = 0;
        long n;
        while ((n = write(pipes[1], &i, 1)) < 0 && errno == EINTR);
        while ((n = read(pipes[0], &back, 1)) < 0 && errno == EINTR);
        wrong += back != i;
        getpid(), getppid(), access("/", 0), umask(022);
    }
    close(pipes[0]), close(pipes[1]);
    return wrong;
}
static sigjmp_buf jump;
static volatile int is_set; // by sigsetjmp, which is not done until it has saved the mask
static void leave(int signal) { if (is_set) { is_set = 0, jumps++; siglongjmp(jump, 1); } }
static ucontext_t home, routines[16];
static int turns[16];
static void routine(int number) { for (int i = 0; i < 40; i++) { turns[number] += getppid() > 0; swapcontext(&routines[number], &home); } }
int main(int count, char **arguments) {
    int wanted = count > 1 ? atoi(arguments[1]) : 100;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = inner}, 0);
    sigaction(SIGALRM, &action, 0);
    clock_of(1000);
    printf("plain: %d wrong\n", calls(wanted));
    stack_t stack = {.ss_sp = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 65536};
    sigaltstack(&stack, 0);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGALRM, &action, 0);
    printf("alternate stack: %d wrong\n", calls(2 * wanted));
    sigfillset(&action.sa_mask);
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    sigaction(SIGALRM, 0, &before);
    printf("full mask: %d wrong, SIGSYS in the mask %d\n", calls(3 * wanted), sigismember(&before.sa_mask, SIGSYS));
    sigemptyset(&action.sa_mask);
    action.sa_handler = leave, action.sa_flags = 0;
    sigaction(SIGALRM, &action, 0);
    while (jumps < wanted) { if (sigsetjmp(jump, 1) == 0) for (is_set = 1;;) getppid(), usleep(3000); }
    clock_of(0);
    printf("left by siglongjmp: %d\n", jumps >= wanted);
    action.sa_handler = handler;
    sigaction(SIGALRM, &action, 0);
    int pipes[2];
    if (pipe(pipes)) return 1;
    char byte;
    // Again and again: the first one may come before the call.
    clock_of(20000);
    printf("read: %zd %s\n", read(pipes[0], &byte, 1), strerror(errno));
    struct timespec left = {9, 9};
    printf("nanosleep: %d %s %d\n", nanosleep(&(struct timespec){1, 0}, &left), strerror(errno), left.tv_sec == 0);
    clock_of(0);
    struct itimerval once = {{0, 0}, {0, 20000}};
    sigset_t full, none, old;
    sigfillset(&full), sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &full, &old);
    setitimer(ITIMER_REAL, &once, 0);
    sigset_t almost = full;
    sigdelset(&almost, SIGALRM);
    printf("sigsuspend: %d %s\n", sigsuspend(&almost), strerror(errno));
    setitimer(ITIMER_REAL, &once, 0);
    printf("ppoll: %d %s\n", ppoll(0, 0, 0, &almost), strerror(errno));
    setitimer(ITIMER_REAL, &once, 0);
    printf("pselect: %d %s\n", pselect(0, 0, 0, 0, 0, &almost), strerror(errno));
    struct epoll_event event;
    int poll = epoll_create1(0);
    setitimer(ITIMER_REAL, &once, 0);
    printf("epoll_pwait: %d %s\n", epoll_pwait(poll, &event, 1, -1, &almost), strerror(errno));
    setitimer(ITIMER_REAL, &once, 0);
    sigset_t wait_for;
    sigemptyset(&wait_for), sigaddset(&wait_for, SIGALRM);
    int got;
    printf("sigwait: %d", sigwait(&wait_for, &got));
    printf(" %d\n", got);
    sigset_t now;
    sigprocmask(SIG_SETMASK, &old, &now);
    printf("blocked: %d\n", sigismember(&now, SIGALRM));
    alarms = 0;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    clock_of(1000);
    for (int i = 0; i < 16; i++) {
        getcontext(&routines[i]);
        routines[i].uc_stack.ss_sp = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        routines[i].uc_stack.ss_size = 65536;
        routines[i].uc_link = &home;
        makecontext(&routines[i], (void (*)(void))routine, 1, i);
    }
    for (int turn = 0; turn < 40; turn++) for (int i = 0; i < 16; i++) swapcontext(&home, &routines[i]);
    int sum = 0;
    for (int i = 0; i < 16; i++) sum += turns[i];
    clock_of(0);
    printf("coroutines: %d, nested %d\n", sum, nested > 0);
    return 0;
}
