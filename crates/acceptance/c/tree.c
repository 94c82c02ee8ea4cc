// Several members verify their own data; now and then one of them is killed.
//
// tree MEMBERS MEBIBYTES-EACH SECONDS KILLS
// tree pair MEBIBYTES: a child with memory of its own beside its inheritance, for the test to kill
// tree shrink MEBIBYTES: gives up seven eighths of its swapped-out memory, by munmap and
//     MADV_DONTNEED, and waits while the test looks at the swap that is still in use
// tree steps MEBIBYTES: victims that take, share and give back swap, for the test to kill, until
//     one is not killed; SIGUSR1 to a victim lets it begin, to the root the next one
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static pid_t members[64];
static unsigned started;

static pid_t start(char **argv, unsigned seed) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) return pid;
    // A failing root ends the others too: no process goes on for ever.
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    // Half of the members stay as forked, half exec the program anew.
    char text[32];
    snprintf(text, sizeof text, "%u", seed);
    char *words[] = {argv[0], "member", argv[2], argv[3], text, 0};
    execv("/proc/self/exe", words);
    FAIL("execv: %s", strerrordesc_np(errno));
}

// Works on its own memory until it is told to stop.
static volatile sig_atomic_t done;
static void finish(int signal) { (void)signal, done = 1; }

static void work(char *a, size_t bytes, unsigned seed) {
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    struct sigaction action = {.sa_handler = finish, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGTERM, &action, 0) == 0);
    sigset_t none;
    sigemptyset(&none);
    CHECK(sigprocmask(SIG_SETMASK, &none, 0) == 0);
    size_t pages = bytes / PAGE;
    uint8_t *versions = calloc(pages, 1);
    CHECK(versions);
    for (uint64_t n = 0; !done; n++) {
        size_t page = mix(n * 64 + seed) % pages;
        check_page(a + page * PAGE, page * 64 + seed, versions[page]);
        if (n % 3 == 0) fill_page(a + page * PAGE, page * 64 + seed, ++versions[page]);
    }
    for (size_t page = 0; page < pages; page++) check_page(a + page * PAGE, page * 64 + seed, versions[page]);
    _exit(0);
}

static char *prepare(size_t bytes, unsigned seed) {
    char *a = map(bytes);
    for (size_t page = 0; page < bytes / PAGE; page++) fill_page(a + page * PAGE, page * 64 + seed, 0);
    return a;
}

// Checks that the memory that `prepare` filled is unchanged.
static void check_prepared(const char *a, size_t bytes, unsigned seed) {
    for (size_t page = 0; page < bytes / PAGE; page++) check_page(a + page * PAGE, page * 64 + seed, 0);
}

static bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

static void pair(size_t bytes) {
    char *inherited = prepare(bytes, 63);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        char *own = prepare(bytes, 5);
        printf("ready %d\n", getpid());
        fflush(stdout);
        for (size_t page = 0;; page = (page + 1) % (bytes / PAGE)) {
            check_page(own + page * PAGE, page * 64 + 5, 0);
            check_page(inherited + page * PAGE, page * 64 + 63, 0);
            usleep(100);
        }
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!was_killed(status)) FAIL("the child ended by itself: %#x", status);
    printf("the child is dead\n");
    fflush(stdout);
    usleep(1500000);
    check_prepared(inherited, bytes, 63);
    printf("ok\n");
}

static void shrink(size_t bytes) {
    char *a = prepare(bytes, 11);
    printf("full\n");
    fflush(stdout);
    usleep(700000);
    CHECK(munmap(a + bytes / 8, bytes / 2) == 0);
    CHECK(madvise(a + bytes / 8 * 5, bytes / 8 * 3, MADV_DONTNEED) == 0);
    printf("given up\n");
    fflush(stdout);
    usleep(1500000);
    zero_all(a + bytes / 8 * 5, bytes / 8 * 3);
    check_prepared(a, bytes / 8, 11);
    printf("ok\n");
}

enum { WHOLE = 0, CHILD_KILLED = 3 };

// Takes swap, shares it with a child that writes to a part, and gives most of it back.
static int victim(size_t bytes) {
    char *a = prepare(bytes, 7);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (size_t page = 0; page < bytes / PAGE; page += 2) fill_page(a + page * PAGE, page * 64 + 7, 1);
        for (size_t page = 0; page < bytes / PAGE; page++) check_page(a + page * PAGE, page * 64 + 7, page % 2 == 0);
        _exit(0);
    }
    check_prepared(a, bytes, 7);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    bool killed = was_killed(status);
    if (!killed && status != 0) FAIL("the child ended by itself: %#x", status);
    size_t kept = bytes / 8;
    CHECK(munmap(a + kept, bytes - kept) == 0);
    usleep(600000);
    check_prepared(a, kept, 7);
    return killed ? CHILD_KILLED : WHOLE;
}

