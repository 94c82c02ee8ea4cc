// Every register but rax, rcx and r11 keeps its value over calls of each path, and so do the flags, xmm and ymm
// registers, mxcsr, the x87 stack and the red zone.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>

struct state {
    unsigned long r[15]; // rax rbx rcx rdx rsi rdi rbp r8..r15
    unsigned long flags, rsp, zone[4];
    unsigned int mxcsr, pad;
    double x87;
    unsigned char v[16][32];
};
struct state in, out;
int avx;

// in -> registers, syscall, registers -> out. The call's number is in.r[0].
void probe(int avx);
__asm__(
    ".text\nprobe:\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " fldl in+176(%rip)\n ldmxcsr in+168(%rip)\n test %edi,%edi\n jz 1f\n"
    " lea in+184(%rip),%rax\n"
    " vmovdqu (%rax),%ymm0\n vmovdqu 32(%rax),%ymm1\n vmovdqu 64(%rax),%ymm2\n vmovdqu 224(%rax),%ymm7\n vmovdqu 256(%rax),%ymm8\n vmovdqu 480(%rax),%ymm15\n jmp 2f\n"
    "1: lea in+184(%rip),%rax\n movdqu (%rax),%xmm0\n movdqu 32(%rax),%xmm1\n movdqu 64(%rax),%xmm2\n movdqu 224(%rax),%xmm7\n movdqu 256(%rax),%xmm8\n movdqu 480(%rax),%xmm15\n"
    "2: mov %edi,avx(%rip)\n"
    " mov in+0(%rip),%rax\n mov in+8(%rip),%rbx\n mov in+24(%rip),%rdx\n mov in+32(%rip),%rsi\n mov in+40(%rip),%rdi\n mov in+48(%rip),%rbp\n mov in+56(%rip),%r8\n mov in+64(%rip),%r9\n mov in+72(%rip),%r10\n mov in+88(%rip),%r12\n mov in+96(%rip),%r13\n mov in+104(%rip),%r14\n mov in+112(%rip),%r15\n"
    " movq $0x1111,-8(%rsp)\n movq $0x2222,-64(%rsp)\n movq $0x3333,-120(%rsp)\n movq $0x4444,-128(%rsp)\n"
    " mov %rsp,in+128(%rip)\n pushq -8(%rsp)\n pop %rcx\n pushq in+120(%rip)\n popfq\n movq $0x1111,-8(%rsp)\n"
    " syscall\n"
    " mov %rcx,out+16(%rip)\n mov %r11,out+80(%rip)\n mov %rsp,out+128(%rip)\n"
    " mov -8(%rsp),%rcx\n mov %rcx,out+136-0(%rip)\n mov -64(%rsp),%rcx\n mov %rcx,out+144-0(%rip)\n"
    " mov -120(%rsp),%rcx\n mov %rcx,zone3(%rip)\n mov -128(%rsp),%rcx\n mov %rcx,zone4(%rip)\n"
    " pushfq\n popq out+120(%rip)\n cld\n"
    " mov %rax,out+0(%rip)\n mov %rbx,out+8(%rip)\n mov %rdx,out+24(%rip)\n mov %rsi,out+32(%rip)\n mov %rdi,out+40(%rip)\n mov %rbp,out+48(%rip)\n mov %r8,out+56(%rip)\n mov %r9,out+64(%rip)\n mov %r10,out+72(%rip)\n mov %r12,out+88(%rip)\n mov %r13,out+96(%rip)\n mov %r14,out+104(%rip)\n mov %r15,out+112(%rip)\n"
    " cmpl $0,avx(%rip)\n je 3f\n lea vout(%rip),%rax\n"
    " vmovdqu %ymm0,(%rax)\n vmovdqu %ymm1,32(%rax)\n vmovdqu %ymm2,64(%rax)\n vmovdqu %ymm7,224(%rax)\n vmovdqu %ymm8,256(%rax)\n vmovdqu %ymm15,480(%rax)\n vzeroupper\n jmp 4f\n"
    "3: lea vout(%rip),%rax\n movdqu %xmm0,(%rax)\n movdqu %xmm1,32(%rax)\n movdqu %xmm2,64(%rax)\n movdqu %xmm7,224(%rax)\n movdqu %xmm8,256(%rax)\n movdqu %xmm15,480(%rax)\n"
    "4: stmxcsr mxcsr_out(%rip)\n fstpl x87_out(%rip)\n ldmxcsr plain_mxcsr(%rip)\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n");
