// Calls by int $0x80, whose arguments are in other registers.
#include <stdio.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 4; i++) {
        int id, other;
        unsigned long kept = 0x1234567812345678;
        __asm__ volatile("int $0x80" : "=a"(id), "+c"(kept) : "a"(20) : "memory");
        __asm__ volatile("push %%rbx\n mov $-1,%%ebx\n int $0x80\n pop %%rbx" : "=a"(other) : "a"(6) : "memory");
        printf("%d %d %d\n", id == getpid(), other, kept == 0x1234567812345678);
    }
    return 0;
}
