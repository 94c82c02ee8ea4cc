// What a program notices of its pager, which is a process of its own: nothing, whether it looks at
// its threads and children, filters its calls, stops, is stopped and read, gives up its rights, or
// becomes another image without a word.
#include "check.h"
#include <dirent.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

extern char **environ;

enum { NOBODY = 65534 };

static char *filled(size_t bytes) {
    char *at = map(bytes);
    fill_all(at, bytes, 1);
    return at;
}

static unsigned threads(void) {
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

// The state and the parent of a process that is a pager; state 0: it is none, or is gone.
static char state_of_pager(pid_t pid, pid_t *parent) {
    char path[64], text[512] = "", state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
    close(file);
    char *fields = strrchr(text, ')');
    if (!fields || strncmp(strchr(text, '('), "(pager-", 7) != 0) return 0;
    return sscanf(fields + 2, "%c %d", &state, parent) == 2 ? state : 0;
}

// How many pagers that have ended are children of this process; the one that goes on in `*alive`.
static unsigned ended_pagers(pid_t *alive) {
    DIR *processes = opendir("/proc");
    unsigned ended = 0;
    CHECK(processes);
    *alive = 0;
    for (struct dirent *entry; (entry = readdir(processes));) {
        pid_t pid = atoi(entry->d_name), parent;
        char state = pid ? state_of_pager(pid, &parent) : 0;
        if (!state || parent != getpid()) continue;
        if (state == 'Z') ended++;
        else *alive = pid;
    }
    closedir(processes);
    return ended;
}

// The pager of this process; 0: it has none.
static pid_t own_pager(void) {
    pid_t pager;
    ended_pagers(&pager);
    return pager;
}

// A program with one thread has one, may have a user namespace of its own, and no child.
static void alone(size_t bytes) {
    char *memory = filled(bytes);
    CHECK(threads() == 1);
    CHECK(waitpid(-1, 0, 0) == -1 && errno == ECHILD);
    CHECK(unshare(CLONE_NEWUSER) == 0);
    check_all(memory, bytes, 1);
}

// A filter for all threads does not reach the pager.
static void filter(size_t bytes) {
    char *memory = filled(bytes);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    check_all(memory, bytes, 1);
    fill_all(memory, bytes, 2);
    check_all(memory, bytes, 2);
}

// A child that is stopped gives its memory up for its parent, and has it when it goes on.
static void stopped(size_t bytes) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *memory = filled(bytes);
        CHECK(write(ready[1], "x", 1) == 1);
        CHECK(raise(SIGSTOP) == 0);
        check_all(memory, bytes, 1);
        _exit(0);
    }
    int status;
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    char *memory = filled(bytes);
    for (uint64_t round = 1; round < 4; round++) {
        check_all(memory, bytes, round);
        fill_all(memory, bytes, round + 1);
    }
    CHECK(kill(child, SIGCONT) == 0);
    wait_ok(child);
}

// Whoever stops all threads of a process reads what it has swapped out.
static void read_while_stopped(size_t bytes) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    char *place = map(bytes);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fill_all(place, bytes, 1);
        press(bytes);
        CHECK(write(ready[1], "x", 1) == 1);
        for (;;) pause();
    }
    char byte, page[PAGE];
    int status;
    CHECK(read(ready[0], &byte, 1) == 1);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", child);
    DIR *tasks = opendir(path);
    CHECK(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        pid_t task = atoi(entry->d_name);
        if (!task) continue;
        CHECK(ptrace(PTRACE_SEIZE, task, 0, 0) == 0);
        CHECK(ptrace(PTRACE_INTERRUPT, task, 0, 0) == 0);
        CHECK(waitpid(task, &status, __WALL) == task && WIFSTOPPED(status));
    }
    closedir(tasks);
    for (size_t i = 0; i < bytes / PAGE; i++) {
        struct iovec here = {page, PAGE}, there = {place + i * PAGE, PAGE};
        CHECK(process_vm_readv(child, &here, 1, &there, 1, 0) == (ssize_t)PAGE);
        check_page(page, i, 1);
    }
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
}

