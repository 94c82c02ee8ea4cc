// A system call with the stack pointer where a test wants it.
static long on_stack(void *stack, long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    register void *r8 __asm__("r8") = stack;
    long answer;
    __asm__ volatile("xchg %%rsp, %%r8\n syscall\n xchg %%rsp, %%r8\n nop"
        : "=a"(answer), "+r"(r8) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return answer;
}
