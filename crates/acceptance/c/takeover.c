// A program that root started, and that has given up its rights, runs code of its own in its pager,
// whose memory it shares. That code can do nothing that the program cannot. x86-64.
//
// The program gives up its user ("user"), or its root directory, its namespaces and most system
// calls ("sandbox").
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { NOBODY = 65534, CALLS = 16 };

// What the code in the pager needs lies in one page that stays in memory.
static struct {
    char secret[256];
    const char *words[2];
    pid_t program, pager;
    volatile long answers[CALLS];
    volatile int done;
} shared __attribute__((aligned(4096)));

static long call(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

// Runs in the pager.
static void __attribute__((noreturn, used)) taken_over(void) {
    volatile long *answers = shared.answers;
    long secret = (long)shared.secret;
    shared.pager = call(SYS_getpid, 0, 0, 0, 0);
    answers[0] = call(SYS_openat, AT_FDCWD, secret, O_RDONLY | O_CLOEXEC, 0);
    answers[1] = call(SYS_openat, AT_FDCWD, secret, O_RDWR, 0);
    answers[2] = call(SYS_open, secret, O_RDONLY, 0, 0);
    answers[3] = call(SYS_unlink, secret, 0, 0, 0);
    answers[4] = call(SYS_chmod, secret, 0666, 0, 0);
    answers[5] = call(SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0);
    answers[6] = call(SYS_ptrace, PTRACE_ATTACH, call(SYS_getppid, 0, 0, 0, 0), 0, 0);
    answers[7] = call(SYS_kill, 1, 0, 0, 0);
    answers[8] = call(SYS_setresuid, 0, 0, 0, 0);
    answers[9] = call(SYS_clone, 0, 0, 0, 0);
    answers[10] = call(SYS_io_uring_setup, 4, (long)answers, 0, 0);
    answers[11] = call(SYS_process_vm_readv, 1, 0, 0, 0);
    answers[12] = call(SYS_prctl, 15, secret, 0, 0);
    answers[13] = call(SYS_mount, secret, secret, 0, 0);
    answers[14] = call(SYS_chroot, secret, 0, 0, 0);
    answers[15] = call(SYS_execve, secret, (long)shared.words, (long)(shared.words + 1), 0);
    shared.done = 1;
    struct timespec long_time = {3600, 0};
    for (;;) call(SYS_nanosleep, (long)&long_time, 0, 0, 0);
}

static int read_line(const char *path, char *line, int bytes) {
    int file = open(path, O_RDONLY);
    if (file < 0) return 0;
    ssize_t length = read(file, line, bytes - 1);
    close(file);
    line[length < 0 ? 0 : length] = 0;
    return length > 0;
}

// The thread of this process's pager with that name, as a directory of /proc.
static void find_thread(const char *name, char *directory, int bytes) {
    char path[64], line[512];
    DIR *processes = opendir("/proc");
    CHECK(processes);
    directory[0] = 0;
    for (struct dirent *entry; !directory[0] && (entry = readdir(processes));) {
        int pid = atoi(entry->d_name), parent = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        if (!pid || !read_line(path, line, sizeof line) || !strstr(line, "(pager-")) continue;
        if (sscanf(strrchr(line, ')') + 2, "%*c %d", &parent) != 1 || parent != getpid()) continue;
        snprintf(path, sizeof path, "/proc/%d/task", pid);
        DIR *threads = opendir(path);
        CHECK(threads);
        for (struct dirent *thread; (thread = readdir(threads));) {
            snprintf(path, sizeof path, "/proc/%d/task/%d/comm", pid, atoi(thread->d_name));
            if (thread->d_name[0] == '.' || !read_line(path, line, sizeof line)) continue;
            if (strncmp(line, name, strlen(name)) == 0)
                snprintf(directory, bytes, "/proc/%d/task/%d", pid, atoi(thread->d_name));
        }
        closedir(threads);
    }
    closedir(processes);
    CHECK(directory[0]);
}

// Where the thread goes on when its present wait is over.
static char *waits_at(const char *thread) {
    char path[320], line[512];
    snprintf(path, sizeof path, "%s/syscall", thread);
    for (;;) {
        unsigned long place = 0;
        CHECK(read_line(path, line, sizeof line));
        char *last = strrchr(line, ' ');
        if (atoi(line) == SYS_futex && last && sscanf(last, "%lx", &place) == 1) return (char *)place;
        usleep(1000);
    }
}

static void become_nobody(void) {
    CHECK(setgroups(0, 0) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    CHECK(open(shared.secret, O_RDONLY) == -1 && errno == EACCES);
}

static void enter_sandbox(void) {
    CHECK(unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) == 0);
    CHECK(mkdir("empty", 0755) == 0 && chroot("empty") == 0 && chdir("/") == 0);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    CHECK(open(shared.secret, O_RDONLY) == -1 && socket(AF_UNIX, SOCK_STREAM, 0) == -1);
}

static void victim(size_t bytes, void (*give_up_rights)(void)) {
    char thread[256];
    fill_all(map(bytes), bytes, 1);
    int file = open("secret", O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && close(file) == 0 && realpath("secret", shared.secret));
    shared.words[0] = shared.secret;
    shared.program = getpid();
    CHECK(mlock(&shared, sizeof shared) == 0);
    find_thread("pager-evictor", thread, sizeof thread);
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    void (*target)(void) = taken_over;
    memcpy(jump + 2, &target, sizeof target);
    char *place = waits_at(thread);
    give_up_rights();
    char *page = (char *)((uintptr_t)place & -PAGE);
    CHECK(syscall(SYS_mprotect, page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    memcpy(place, jump, sizeof jump);
    while (!shared.done) usleep(1000);
    CHECK(shared.pager && shared.pager != shared.program);
    for (int i = 0; i < CALLS; i++) {
        long wanted = i == 0 ? -EACCES : -EPERM;
        if (shared.answers[i] != wanted) FAIL("call %d in the pager gave %ld, not %ld", i, shared.answers[i], wanted);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) victim(strtoul(argv[2], 0, 10) * MIB, strcmp(argv[1], "user") ? enter_sandbox : become_nobody);
    wait_ok(child);
    puts("ok");
    return 0;
}
