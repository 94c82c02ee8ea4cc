// What a handler finds: its mask, its stack, what sigaction and sigaltstack say there; handlers that leave calls by a jump
// more often than the gate has slots; handlers that run once, or interrupt themselves.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
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
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static sigset_t seen;
static char *volatile where;
static stack_t said;
static struct sigaction own;
static volatile int depth, deepest, info_right;
static siginfo_t last;
static void look(int signal, siginfo_t *info, void *context) {
    char here;
    where = &here;
    pthread_sigmask(SIG_BLOCK, 0, &seen);
    sigaltstack(0, &said);
    sigaction(signal, 0, &own);
    last = *info;
    info_right = info->si_signo == signal && ((ucontext_t *)context)->uc_mcontext.fpregs != 0 && ((unsigned long)((ucontext_t *)context)->uc_mcontext.fpregs & 63) == 0;
    if (++depth > deepest) deepest = depth;
    if (signal == SIGUSR2 && depth < 4) raise(SIGUSR2);
    depth--;
}
static void show(const char *name) {
    printf("%s: blocked", name);
    for (int i = 1; i < 32; i++) if (sigismember(&seen, i) == 1) printf(" %d", i);
    printf(", own flags %#x mask", own.sa_flags & ~0x04000000);
    for (int i = 1; i < 32; i++) if (sigismember(&own.sa_mask, i) == 1) printf(" %d", i);
    printf(", handler %d, info %d, alternate stack %d %d\n", own.sa_sigaction == look, info_right, said.ss_flags, said.ss_size != 0);
}
static sigjmp_buf jump;
static volatile int is_set; // by sigsetjmp, which is not done until it has saved the mask
static void leave(int signal) { if (is_set) { is_set = 0; siglongjmp(jump, 1); } }
static void set(int signal, void (*handler)(int, siginfo_t *, void *), int flags, int blocked) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    if (blocked) sigaddset(&action.sa_mask, blocked);
    sigaction(signal, &action, 0);
}
static void once(long us) { struct itimerval t = {{0, 0}, {0, us}}; setitimer(ITIMER_REAL, &t, 0); }
// A handler that forks: the child returns from it too, to the call that it has interrupted.
static volatile pid_t forked = -1;
static void forks(int signal) { forked = fork(); if (forked == 0) { struct sigaction before; sigaction(SIGHUP, 0, &before), getppid(); } }
// A handler that another thread ends.
static ucontext_t home, routine;
static char routines_stack[65536] __attribute__((aligned(16)));
static volatile int stages;
static void swaps(int signal) { stages++; swapcontext(&routine, &home); stages++; }
static ucontext_t *after;
static void body(void) { raise(SIGWINCH); stages++; setcontext(after); }
static void *resumes(void *argument) { ucontext_t own; after = &own; swapcontext(&own, &routine); raise(SIGUSR1); return 0; }
// What the interrupted code had in its registers.
static volatile unsigned long seen_rbp, in_rbx;
static void looks_at_frame(int signal, siginfo_t *info, void *context) {
    seen_rbp = *(unsigned long *)__builtin_frame_address(0);
    in_rbx = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RBX];
}
__attribute__((noinline, optimize("no-omit-frame-pointer"))) static void interrupted(unsigned long *rbp, unsigned long rbx, struct timespec *time) {
    *rbp = (unsigned long)__builtin_frame_address(0);
    register long r10 __asm__("r10") = 0;
    long answer;
    __asm__ volatile("mov %2, %%rbx\n syscall" : "=a"(answer) : "a"((long)SYS_ppoll), "r"(rbx), "D"(0L), "S"(0L), "d"(time), "r"(r10) : "rbx", "rcx", "r11", "memory");
}
static char *alternate;
static int is_on_alternate(void) { return where >= alternate && where < alternate + 65536; }
static void *thread(void *argument) {
    stack_t stack;
    sigaltstack(0, &stack);
    printf("a thread begins with %d %d\n", stack.ss_flags, (int)stack.ss_size);
    pthread_kill(pthread_self(), SIGUSR1);
    show("thread");
    return 0;
}
int main(int count, char **arguments) {
    int jumps = count > 1 ? atoi(arguments[1]) : 3000;
    sigset_t none, some, old;
    sigemptyset(&none), sigemptyset(&some), sigaddset(&some, SIGCHLD), sigaddset(&some, SIGALRM);
    set(SIGUSR1, look, 0, SIGTERM);
    raise(SIGUSR1), show("plain");
    sigprocmask(SIG_SETMASK, &some, &old);
    raise(SIGUSR1), show("with a mask");
    set(SIGALRM, look, 0, SIGHUP);
    sigset_t temporary;
    sigemptyset(&temporary), sigaddset(&temporary, SIGWINCH);
    once(10000), sigsuspend(&temporary), show("sigsuspend");
    sigset_t full; sigfillset(&full);
    sigprocmask(SIG_SETMASK, &full, 0);
    once(10000), ppoll(0, 0, 0, &temporary), show("ppoll");
    once(10000), pselect(0, 0, 0, 0, 0, &temporary), show("pselect");
    int poll = epoll_create1(0);
    struct epoll_event event;
    once(10000), epoll_pwait(poll, &event, 1, -1, &temporary), show("epoll_pwait");
    sigprocmask(SIG_SETMASK, 0, &old);
    printf("afterwards SIGALRM is blocked: %d\n", sigismember(&old, SIGALRM));
    sigprocmask(SIG_SETMASK, &none, 0);
    raise(SIGUSR1), show("no mask");
    // Two at once: the second interrupts the first, or follows it, as its mask says.
    sigset_t both; sigemptyset(&both), sigaddset(&both, SIGUSR1), sigaddset(&both, SIGHUP);
    set(SIGHUP, look, 0, 0);
    sigprocmask(SIG_BLOCK, &both, 0);
    raise(SIGUSR1), raise(SIGHUP);
    deepest = 0;
    sigprocmask(SIG_UNBLOCK, &both, 0);
    printf("two at once: deepest %d\n", deepest);
    alternate = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = alternate, .ss_size = 65536}, small = {.ss_sp = alternate, .ss_size = 100}, bad = {.ss_sp = alternate, .ss_size = 65536, .ss_flags = 77};
    printf("small %d", sigaltstack(&small, 0)); printf(" %s\n", strerror(errno));
    printf("bad %d", sigaltstack(&bad, 0)); printf(" %s\n", strerror(errno));
    printf("set %d\n", sigaltstack(&stack, 0));
    raise(SIGUSR1), printf("on it without asking: %d %d\n", is_on_alternate(), said.ss_flags);
    set(SIGUSR1, look, SA_ONSTACK, 0);
    raise(SIGUSR1), printf("on it: %d %d %d\n", is_on_alternate(), said.ss_flags, said.ss_sp == alternate);
    set(SIGUSR2, look, SA_ONSTACK | SA_NODEFER, 0);
    deepest = 0;
    raise(SIGUSR2), printf("nested: %d on it: %d\n", deepest, is_on_alternate());
    show("nested");
    set(SIGTERM, look, SA_RESETHAND, 0);
    struct sigaction now;
    raise(SIGTERM), sigaction(SIGTERM, 0, &now);
    printf("runs once: %d %d\n", last.si_signo, now.sa_handler == SIG_DFL);
    pthread_t other;
    pthread_create(&other, 0, thread, 0), pthread_join(other, 0);
    if (fork() == 0) { raise(SIGUSR1); printf("in a child: %d\n", is_on_alternate()); fflush(stdout); _exit(0); }
    wait(0);
    stack.ss_flags = SS_DISABLE;
    printf("none again %d\n", sigaltstack(&stack, 0));
    raise(SIGUSR1), printf("on it: %d %d\n", is_on_alternate(), said.ss_flags);
    signal(SIGALRM, forks);
    sigset_t but_alarm;
    sigfillset(&but_alarm), sigdelset(&but_alarm, SIGALRM);
    sigprocmask(SIG_SETMASK, &full, 0);
    once(10000), sigsuspend(&but_alarm);
    sigprocmask(SIG_SETMASK, &none, 0);
    if (forked == 0) _exit(getppid() > 0 ? 5 : 6);
    int status = 0;
    waitpid(forked, &status, 0);
    printf("a child that returns from a handler: %d\n", WEXITSTATUS(status));
    signal(SIGWINCH, swaps);
    getcontext(&routine);
    routine.uc_stack.ss_sp = routines_stack, routine.uc_stack.ss_size = sizeof routines_stack, routine.uc_link = &home;
    makecontext(&routine, body, 0);
    swapcontext(&home, &routine);
    printf("a handler that is left: %d\n", stages);
    pthread_create(&other, 0, resumes, 0), pthread_join(other, 0);
    raise(SIGUSR1);
    printf("and ended by another thread: %d\n", stages);
    unsigned long rbp;
    set(SIGALRM, looks_at_frame, 0, 0);
    struct timespec second = {1, 0};
    // The first one may come before the call.
    for (int i = 0; i < 20 && in_rbx != 0x123456789abcdef; i++) once(10000), interrupted(&rbp, 0x123456789abcdef, &second);
    printf("frame pointer %d, rbx %d\n", seen_rbp == rbp, in_rbx == 0x123456789abcdef);
    // Calls that are left by a jump, many times.
    int pipes[2], left = 0;
    if (pipe(pipes)) return 1;
    signal(SIGALRM, leave);
    struct itimerval often = {{0, 400}, {0, 400}};
    setitimer(ITIMER_REAL, &often, 0);
    while (left < jumps) if (sigsetjmp(jump, 1)) left++; else { is_set = 1; struct pollfd wait = {pipes[0], POLLIN}; ppoll(&wait, 1, 0, &none); }
    once(0);
    printf("left by a jump: %d\n", left);
    printf("SIGKILL %d", sigaction(SIGKILL, &own, 0)); printf(" %s\n", strerror(errno));
    printf("SIGUSR1's %d\n", (sigaction(SIGUSR1, 0, &now), now.sa_sigaction == look));
    printf("bad pointer %ld", syscall(SYS_rt_sigaction, SIGUSR1, 16, 0, 8)); printf(" %s %d\n", strerror(errno), (sigaction(SIGUSR1, 0, &now), now.sa_sigaction == look));
    return 0;
}
