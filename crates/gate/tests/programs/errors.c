// Answers and errors of calls, with pointers that lead nowhere among them.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TRY(...) do { errno = 0; long r = syscall(__VA_ARGS__); printf("%s: %ld %s\n", #__VA_ARGS__, r < 0 ? r : r > 0, strerror(errno)); } while (0)
int main(void) {
    char *bad = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(bad + 4096, 4096);
    char *edge = bad + 4092, *gone = bad + 4096;
    TRY(SYS_read, -1, bad, 1);
    TRY(SYS_read, 0, (void *)8, 0);
    TRY(SYS_write, 1, gone, 1);
    TRY(SYS_open, gone, 0);
    TRY(SYS_open, "/none/such", 0);
    TRY(SYS_rt_sigaction, SIGUSR1, gone, 0, 8);
    TRY(SYS_rt_sigaction, SIGUSR1, edge, 0, 8);
    TRY(SYS_rt_sigaction, SIGUSR1, 0, gone, 8);
    TRY(SYS_rt_sigaction, SIGUSR1, 0, 0, 7);
    TRY(SYS_rt_sigaction, SIGKILL, bad, 0, 8);
    TRY(SYS_rt_sigaction, SIGSYS, gone, 0, 8);
    TRY(SYS_rt_sigaction, SIGSYS, 0, gone, 8);
    TRY(SYS_rt_sigaction, 65, bad, 0, 8);
    TRY(SYS_rt_sigprocmask, 0, gone, 0, 8);
    TRY(SYS_rt_sigprocmask, 2, edge, 0, 8);
    TRY(SYS_rt_sigprocmask, 0, 0, gone, 8);
    TRY(SYS_rt_sigprocmask, 7, bad, 0, 8);
    TRY(SYS_rt_sigprocmask, 0, bad, 0, 4);
    TRY(SYS_rt_sigsuspend, gone, 8);
    TRY(SYS_ppoll, 0, 0, gone, 0, 8);
    struct timespec zero = {0, 0};
    TRY(SYS_ppoll, 0, 0, &zero, gone, 8);
    TRY(SYS_pselect6, 0, 0, 0, 0, &zero, gone);
    void *nested[2] = {gone, (void *)8};
    TRY(SYS_pselect6, 0, 0, 0, 0, &zero, nested);
    TRY(SYS_clone3, gone, 88);
    TRY(SYS_clone3, edge, 64);
    TRY(SYS_clone3, bad, 8);
    TRY(SYS_execve, gone, 0, 0);
    TRY(SYS_execve, "/none", 0, 0);
    TRY(SYS_munmap, 1, 1);
    TRY(SYS_mmap, 0, 0, 0, 0, 0, 0);
    TRY(9999);
    TRY(-1);
    TRY(SYS_getpid);
    TRY(SYS_close, -1);
    return 0;
}