// The tracer of this process stops it at each message that the pager sends or waits for, and at
// nothing else.
static void show_messages(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_recvmsg, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void steps(char **argv) {
    size_t bytes = strtoul(argv[2], 0, 10) * MIB / 4;
    sigset_t go;
    int taken;
    sigemptyset(&go);
    sigaddset(&go, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &go, 0) == 0);
    char *own = prepare(bytes, 63);
    for (unsigned step = 1;; step++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
            CHECK(sigwait(&go, &taken) == 0);
            show_messages();
            // The program is executed anew: it joins the group while the test watches.
            execv("/proc/self/exe", (char *[]){argv[0], "victim", argv[2], 0});
            FAIL("execv: %s", strerrordesc_np(errno));
        }
        printf("victim %u is %d\n", step, pid);
        fflush(stdout);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        const char *end = was_killed(status)                     ? "killed"
            : WIFEXITED(status) && WEXITSTATUS(status) == CHILD_KILLED ? "child killed"
            : WIFEXITED(status) && WEXITSTATUS(status) == WHOLE        ? "whole"
                                                                       : 0;
        if (!end) FAIL("victim %u: status %#x", step, status);
        printf("victim %u of %d: %s\n", step, getpid(), end);
        fflush(stdout);
        CHECK(sigwait(&go, &taken) == 0);
        check_prepared(own, bytes, 63);
        if (strcmp(end, "whole") == 0) break;
    }
    printf("ok\n");
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "pair") == 0) return pair(strtoul(argv[2], 0, 10) * MIB), 0;
    if (argc == 3 && strcmp(argv[1], "shrink") == 0) return shrink(strtoul(argv[2], 0, 10) * MIB), 0;
    if (argc == 3 && strcmp(argv[1], "victim") == 0) return victim(strtoul(argv[2], 0, 10) * MIB);
    if (argc == 3 && strcmp(argv[1], "steps") == 0) return steps(argv), 0;
    CHECK(argc >= 5);
    size_t bytes = strtoul(argv[2], 0, 10) * MIB;
    if (strcmp(argv[1], "member") == 0) {
        unsigned seed = atoi(argv[4]);
        work(prepare(bytes, seed), bytes, seed);
    }
    unsigned count = atoi(argv[1]), seconds = atoi(argv[3]), kills = atoi(argv[4]), seed = argc > 5 ? atoi(argv[5]) : 1;
    CHECK(count <= 64 && count >= 2);
    // Members take SIGTERM only once they have their handler.
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    CHECK(sigprocmask(SIG_SETMASK, &blocked, 0) == 0);
    // Members that only fork inherit the handler.
    char *inherited = prepare(bytes, 63);
    for (unsigned i = 0; i < count; i++) {
        if (i % 2) members[i] = start(argv, ++started % 60);
        else if ((members[i] = fork()) == 0) work(inherited, bytes, 63);
        CHECK(members[i] > 0);
    }
    for (unsigned n = 0; n < kills; n++) {
        // The kill comes at any moment: also while the member that was just started fills its
        // memory.
        usleep(seconds * 1000000UL / kills / 2 + mix(seed * 1000 + n) % (seconds * 1000000UL / kills));
        unsigned victim = mix(seed * 999 + n) % count;
        CHECK(kill(members[victim], SIGKILL) == 0);
        int status;
        CHECK(waitpid(members[victim], &status, 0) == members[victim]);
        if (!was_killed(status)) FAIL("member %u ended by itself: %#x", victim, status);
        if (n % 2) members[victim] = start(argv, ++started % 60);
        else if ((members[victim] = fork()) == 0) work(inherited, bytes, 63);
        for (size_t page = n; page < bytes / PAGE; page += 50) check_page(inherited + page * PAGE, page * 64 + 63, 0);
    }
    // All but the root end at once; the test may then look at the swap that is still in use.
    for (unsigned i = 0; i < count; i++) {
        CHECK(kill(members[i], i % 2 ? SIGKILL : SIGTERM) == 0);
        int status;
        CHECK(waitpid(members[i], &status, 0) == members[i]);
        if (i % 2 == 0 && status != 0) FAIL("member %u: status %#x", i, status);
    }
    CHECK(munmap(inherited, bytes) == 0);
    printf("only the root is left\n");
    fflush(stdout);
    usleep(2500000);
    printf("ok\n");
    return 0;
}
