// A program with a handler of its own for SIGSYS, under a filter that traps; and what it reads back.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1
#endif
static volatile int trapped, sent, nested, deepest;
static void inner(int signal) { nested++; getppid(); if (++deepest < 3) raise(SIGUSR2); deepest--; }
static void handler(int signal, siginfo_t *info, void *context) {
    if (info->si_code != SYS_SECCOMP) { sent++; return; }
    trapped++;
    getppid();
    raise(SIGUSR2);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4711 + (info->si_syscall == SYS_sethostname);
}
int main(void) {
    struct sigaction action, before;
    sigaction(SIGSYS, 0, &before);
    printf("at first: %d\n", before.sa_handler == SIG_DFL);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler, action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaddset(&action.sa_mask, SIGUSR1), sigaddset(&action.sa_mask, SIGSYS);
    printf("set: %d\n", sigaction(SIGSYS, &action, 0));
    sigaction(SIGSYS, 0, &before);
    printf("read back: %d %#x %d %d\n", before.sa_sigaction == handler, before.sa_flags & ~0x04000000, sigismember(&before.sa_mask, SIGUSR1), sigismember(&before.sa_mask, SIGSYS));
    raise(SIGSYS);
    printf("sent: %d\n", sent);
    pid_t spawned;
    posix_spawn(&spawned, "/bin/true", 0, 0, (char *[]){"true", 0}, 0);
    waitpid(spawned, 0, 0);
    if (vfork() == 0) { signal(SIGSYS, SIG_DFL); _exit(0); }
    wait(0);
    sigaction(SIGSYS, 0, &before);
    printf("after children of a vfork: %d\n", before.sa_sigaction == handler);
    struct sigaction once_more = {.sa_handler = inner, .sa_flags = SA_NODEFER};
    sigaction(SIGUSR2, &once_more, 0);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sethostname, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    printf("filter: %d\n", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    for (int i = 0; i < 8; i++) if (syscall(SYS_sethostname, 0, 0) != 4712) printf("wrong\n");
    printf("trapped: %d, nested %d\n", trapped, nested);
    for (int ignored = 0; ignored < 2; ignored++) {
        fflush(stdout);
        pid_t p = fork();
        if (p == 0) {
            signal(SIGSYS, ignored ? SIG_IGN : SIG_DFL);
            raise(SIGSYS);
            if (ignored) printf("ignored\n"), fflush(stdout);
            syscall(SYS_sethostname, 0, 0);
            _exit(0);
        }
        int status;
        waitpid(p, &status, 0);
        printf("ended by %d\n", WTERMSIG(status));
    }
    return 0;
}
