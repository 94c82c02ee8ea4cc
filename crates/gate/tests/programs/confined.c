// A program that allows itself few calls, and is killed at any other: the gate must make none of its own then.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
// Sites that nothing has used before.
#define SITE(name) static long name(long number, long a, long b, long c, long d) { \
    register long r10 __asm__("r10") = d; long answer; \
    __asm__ volatile("syscall\n nop\n nop\n nop\n nop" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory"); return answer; }
SITE(first) SITE(second) SITE(third) SITE(fourth)
static volatile int arrived;
static void handler(int signal) { arrived++; }
static char stack[65536] __attribute__((aligned(16)));
static volatile int word = 1;
static int thread(void *argument) { first(SYS_getppid, 0, 0, 0, 0); arrived += 100; return 0; }
static void *own_stack;
static int with_stack(void *argument) {
    stack_t stack = {.ss_sp = own_stack, .ss_size = 65536};
    fourth(SYS_sigaltstack, (long)&stack, 0, 0, 0);
    kill(getpid(), SIGTERM);
    arrived += 1000;
    return 0;
}
static void filter(const int *allowed, int count) {
    struct sock_filter code[64] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    int n = 1;
    for (int i = 0; i < count; i++) code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], count - i, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(1);
}
int main(void) {
    setvbuf(stdout, 0, _IONBF, 0);
    signal(SIGUSR1, handler);
    for (int i = 0; i < 8; i++) first(SYS_getppid, 0, 0, 0, 0);
    second(SYS_getppid, 0, 0, 0, 0);
    printf("refused: %ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0xffff, 0));
    for (int i = 0; i < 8; i++) fourth(SYS_getppid, 0, 0, 0, 0);
    // The least: a signal arrives.
    long child = fork();
    if (child == 0) {
        static const int least[] = {SYS_write, SYS_rt_sigreturn, SYS_kill, SYS_exit_group};
        own_stack = (void *)(long)getpid();
        filter(least, 4);
        kill((long)own_stack, SIGUSR1);
        printf("least: %d\n", arrived);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("status %d\n", status);
    own_stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static struct sigaction on_stack = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGTERM, &on_stack, 0);
    static const int allowed[] = {SYS_fork, SYS_wait4, SYS_sigaltstack, SYS_write, SYS_getppid, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_rt_sigreturn, SYS_ppoll, SYS_clone, SYS_exit, SYS_exit_group, SYS_kill, SYS_getpid, SYS_futex, SYS_sched_yield};
    long own = getpid();
    filter(allowed, sizeof allowed / sizeof *allowed);
    for (int i = 0; i < 8; i++) first(SYS_getppid, 0, 0, 0, 0), second(SYS_getppid, 0, 0, 0, 0), third(SYS_getppid, 0, 0, 0, 0);
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGUSR2);
    for (int i = 0; i < 8; i++) third(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, (long)&old, 8);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, 0);
    kill(own, SIGUSR1);
    struct timespec none = {0, 1000};
    ppoll(0, 0, &none, &old);
    printf("arrived: %d\n", arrived);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    clone(thread, stack + sizeof stack, flags, 0, 0, 0, (int *)&word);
    while (word) sched_yield();
    printf("thread: %d\n", arrived / 100);
    word = 1;
    clone(with_stack, stack + sizeof stack, flags, 0, 0, 0, (int *)&word);
    while (word) sched_yield();
    printf("thread with a stack for signals: %d\n", arrived / 1000);
    child = first(SYS_fork, 0, 0, 0, 0);
    if (child == 0) { first(SYS_getppid, 0, 0, 0, 0); _exit(3); }
    first(SYS_wait4, child, (long)&status, 0, 0);
    printf("child: %d\n", status >> 8);
    return 0;
}
