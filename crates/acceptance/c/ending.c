// Programs that end, or are ended, in a certain way.
#include "check.h"

// A thread that outlives the first one, and ends by the bare system call.
static int late_status;
static void *late(void *memory) {
    usleep(200000);
    check_all(memory, 32 * MIB, 1);
    syscall(SYS_exit, late_status);
    return 0;
}

static volatile sig_atomic_t interrupts;
static void count(int signal) { (void)signal, interrupts++; }

int main(int argc, char **argv) {
    CHECK(argc >= 3);
    const char *how = argv[1];
    size_t bytes = strtoul(argv[2], 0, 10) * MIB;
    if (strcmp(how, "after-child") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            fill_all(map(bytes), bytes, 1);
            _exit(0);
        }
        wait_ok(child);
        _exit(0);
    }
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    if (strcmp(how, "exit") == 0) {
        check_all(a, bytes, 1);
        _exit(atoi(argv[3]));
    }
    if (strcmp(how, "last-thread") == 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child) {
            int status;
            CHECK(waitpid(child, &status, 0) == child);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == atoi(argv[3]));
            check_all(a, bytes, 1);
        }
        pthread_t thread;
        late_status = atoi(argv[3]);
        CHECK(pthread_create(&thread, 0, late, a) == 0);
        syscall(SYS_exit, atoi(argv[3]));
    }
    if (strcmp(how, "signal") == 0) {
        signal(atoi(argv[3]), SIG_DFL);
        raise(atoi(argv[3]));
        pause();
    }
    if (strcmp(how, "crash") == 0) {
        int *volatile nowhere = 0;
        *nowhere = 1;
    }
    if (strcmp(how, "count") == 0) {
        // Counts how often one Ctrl-C arrives, then ends by itself.
        struct sigaction action = {.sa_handler = count};
        CHECK(sigaction(SIGINT, &action, 0) == 0);
        CHECK(sigaction(SIGTERM, &action, 0) == 0);
        printf("ready\n");
        fflush(stdout);
        while (!interrupts) usleep(10000);
        for (int i = 0; i < 50; i++) usleep(10000);
        check_all(a, bytes, 1);
        printf("%d signals\n", (int)interrupts);
        fflush(stdout);
        _exit(5);
    }
    if (strcmp(how, "wait") == 0) {
        // A tree of four processes works until it is ended.
        pid_t child = fork();
        CHECK(child >= 0);
        pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (child && grandchild) printf("ready\n"), fflush(stdout);
        for (;;) check_all(a, bytes, 1), usleep(1000);
    }
    if (strcmp(how, "unmanaged") == 0) {
        // Shared memory cannot be swapped by folioswap.
        char *b = mmap(0, bytes * 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(b != MAP_FAILED);
        for (size_t at = 0; at < bytes * 4; at += PAGE) {
            b[at] = 1;
            if (at % MIB == 0) usleep(2000);
        }
        for (int i = 0; i < 300; i++) usleep(10000);
        printf("went on\n");
        return 0;
    }
    if (strcmp(how, "brink") == 0) {
        // Shared memory takes all of the limit but for little, and the rest is needed at random.
        size_t shared = strtoul(argv[3], 0, 10) << 10;
        char *b = mmap(0, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(b != MAP_FAILED);
        for (size_t at = 0; at < shared; at += PAGE) b[at] = 1;
        for (uint64_t i = 0; i < 20000; i++) {
            uint64_t page = mix(i) % (bytes / PAGE);
            check_page(a + page * PAGE, page, 1);
        }
        printf("went on\n");
        return 0;
    }
    FAIL("no such way to end: %s", how);
}
