// A program gives up what a daemon gives up, and goes on forking: its children read what their
// parent had at the fork.
#include "check.h"
#include <grp.h>
#include <linux/landlock.h>
#include <sys/prctl.h>

enum { NOBODY = 65534 };

static char *memory;
static size_t size;

// A grandchild reads what its parent wrote; its rights are those of its parent.
static void grandchild_works(uint64_t version) {
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
        check_all(memory, size, version);
        _exit(0);
    }
    wait_ok(grandchild);
}

static void children_work(void) {
    for (uint64_t round = 1; round <= 2; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            check_all(memory, size, 0);
            fill_all(memory, size, round);
            grandchild_works(round);
            check_all(memory, size, round);
            _exit(0);
        }
        wait_ok(child);
        check_all(memory, size, 0);
    }
}

static void begin(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 0);
}

// All ids are an ordinary user's: root's files of /proc are closed to the process, its own too.
static void become_nobody(void) {
    CHECK(setgroups(0, 0) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

static void user(size_t bytes) {
    begin(bytes);
    become_nobody();
    children_work();
}

// Only the effective one is.
static void effective_user(size_t bytes) {
    begin(bytes);
    CHECK(seteuid(NOBODY) == 0);
    children_work();
}

// The new root is empty, and goes with its last process.
static void change_root(void) {
    char name[] = "/tmp/folioswap-acc-root-XXXXXX";
    CHECK(mkdtemp(name));
    int above = open("/tmp", O_PATH | O_DIRECTORY);
    CHECK(above >= 0);
    CHECK(chroot(name) == 0 && chdir("/") == 0);
    CHECK(unlinkat(above, strrchr(name, '/') + 1, AT_REMOVEDIR) == 0);
    CHECK(close(above) == 0);
}

// There is no /proc.
static void root(size_t bytes) {
    begin(bytes);
    change_root();
    children_work();
}

// A daemon's usual order.
static void root_and_user(size_t bytes) {
    begin(bytes);
    change_root();
    become_nobody();
    children_work();
}

// Abstract names of sockets are those of a network namespace.
static void network(size_t bytes) {
    begin(bytes);
    CHECK(unshare(CLONE_NEWNET) == 0);
    children_work();
}

// The next children have process ids of their own, and /proc shows the old ones.
static void processes(size_t bytes) {
    begin(bytes);
    CHECK(unshare(CLONE_NEWPID) == 0);
    // Without its first process such a namespace makes no others.
    pid_t first = fork();
    CHECK(first >= 0);
    if (first == 0) {
        check_all(memory, size, 0);
        children_work();
        _exit(0);
    }
    wait_ok(first);
}

// Landlock: no file can be opened any more.
static void landlock(size_t bytes) {
    begin(bytes);
    struct landlock_ruleset_attr attributes = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE};
    int rules = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    CHECK(rules >= 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_landlock_restrict_self, rules, 0) == 0);
    CHECK(close(rules) == 0);
    CHECK(open("/proc/self/statm", O_RDONLY) == -1);
    children_work();
}

// No way to the group is left: another network, and a user that may not follow the agent's path.
// What was swapped out is lost to children then, and they end.
static void network_and_user(size_t bytes) {
    begin(bytes);
    CHECK(unshare(CLONE_NEWNET) == 0);
    become_nobody();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_all(memory, size, 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    check_all(memory, size, 0);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"user", user},       {"effective-user", effective_user}, {"root", root}, {"root-and-user", root_and_user},
        {"network", network}, {"processes", processes},           {"landlock", landlock},
        {"network-and-user", network_and_user},                   {0, 0},
    };
    return run_case(tests, argc, argv);
}
