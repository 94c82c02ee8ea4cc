// Members that verify their own memory, half of it inherited, while somebody else kills members and
// their pagers. Each member that was killed is replaced. SIGTERM to the root ends it: every member
// that is left verifies all of its memory once more.
//
// kills MEMBERS MEBIBYTES-EACH
#include "check.h"
#include <sys/prctl.h>

enum { OF_ROOT = 63, MOST = 16 };

static volatile sig_atomic_t done;
static void finish(int signal) { (void)signal, done = 1; }

static void on_end(int flags) {
    struct sigaction action = {.sa_handler = finish, .sa_flags = flags};
    CHECK(sigaction(SIGTERM, &action, 0) == 0);
    sigset_t none;
    sigemptyset(&none);
    CHECK(sigprocmask(SIG_SETMASK, &none, 0) == 0);
}

static char *prepare(size_t bytes, unsigned seed) {
    char *a = map(bytes);
    for (size_t page = 0; page < bytes / PAGE; page++) fill_page(a + page * PAGE, page * 64 + seed, 0);
    return a;
}

static void work(char *a, size_t bytes, unsigned seed) {
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    on_end(SA_RESTART);
    size_t pages = bytes / PAGE;
    uint8_t *versions = calloc(pages, 1);
    CHECK(versions);
    for (uint64_t n = 0; !done; n++) {
        size_t page = mix(n * 64 + getpid()) % pages;
        check_page(a + page * PAGE, page * 64 + seed, versions[page]);
        if (n % 3 == 0) fill_page(a + page * PAGE, page * 64 + seed, ++versions[page]);
    }
    for (size_t page = 0; page < pages; page++) check_page(a + page * PAGE, page * 64 + seed, versions[page]);
    _exit(0);
}

static pid_t start(char **argv, char *inherited, size_t bytes, unsigned number) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) return pid;
    if (number % 2) {
        execv("/proc/self/exe", (char *[]){argv[0], "member", argv[2], 0});
        FAIL("execv: %s", strerrordesc_np(errno));
    }
    work(inherited, bytes, OF_ROOT);
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t bytes = strtoul(argv[2], 0, 10) * MIB;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    CHECK(sigprocmask(SIG_SETMASK, &blocked, 0) == 0);
    if (strcmp(argv[1], "member") == 0) work(prepare(bytes, 7), bytes, 7);
    unsigned count = atoi(argv[1]);
    CHECK(count >= 1 && count <= MOST);
    char *inherited = prepare(bytes, OF_ROOT);
    pid_t members[MOST];
    for (unsigned i = 0; i < count; i++) members[i] = start(argv, inherited, bytes, i);
    printf("ready %d\n", getpid());
    fflush(stdout);
    struct timespec now = {0, 1000000};
    struct sigaction action = {.sa_handler = finish};
    CHECK(sigaction(SIGTERM, &action, 0) == 0);
    sigset_t pending;
    unsigned look = 0;
    // The signal stays blocked, so that members are started with it blocked.
    while (sigpending(&pending) == 0 && !sigismember(&pending, SIGTERM)) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        CHECK(ended >= 0);
        if (ended == 0) nanosleep(&now, 0);
        for (unsigned i = 0; i < count && ended > 0; i++) {
            if (members[i] != ended) continue;
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) FAIL("member %d: status %#x", ended, status);
            members[i] = start(argv, inherited, bytes, i);
            printf("killed %d\n", ended);
            fflush(stdout);
        }
        size_t page = ++look % (bytes / PAGE);
        check_page(inherited + page * PAGE, page * 64 + OF_ROOT, 0);
    }
    for (unsigned i = 0; i < count; i++) {
        int status;
        CHECK(kill(members[i], SIGTERM) == 0 && waitpid(members[i], &status, 0) == members[i]);
        if (status != 0) FAIL("member %d: status %#x", members[i], status);
    }
    for (size_t page = 0; page < bytes / PAGE; page++) check_page(inherited + page * PAGE, page * 64 + OF_ROOT, 0);
    printf("ok\n");
    return 0;
}
