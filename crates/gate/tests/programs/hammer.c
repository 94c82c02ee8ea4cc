// Threads make calls at many sites while those are rewritten, under signals. Each site is followed by instructions of
// another kind; what they compute tells whether one was lost, made twice, or torn. Sites are on fresh pages in each round.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#define SITES 40
#define THREADS 8
#define STRIDE 64
// Bodies: eax has the number, rdi the argument; the answer in rax is getppid() + a constant known to the test.
static const unsigned char bodies[][24] = {
    {0x0f, 0x05, 0x48, 0x83, 0xc0, 0x01, 0xc3},                                           // add $1,%rax; ret
    {0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 0x05, 0x48, 0x83, 0xc0, 0x02, 0xc3, 0x0f, 0x0b}, // cmp; jae; add 2
    {0x0f, 0x05, 0xff, 0xc0, 0xff, 0xc0, 0xff, 0xc0, 0xc3},                               // inc x3
    {0x0f, 0x05, 0x85, 0xc0, 0x75, 0x02, 0x0f, 0x0b, 0x48, 0x83, 0xc0, 0x04, 0xc3},       // test; jne rel8; ud2; add 4
    {0x0f, 0x05, 0x48, 0x03, 0x05, 0x0d, 0x00, 0x00, 0x00, 0xc3},                         // add 13(%rip),%rax; ret  -> constant at +22
    {0x0f, 0x05, 0xc3, 0x90, 0x90, 0x90},                                                 // ret and padding: + 0
    {0x0f, 0x05, 0xeb, 0x02, 0x0f, 0x0b, 0x48, 0x83, 0xc0, 0x06, 0xc3},                   // jmp over ud2; add 6
    {0x90, 0x90, 0x0f, 0x05, 0x48, 0x8d, 0x40, 0x07, 0xc3},                               // lea 7(%rax),%rax
};
static const int adds[] = {1, 2, 3, 4, 5, 0, 6, 7};
static unsigned char *code;
static long parent;
static volatile long wrong, done;
static pthread_barrier_t barrier;
static int rounds = 60;
static long call_at(unsigned char *at) {
    long answer;
    __asm__ volatile("sub $128,%%rsp\n call *%2\n add $128,%%rsp" : "=a"(answer) : "a"((long)SYS_getppid), "r"(at) : "rcx", "r11", "memory", "cc");
    return answer;
}
static void one(int site) {
    long answer = call_at(code + site * STRIDE);
    if (answer != parent + adds[site % 8]) __atomic_fetch_add(&wrong, 1, __ATOMIC_SEQ_CST);
}
static void handler(int signal) { for (int i = 0; i < 3; i++) one(rand() % SITES); }
static void *work(void *argument) {
    unsigned seed = (long)argument;
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 400; i++) {
            seed = seed * 1103515245 + 12345;
            one((seed >> 16) % SITES);
            if (i % 64 == 0) { void *m = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); munmap(m, 4096); }
        }
        __atomic_fetch_add(&done, 400, __ATOMIC_SEQ_CST);
        pthread_barrier_wait(&barrier);
    }
    return 0;
}
int main(int count, char **arguments) {
    if (count > 1) rounds = atoi(arguments[1]);
    parent = getppid();
    signal(SIGALRM, handler);
    struct itimerval t = {{0, 500}, {0, 500}};
    pthread_barrier_init(&barrier, 0, THREADS + 1);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)(i + 1));
    for (int round = 0; round < rounds; round++) {
        sigset_t set, old;
        sigfillset(&set);
        pthread_sigmask(SIG_BLOCK, &set, &old);
        unsigned char *fresh = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(fresh, 0xcc, 8192);
        // The sites lie in the page's whole length in turn, so that some cross lines and pages.
        unsigned char *base = fresh + 256 + (round % 64) + (round % 3) * 1100;
        for (int i = 0; i < SITES; i++) {
            memcpy(base + i * STRIDE, bodies[i % 8], sizeof bodies[0]);
            if (i % 8 == 4) { long five = 5; memcpy(base + i * STRIDE + 22, &five, 8); }
        }
        mprotect(fresh, 8192, PROT_READ | PROT_EXEC);
        code = base;
        pthread_sigmask(SIG_SETMASK, &old, 0);
        if (round == 0) setitimer(ITIMER_REAL, &t, 0);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    memset(&t, 0, sizeof t);
    setitimer(ITIMER_REAL, &t, 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    printf("%ld calls, %ld wrong\n", done, wrong);
    return wrong != 0;
}
