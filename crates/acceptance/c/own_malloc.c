/* A program with a malloc of its own that is not ready before main, as that of a Lisp whose heap was dumped. Prints how
 * often it was called before. Then it uses its memory as any other. */
#include "check.h"
static char heap[1 << 20];
static unsigned long used, before_main;
static volatile int ready;
void *malloc(size_t size) {
    if (!ready) before_main++;
    unsigned long at = (used + 31) & ~15UL;
    if (at + size > sizeof heap) return 0;
    *(size_t *)(heap + at - 8) = size;
    used = at + size;
    return heap + at;
}
void free(void *start) { (void)start; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *old, size_t size) {
    void *made = malloc(size);
    if (old && made) memcpy(made, old, ((size_t *)old)[-1] < size ? ((size_t *)old)[-1] : size);
    return made;
}
int main(int count, char **arguments) {
    unsigned long called = before_main, mib = count > 1 ? strtoul(arguments[1], 0, 0) : 96, wrong = 0;
    ready = 1;
    unsigned char *memory = mmap(0, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned long page = 0; page < mib << 8; page++) *(unsigned long *)(memory + page * 4096) = page * 7919;
    for (unsigned long page = 0; page < mib << 8; page++) wrong += *(unsigned long *)(memory + page * 4096) != page * 7919;
    printf("calls of malloc before main: %lu, %lu wrong\n", called, wrong);
    return 0;
}
