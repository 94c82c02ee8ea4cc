/* Two copies of the library in one process, each with a swap, a region and threads of its own.
 * They are used concurrently, and one of them ends first. */
#include <dlfcn.h>
#include <folioswap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

struct copy {
    const char *path;
    unsigned seed;
    int rounds;
};

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

static unsigned word(unsigned seed, size_t number)
{
    return ((unsigned)number + seed) * 2654435761u;
}

static void *use(void *argument)
{
    const struct copy *copy = (const struct copy *)argument;
    void *library = dlopen(copy->path, RTLD_NOW | RTLD_LOCAL);
    FolioswapSwap *swap = NULL;
    FolioswapRegion *region = NULL;
    size_t number, count = 40 * MIB / sizeof(unsigned);
    unsigned *memory;
    int round;

    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    FolioswapCode (*swap_new)(uint64_t, const char *const *, size_t, int, FolioswapSwap **);
    FolioswapCode (*region_new)(const FolioswapSwap *, size_t, FolioswapRegion **);
    void *(*base)(const FolioswapRegion *);
    void (*region_free)(FolioswapRegion *), (*swap_free)(FolioswapSwap *);
    *(void **)&swap_new = find(library, "folioswap_swap_new");
    *(void **)&region_new = find(library, "folioswap_region_new");
    *(void **)&base = find(library, "folioswap_region_base");
    *(void **)&region_free = find(library, "folioswap_region_free");
    *(void **)&swap_free = find(library, "folioswap_swap_free");
    if (swap_new(16 * MIB, NULL, 0, FOLIOSWAP_WHEN_FULL_EXCEED, &swap) != FOLIOSWAP_OK ||
        region_new(swap, 40 * MIB, &region) != FOLIOSWAP_OK) {
        fprintf(stderr, "%s: no region\n", copy->path);
        exit(1);
    }
    memory = (unsigned *)base(region);
    for (round = 0; round < copy->rounds; round++) {
        for (number = 0; number < count; number++)
            memory[number] = word(copy->seed + round, number);
        for (number = 0; number < count; number++)
            if (memory[number] != word(copy->seed + round, number)) {
                fprintf(stderr, "%s: another word at %zu\n", copy->path, number);
                exit(1);
            }
    }
    region_free(region);
    swap_free(swap);
    return NULL;
}

int main(int argc, char **argv)
{
    struct copy copies[2] = {{NULL, 1, 1}, {NULL, 77, 3}};
    pthread_t threads[2];
    int number;

    if (argc != 3)
        return 2;
    for (number = 0; number < 2; number++) {
        copies[number].path = argv[number + 1];
        if (pthread_create(&threads[number], NULL, use, &copies[number]) != 0)
            return 1;
    }
    for (number = 0; number < 2; number++)
        pthread_join(threads[number], NULL);
    puts("both");
    return 0;
}
