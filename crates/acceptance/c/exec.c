// Changes that programs make to their environment, descriptors and limits, and the ways in which
// they replace themselves.
#include "check.h"
#include <sys/resource.h>

extern char **environ;
static char **arguments;

// Needs `bytes`, and verifies them twice.
static void use(size_t bytes) {
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    check_all(a, bytes, 1);
    check_all(a, bytes, 1);
    CHECK(munmap(a, bytes) == 0);
}

static void again(const char *name, size_t bytes, char **environment) {
    char size[32];
    snprintf(size, sizeof size, "%zu", bytes / MIB);
    char *words[] = {arguments[0], (char *)name, size, 0};
    execve("/proc/self/exe", words, environment);
    FAIL("execve: %s", strerrordesc_np(errno));
}

// The last step of every case that calls exec.
static void plain(size_t bytes) { use(bytes); }

static void empty_environment(size_t bytes) {
    use(bytes);
    char *none[] = {0};
    again("plain", bytes, none);
}

static void other_environment(size_t bytes) {
    use(bytes / 2);
    char *other[] = {"PATH=/nowhere", "LANG=C", 0};
    again("plain", bytes, other);
}

static void same_environment(size_t bytes) {
    use(bytes / 2);
    again("plain", bytes, environ);
}

// clearenv, and a child by fork and exec.
static void cleared(size_t bytes) {
    use(bytes / 2);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        clearenv();
        again("plain", bytes, environ);
    }
    wait_ok(child);
    child = vfork();
    if (child == 0) {
        char *none[] = {0}, size[32];
        snprintf(size, sizeof size, "%zu", bytes / MIB);
        char *words[] = {arguments[0], "plain", size, 0};
        execve("/proc/self/exe", words, none);
        _exit(127);
    }
    wait_ok(child);
}

// A failed exec leaves the program as it was.
static void failed(size_t bytes) {
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    char *words[] = {"nothing", 0};
    for (int i = 0; i < 10; i++) {
        CHECK(execve("/nowhere/nothing", words, environ) == -1 && errno == ENOENT);
        CHECK(execve("/etc/passwd", words, environ) == -1 && errno == EACCES);
    }
    check_all(a, bytes, 1);
}

// Daemons and other programs close all descriptors.
static void close_all(size_t bytes) {
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    check_all(a, bytes, 1);
    for (int i = 3; i < 4096; i++) close(i);
    fill_all(a, bytes, 2);
    check_all(a, bytes, 2);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(syscall(SYS_close_range, 3, ~0U, 2 /* CLOSE_RANGE_UNSHARE */) == 0);
        check_all(a, bytes, 2);
        _exit(0);
    }
    wait_ok(child);
    check_all(a, bytes, 2);
}

// Every descriptor from 3 on belongs to the program: the first that it opens is 3.
static void own_descriptors(size_t bytes) {
    int null = open("/dev/null", O_RDONLY);
    if (null != 3) FAIL("the first descriptor opened is %d", null);
    use(bytes);
    CHECK(dup2(null, 200) == 200 && dup2(null, 1000) == 1000);
    use(bytes);
}

// A limit on the address space that leaves room for the program's memory.
static void address_space(size_t bytes) {
    use(bytes / 2);
    size_t pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    // The pager lives in the same address space: 64 MiB are for it.
    struct rlimit limit = {pages * PAGE + bytes + 64 * MIB, pages * PAGE + bytes + 64 * MIB};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    use(bytes);
    // The limit holds.
    CHECK(mmap(0, bytes * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED &&
          errno == ENOMEM);
    use(bytes);
}

static void close_errors(size_t bytes) {
    close(2);
    use(bytes);
}

// Few descriptors and few threads are allowed.
static void few_descriptors(size_t bytes) {
    struct rlimit limit = {8, 8};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    use(bytes);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        use(bytes / 2);
        _exit(0);
    }
    wait_ok(child);
}

// The program ends; its child goes on for a while and uses memory.
static void outlived(size_t bytes) {
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setsid();
        for (int i = 0; i < 3; i++) {
            usleep(400000);
            check_all(a, bytes, 1);
        }
        printf("the child has ended well\n");
        fflush(stdout);
        _exit(0);
    }
}

// A library that the user preloads stays, and so do its own variables.
static void preloaded(size_t bytes) {
    use(bytes);
    const char *(*said)(void) = 0;
    // The library of the test exports this symbol; without the library the weak symbol is null.
    extern const char *folioswap_acceptance_preloaded(void) __attribute__((weak));
    said = folioswap_acceptance_preloaded;
    printf("%s\n", said ? said() : "not preloaded");
    const char *list = getenv("LD_PRELOAD");
    printf("LD_PRELOAD %s the user's library\n", list && strstr(list, "preload") ? "names" : "does not name");
    fflush(stdout);
    if (!getenv("SECOND")) {
        setenv("SECOND", "1", 1);
        again("preloaded", bytes, environ);
    }
}

// The program sees itself as it was started.
static void look(size_t bytes) {
    use(bytes);
    for (char **each = environ; *each; each++)
        if (strncmp(*each, "SEEN_", 5) == 0) printf("%s\n", *each);
    sigset_t blocked;
    CHECK(sigprocmask(SIG_BLOCK, 0, &blocked) == 0);
    for (int signal = 1; signal < 32; signal++) {
        struct sigaction action;
        if (signal == SIGKILL || signal == SIGSTOP) continue;
        CHECK(sigaction(signal, 0, &action) == 0);
        if (sigismember(&blocked, signal)) printf("signal %d is blocked\n", signal);
        if (action.sa_handler != SIG_DFL) printf("signal %d is %s\n", signal, action.sa_handler == SIG_IGN ? "ignored" : "handled");
    }
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    printf("%lu descriptors\n", (unsigned long)limit.rlim_cur);
}

int main(int argc, char **argv) {
    arguments = argv;
    static const struct test tests[] = {
        {"plain", plain},
        {"empty-environment", empty_environment},
        {"other-environment", other_environment},
        {"same-environment", same_environment},
        {"cleared", cleared},
        {"failed", failed},
        {"close-all", close_all},
        {"own-descriptors", own_descriptors},
        {"address-space", address_space},
        {"close-errors", close_errors},
        {"few-descriptors", few_descriptors},
        {"outlived", outlived},
        {"preloaded", preloaded},
        {"look", look},
        {0, 0},
    };
    return run_case(tests, argc, argv);
}
