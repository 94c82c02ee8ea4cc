// Trees of forks, storms of vforks from several threads, vforks within vforks, posix_spawn, system, clone on stacks
// of its own, clone3.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static int tree(int depth) {
    int sum = 1;
    if (depth == 0) return getppid() > 0;
    for (int i = 0; i < 2; i++) {
        pid_t p = fork();
        if (p == 0) _exit(tree(depth - 1));
        int status;
        waitpid(p, &status, 0);
        sum += WEXITSTATUS(status);
    }
    return sum;
}
static int status_of(pid_t p) {
    int status = -1;
    while (waitpid(p, &status, __WALL) < 0 && errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
static int rounds = 30;
static void *vforks(void *argument) {
    long number = (long)argument, wrong = 0;
    for (int i = 0; i < rounds; i++) {
        volatile int code = (number * 7 + i) & 63;
        pid_t p = vfork();
        if (p == 0) {
            if (i % 3 == 0) execl("/bin/sh", "sh", "-c", "exit 9", (char *)0);
            if (i % 3 == 1) {
                execl("/none/such", "such", (char *)0);
                pid_t inner = vfork();
                if (inner == 0) _exit(code);
                int status;
                waitpid(inner, &status, 0);
                _exit(WEXITSTATUS(status));
            }
            _exit(code);
        }
        int got = status_of(p);
        wrong += got != (i % 3 == 0 ? 9 : code);
    }
    return (void *)wrong;
}
static void *spawns(void *argument) {
    long wrong = 0;
    for (int i = 0; i < rounds / 3; i++) {
        pid_t p;
        char *arguments[] = {"sh", "-c", "exit 5", 0};
        if (posix_spawn(&p, "/bin/sh", 0, 0, arguments, environ)) wrong++;
        else wrong += status_of(p) != 5;
        wrong += WEXITSTATUS(system("exit 6")) != 6;
        if (posix_spawn(&p, "/none/such", 0, 0, arguments, environ) != ENOENT) wrong++;
    }
    return (void *)wrong;
}
static int child_function(void *argument) {
    __atomic_fetch_add((int *)argument, 1, __ATOMIC_SEQ_CST);
    return getppid() > 0 ? 11 : 12;
}
static int clones(int flags) {
    static int shared;
    char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    shared = 0;
    pid_t p = clone(child_function, stack + 65536, flags | SIGCHLD, &shared);
    int status = status_of(p);
    return status * 10 + shared;
}
static long raw_clone3(int give_stack, unsigned long flags) {
    struct clone_args a = {0};
    a.flags = flags;
    a.exit_signal = SIGCHLD;
    if (give_stack) {
        a.stack_size = 65536;
        a.stack = (unsigned long)mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    long p;
    // The child on its new stack makes two calls and ends, without the C library.
    __asm__ volatile("syscall\n test %%rax,%%rax\n jnz 1f\n mov $39,%%eax\n syscall\n mov $23,%%edi\n mov $231,%%eax\n syscall\n 1:"
                     : "=a"(p) : "a"(SYS_clone3), "D"(&a), "S"(sizeof a) : "rcx", "r11", "memory");
    return p < 0 ? p : status_of(p);
}
int main(int count, char **arguments) {
    if (count > 1) rounds = atoi(arguments[1]);
    printf("tree %d\n", tree(4));
    pthread_t threads[6];
    for (long i = 0; i < 6; i++) pthread_create(&threads[i], 0, i < 4 ? vforks : spawns, (void *)i);
    for (int i = 0; i < 6; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        printf("thread %d wrong %ld\n", i, (long)wrong);
    }
    printf("clone %d\n", clones(0));
    printf("clone VM %d\n", clones(CLONE_VM));
    printf("clone VM FILES FS SIGHAND %d\n", clones(CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_SIGHAND));
    printf("clone VM VFORK %d\n", clones(CLONE_VM | CLONE_VFORK));
    printf("clone3 %ld\n", raw_clone3(0, 0));
    printf("clone3 stack %ld\n", raw_clone3(1, 0));
    printf("clone3 VM stack %ld\n", raw_clone3(1, CLONE_VM));
    printf("clone3 clear %ld\n", raw_clone3(1, CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND));
    printf("clone3 vfork %ld\n", raw_clone3(0, CLONE_VM | CLONE_VFORK));
    return 0;
}