static uint64_t status_of(pid_t pid, const char *field) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    CHECK(file);
    uint64_t value = UINT64_MAX;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) value = strtoull(line + strlen(field), 0, 16);
    fclose(file);
    CHECK(value != UINT64_MAX);
    return value;
}

// Both threads of the pager make no calls but those that its filter allows.
static void check_filters(pid_t pager) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pager);
    DIR *tasks = opendir(path);
    CHECK(tasks);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        if (entry->d_name[0] == '.') continue;
        pid_t thread = atoi(entry->d_name);
        CHECK(status_of(thread, "Seccomp:") == SECCOMP_MODE_FILTER && status_of(thread, "NoNewPrivs:") == 1);
        count++;
    }
    closedir(tasks);
    CHECK(count == 2);
}

// The pager of root's program has no capability, before and after the program gives up its own.
static void rights(size_t bytes) {
    char *memory = filled(bytes);
    pid_t pager = own_pager();
    CHECK(pager);
    for (int round = 0; round < 2; round++) {
        CHECK(status_of(pager, "CapEff:") == 0 && status_of(pager, "CapPrm:") == 0);
        CHECK(status_of(pager, "CapInh:") == 0 && status_of(pager, "NoNewPrivs:") == 1);
        check_filters(pager);
        if (round == 0) CHECK(setgroups(0, 0) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    }
    check_all(memory, bytes, 1);
    // It is managed as before.
    fill_all(memory, bytes, 2);
    check_all(memory, bytes, 2);
}

// An exec that nothing of ours sees ends the pager of the old image.
static void bare_exec(size_t bytes) {
    filled(bytes);
    pid_t before = own_pager();
    CHECK(before);
    char number[16], size[16];
    snprintf(number, sizeof number, "%d", before);
    snprintf(size, sizeof size, "%zu", bytes / MIB);
    char *words[] = {"apart", "bare-exec-after", size, number, 0};
    syscall(SYS_execve, "/proc/self/exe", words, environ);
    FAIL("execve");
}

static pid_t old_pager;

static void bare_exec_after(size_t bytes) {
    char *memory = filled(bytes);
    pid_t parent;
    for (char state; (state = state_of_pager(old_pager, &parent)) && state != 'Z';) usleep(10000);
    check_all(memory, bytes, 1);
}

static int execs_left = -1;

// However often a process becomes another image, its old pagers do not pile up as its children.
static void execs(size_t bytes) {
    if (execs_left > 0) {
        char left[16], size[16];
        snprintf(left, sizeof left, "%d", execs_left - 1);
        snprintf(size, sizeof size, "%zu", bytes / MIB);
        execl("/proc/self/exe", "apart", "execs", size, left, NULL);
        FAIL("execl");
    }
    char *memory = filled(bytes);
    pid_t pager;
    // The last one, or the last two, may have ended since this image looked.
    CHECK(ended_pagers(&pager) <= 2);
    CHECK(pager);
    check_all(memory, bytes, 1);
}

// The pager is killed: the program ends too, before it reads a wrong byte.
static void pager_killed(size_t bytes) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *memory = filled(bytes);
        pid_t pager = own_pager();
        CHECK(pager && kill(pager, SIGKILL) == 0);
        for (;;) check_all(memory, bytes, 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    check_all(filled(bytes), bytes, 1);
}

int main(int argc, char **argv) {
    if (argc == 4) old_pager = execs_left = atoi(argv[3]);
    const struct test tests[] = {
        {"alone", alone},
        {"filter", filter},
        {"stopped", stopped},
        {"read-while-stopped", read_while_stopped},
        {"rights", rights},
        {"bare-exec", bare_exec},
        {"bare-exec-after", bare_exec_after},
        {"execs", execs},
        {"pager-killed", pager_killed},
        {0, 0},
    };
    return run_case(tests, argc, argv);
}