unsigned char vout[16][32];
unsigned long zone3, zone4;
unsigned mxcsr_out, plain_mxcsr = 0x1f80;
double x87_out;

static int bad;
static void check(const char *name, long number, const unsigned long args[6], int child_exits) {
    static const int order[6] = {5, 4, 3, 9, 7, 8}; // rdi rsi rdx r10 r8 r9
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 15; i++) in.r[i] = 0x0101010101010101UL * (unsigned)(i + 17 + round);
        in.r[0] = number;
        for (int i = 0; i < 6; i++) in.r[order[i]] = args[i];
        // carry, parity, zero, sign, direction and overflow, in turn
        static const unsigned long flags[6] = {0x202, 0x8d7 & ~0x100, 0x602, 0x203, 0xa96, 0x646};
        in.flags = flags[round] | 0x200;
        in.mxcsr = 0x1f80 | (unsigned)(round & 3) << 13;
        in.x87 = 3.25 + round;
        for (int i = 0; i < 16; i++) memset(in.v[i], 0xa0 + i + round, 32);
        memset(vout, 0, sizeof vout);
        fflush(stdout);
        probe(avx = __builtin_cpu_supports("avx"));
        if (child_exits && out.r[0] == 0) _exit(0);
        int wrong = 0;
        for (int i = 1; i < 15; i++)
            if (i != 2 && i != 10 && in.r[i] != out.r[i]) wrong |= 1 << i;
        if (in.rsp != out.rsp) wrong |= 1 << 16;
        if ((in.flags ^ out.flags) & 0xcd5) wrong |= 1 << 17;
        if (out.zone[0] != 0x1111 || out.zone[1] != 0x2222 || zone3 != 0x3333 || zone4 != 0x4444) wrong |= 1 << 19;
        if (mxcsr_out != in.mxcsr) wrong |= 1 << 20;
        if (x87_out != in.x87) wrong |= 1 << 21;
        static const int seen[6] = {0, 1, 2, 7, 8, 15};
        for (int i = 0; i < 6; i++)
            if (memcmp(vout[seen[i]], in.v[seen[i]], avx ? 32 : 16)) wrong |= 1 << 22;
        if (child_exits) {
            int status = -1;
            if (waitpid(out.r[0], &status, __WALL) < 0 || status) wrong |= 1 << 24;
        }
        if (wrong) printf("%s: round %d: wrong %#x\n", name, round, wrong), bad = 1;
    }
    printf("%s: %s\n", name, bad ? "WRONG" : "kept");
}
int main(void) {
    unsigned long set = 1UL << 30 | 1UL << 9, old;
    unsigned long none[6] = {0};
    check("getppid", SYS_getppid, none, 0);
    check("no such number", 511, none, 0);
    check("no such large number", 100000, none, 0);
    unsigned long mask[6] = {SIG_BLOCK, (unsigned long)&set, (unsigned long)&old, 8};
    check("rt_sigprocmask", SYS_rt_sigprocmask, mask, 0);
    unsigned long action[6] = {SIGUSR1, 0, 0, 8};
    check("rt_sigaction", SYS_rt_sigaction, action, 0);
    unsigned long fork_args[6] = {SIGCHLD};
    check("fork", SYS_fork, none, 1);
    check("clone", SYS_clone, fork_args, 1);
    unsigned long failing[6] = {0xffff};
    check("clone that fails", SYS_clone, failing, 0);
    unsigned long exec_args[6] = {0, 0, 0};
    check("execve that fails", SYS_execve, exec_args, 0);
    return bad;
}
