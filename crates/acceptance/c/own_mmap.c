// A program with functions of its own for what the agent interposes, made of system calls by number, as allocators have
// them that are linked in.
#include "check.h"

static _Atomic unsigned calls;

void *mmap(void *start, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
    calls++;
    return (void *)syscall(SYS_mmap, start, bytes, protection, flags, descriptor, offset);
}
void *mremap(void *start, size_t bytes, size_t new_bytes, int flags, ...) {
    calls++;
    return (void *)syscall(SYS_mremap, start, bytes, new_bytes, flags, 0);
}
int madvise(void *start, size_t bytes, int advice) {
    calls++;
    return syscall(SYS_madvise, start, bytes, advice);
}
int mprotect(void *start, size_t bytes, int protection) {
    calls++;
    return syscall(SYS_mprotect, start, bytes, protection);
}

static void own(size_t bytes) {
    char *memory = map(bytes);
    fill_all(memory, bytes, 1);
    CHECK(madvise(memory, bytes / 2, MADV_PAGEOUT) == 0);
    CHECK(mprotect(memory, PAGE, PROT_READ) == 0 && mprotect(memory, PAGE, PROT_READ | PROT_WRITE) == 0);
    char *larger = mremap(memory, bytes, bytes + 16 * PAGE, MREMAP_MAYMOVE);
    CHECK(larger != MAP_FAILED && calls >= 5);
    for (size_t page = 0; page < bytes / PAGE; page++) check_page(larger + page * PAGE, page, 1);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {{"own", own}, {0, 0}};
    return run_case(tests, argc, argv);
}
