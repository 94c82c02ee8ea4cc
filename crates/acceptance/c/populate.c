// Memory that the kernel fills as soon as it is mapped (MAP_POPULATE): its pages come all at once,
// and no fault announces them.
#include "check.h"

static char *populated(size_t bytes, int sharing) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) FAIL("mmap of %zu bytes: %s", bytes, strerrordesc_np(errno));
    return at;
}

// Four times the limit is mapped, before and after memory is short.
static void private_memory(size_t bytes) {
    char *first = populated(bytes, MAP_PRIVATE);
    zero_all(first, bytes);
    fill_all(first, bytes, 1);
    char *second = populated(bytes, MAP_PRIVATE);
    zero_all(second, bytes);
    fill_all(second, bytes, 2);
    check_all(first, bytes, 1);
    check_all(second, bytes, 2);
}

// More than half of the limit is filled at once, again and again. It cannot be swapped out, so
// other memory makes room.
static void shared_memory(size_t bytes) {
    size_t part = bytes / 160 * 24;
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    for (int round = 0; round < 4; round++) {
        char *b = populated(part, MAP_SHARED);
        zero_all(b, part);
        fill_all(b, part, 2 + round);
        check_all(a, bytes, 1);
        check_all(b, part, 2 + round);
        CHECK(munmap(b, part) == 0);
        check_all(a, bytes, 1);
    }
}

int main(int argc, char **argv) {
    static const struct test tests[] = {{"private", private_memory}, {"shared", shared_memory}, {0, 0}};
    return run_case(tests, argc, argv);
}
