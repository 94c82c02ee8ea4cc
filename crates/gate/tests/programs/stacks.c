// Threads on stacks that are nearly used up, that they unmap themselves, or that others overwrite while they end; and
// numbers of calls with something in the upper half.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "on_stack.h"
static volatile int ended, word;
// The end of a detached thread in musl: the stack goes first.
__attribute__((naked)) static void unmap_self(void *stack, long size) {
    __asm__("mov $11, %eax\n syscall\n xor %edi, %edi\n mov $60, %eax\n syscall\n hlt");
}
// The end of a thread whose stack others have as soon as a word says so (Go).
__attribute__((naked)) static void give_up(volatile int *word) {
    __asm__("movl $1, (%rdi)\n xor %edi, %edi\n mov $60, %eax\n syscall\n hlt");
}
struct area { char *start; long size; volatile int *word; };
static int unmapper(void *argument) {
    struct area *area = argument;
    __sync_fetch_and_add(&ended, 1);
    unmap_self(area->start, area->size);
    return 0;
}
static int giver(void *argument) { give_up(((struct area *)argument)->word); return 0; }
enum { FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM };
static volatile int alarms;
static void handler(int signal) { alarms++; }
int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 50, wrong = 0;
    // 160 bytes of stack, and nothing below them.
    char *tiny = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(tiny, 4096, PROT_NONE);
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGUSR1);
    for (int i = 0; i < 8; i++) {
        wrong += on_stack(tiny + 4096 + 160, SYS_rt_sigprocmask, SIG_SETMASK, (long)&set, (long)&old, 8) != 0;
        wrong += i > 0 && !sigismember(&old, SIGUSR1);
        wrong += on_stack(tiny + 4096 + 160, SYS_getpid, 0, 0, 0, 0) != getpid();
        long process = on_stack(tiny + 4096 + 160, SYS_fork, 0, 0, 0, 0);
        if (process == 0) _exit(0);
        wrong += waitpid(process, 0, 0) != process;
        process = on_stack(tiny + 4096 + 160, SYS_vfork, 0, 0, 0, 0);
        if (process == 0) _exit(0);
        wrong += waitpid(process, 0, 0) != process;
    }
    printf("a stack of 160 bytes: %d wrong\n", wrong);
    for (int i = 0; i < rounds; i++) {
        struct area area = {mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 65536};
        struct area *copy = (struct area *)area.start;
        *copy = area;
        // The handlers of this process' timers must not meet a stack that is gone.
        sigset_t all, before;
        sigfillset(&all), sigprocmask(SIG_SETMASK, &all, &before);
        if (clone(unmapper, area.start + 65536, FLAGS, copy) < 0) wrong++;
        sigprocmask(SIG_SETMASK, &before, 0);
    }
    while (ended < rounds) sched_yield();
    printf("threads that unmap their stack: %d wrong\n", wrong);
    static char stack[65536] __attribute__((aligned(16)));
    for (int i = 0; i < rounds; i++) {
        static struct area area;
        area.word = &word, word = 0;
        if (clone(giver, stack + sizeof stack, FLAGS, &area) < 0) wrong++;
        while (!word);
        memset(stack, 0xff, sizeof stack);
    }
    printf("threads whose stack is overwritten: %d wrong\n", wrong);
    for (int i = 0; i < 8; i++) {
        long high = 0x5a5a5a5a00000000;
        wrong += on_stack(tiny + 8192, high | SYS_rt_sigprocmask, high | SIG_SETMASK, (long)&set, (long)&old, 8) != 0;
        long process = on_stack(tiny + 8192, high | SYS_fork, 0, 0, 0, 0);
        if (process == 0) { signal(SIGALRM, handler), alarm(0), getppid(), _exit(0); }
        wrong += waitpid(process, 0, 0) != process;
    }
    printf("numbers with an upper half: %d wrong\n", wrong);
    return 0;
}
