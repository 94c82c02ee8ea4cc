/* A thread is stepped through calls that the gate holds, and is unwound at each instruction, as it
 * is where it is cancelled there: the caller's frame and registers must be found, or nothing. */
#include "check.h"

#include <fcntl.h>
#include <folioswap.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#define PAGES 16
#define KEPT 5

static const char *devices[] = {"zram"};
/* Registers that a function keeps, by their numbers in unwind tables: rbx, r12 to r15. */
static const int kept[KEPT] = {3, 12, 13, 14, 15};
static const char *const names[KEPT] = {"rbx", "r12", "r13", "r14", "r15"};
static volatile uintptr_t callers_frame;
static int steps, nowhere;

/* Makes a call by the C library's function, step by step, with 1 to 5 in those registers. */
static long __attribute__((noinline, noclone)) stepped(const void *function, long first, const void *second, long third)
{
    long answer;

    steps = nowhere = 0;
    callers_frame = (uintptr_t)__builtin_dwarf_cfa();
    /* A function that calls another keeps nothing below its stack pointer. */
    getppid();
    __asm__ volatile("mov %[function], %%rax\n\t"
                     "mov $1, %%ebx\n\t"
                     "mov $2, %%r12d\n\t"
                     "mov $3, %%r13d\n\t"
                     "mov $4, %%r14d\n\t"
                     "mov $5, %%r15d\n\t"
                     "pushfq\n\t"
                     "orl $0x100, (%%rsp)\n\t"
                     "popfq\n\t"
                     "call *%%rax\n\t"
                     "pushfq\n\t"
                     "andl $~0x100, (%%rsp)\n\t"
                     "popfq\n\t"
                     : "=&a"(answer), "+D"(first), "+S"(second), "+d"(third)
                     : [function] "m"(function)
                     : "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory");
    return answer;
}

static _Unwind_Reason_Code look(struct _Unwind_Context *frame, void *found)
{
    int place;

    if (_Unwind_GetRegionStart(frame) != (uintptr_t)stepped)
        return _URC_NO_REASON;
    *(int *)found = 1;
    /* For a frame that it visits the unwinder gives the stack pointer within it. */
    CHECK(_Unwind_GetCFA(frame) < callers_frame && callers_frame - _Unwind_GetCFA(frame) < 256);
    for (place = 0; place < KEPT; place++)
        if (_Unwind_GetGR(frame, kept[place]) != (_Unwind_Word)place + 1) {
            fprintf(stderr, "%s is %#lx after %d steps\n", names[place], (long)_Unwind_GetGR(frame, kept[place]), steps);
            exit(1);
        }
    return _URC_NORMAL_STOP;
}

static void step(int signal, siginfo_t *info, void *context)
{
    uintptr_t counter = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    void *function = _Unwind_FindEnclosingFunction((void *)(counter + 1));
    int found = 0;

    (void)signal;
    (void)info;
    if (function == (void *)stepped)
        return;
    steps++;
    _Unwind_Backtrace(look, &found);
    /* Of a trampoline an unwinder knows nothing, and ends there. */
    nowhere += !found;
}

int main(void)
{
    FolioswapSwap *swap;
    FolioswapRegion *region;
    struct sigaction action;
    char plain[4096], *memory;
    int zeroes = open("/dev/zero", O_RDONLY), page;

    CHECK(zeroes >= 0);
    CHECK(folioswap_swap_new(16 * MIB, devices, 1, FOLIOSWAP_WHEN_FULL_EXCEED, &swap) == FOLIOSWAP_OK);
    CHECK(folioswap_swap_serves_system_calls(swap) == 1);
    CHECK(folioswap_region_new(swap, PAGES * 4096, &region) == FOLIOSWAP_OK);
    memory = folioswap_region_base(region);
    memset(memory, 1, PAGES * 4096);
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = step;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);

    /* Nothing looks at this one. */
    CHECK(stepped((const void *)getppid, 0, NULL, 0) == getppid());
    CHECK(steps > 10 && nowhere > 0 && nowhere < 20);
    /* A call that names memory which is not a region's. */
    CHECK(stepped((const void *)read, zeroes, plain, sizeof(plain)) == sizeof(plain));
    CHECK(steps > 200 && nowhere > 0 && nowhere < 20);
    /* What it names is held, and brought back where it is away. */
    CHECK(folioswap_region_advise(region, 0, PAGES * 4096, FOLIOSWAP_PAGE_OUT) == FOLIOSWAP_OK);
    for (page = 0; page < PAGES; page++) {
        CHECK(stepped((const void *)read, zeroes, memory + page * 4096, 4096) == 4096);
        CHECK(steps > 400 && nowhere > 0 && nowhere < 20);
        CHECK(memory[page * 4096] == 0 && memory[page * 4096 + 4095] == 0);
    }
    /* One that its site makes. */
    CHECK(stepped((const void *)execve, 0, NULL, 0) == -1 && errno == EFAULT);
    CHECK(steps > 10 && nowhere > 0 && nowhere < 20);
    puts("stepped");
    return 0;
}
