// A dynamic linker that loads nothing: in place of a program that names it, it ends with status 0.
void _start(void) {
    __asm__ volatile("syscall" : : "a"(231), "D"(0) : "rcx", "r11", "memory");
    __builtin_unreachable();
}
