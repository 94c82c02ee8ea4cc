// System calls on memory that is away, where the kernel reports no faults of theirs: each must do
// what it does natively, and lose nothing. MADV_PAGEOUT takes memory out before each call.
#include "check.h"
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <ucontext.h>

static char *memory;
static size_t size;

static void moved(size_t bytes);

static void away(void *at, size_t bytes) { CHECK(madvise(at, bytes, MADV_PAGEOUT) == 0); }

// Pages of a range that are in memory.
static size_t resident(const char *at, size_t bytes) {
    size_t there = 0;
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CHECK(pagemap >= 0);
    for (size_t page = 0; page < bytes / PAGE; page++) {
        uint64_t entry = 0;
        CHECK(pread(pagemap, &entry, 8, (off_t)(((uintptr_t)at / PAGE + page) * 8)) == 8);
        there += entry >> 63;
    }
    close(pagemap);
    return there;
}

// Memory of some pages, written to and away.
static char *gone(size_t pages) {
    CHECK((pages + 1) * PAGE <= size);
    fill_all(memory, pages * PAGE, 1);
    away(memory, pages * PAGE);
    return memory;
}

static void prepare(size_t bytes) {
    size = bytes;
    memory = map(size);
    fill_all(memory, size, 1);
    // The first look at the mappings registers it.
    for (int tries = 0; tries < 100; tries++) {
        away(memory, size);
        if (resident(memory, size) < size / PAGE / 2) break;
        usleep(10000);
    }
    CHECK(resident(memory, size) < size / PAGE / 2);
}

static char *temporary(void) {
    static char path[] = "/var/tmp/folioswap-held-XXXXXX";
    strcpy(path + sizeof path - 7, "XXXXXX");
    int file = mkstemp(path);
    CHECK(file >= 0);
    close(file);
    return path;
}

static int file_with(size_t pages, int flags) {
    char *path = temporary();
    int file = open(path, O_RDWR | O_CLOEXEC);
    char *contents = map(pages * PAGE);
    fill_all(contents, pages * PAGE, 7);
    CHECK(write(file, contents, pages * PAGE) == (ssize_t)(pages * PAGE));
    munmap(contents, pages * PAGE);
    close(file);
    file = open(path, O_RDWR | O_CLOEXEC | flags);
    CHECK(unlink(path) == 0);
    return file;
}

static void files(size_t bytes) {
    prepare(bytes);
    int file = file_with(4, 0);
    char *at = gone(4);
    CHECK(pread(file, at, 4 * PAGE, 0) == (ssize_t)(4 * PAGE));
    check_all(at, 4 * PAGE, 7);
    // Two of four are there.
    at = gone(4);
    check_all(at, 2 * PAGE, 1);
    CHECK(pread(file, at, 4 * PAGE, 0) == (ssize_t)(4 * PAGE));
    check_all(at, 4 * PAGE, 7);
    // All are there, unchanged since they came back: write-protected.
    at = gone(4);
    check_all(at, 4 * PAGE, 1);
    CHECK(pread(file, at, 4 * PAGE, 0) == (ssize_t)(4 * PAGE));
    check_all(at, 4 * PAGE, 7);
    // What was never touched.
    at = map(16 * PAGE);
    usleep(50000);
    CHECK(pread(file, at, 4 * PAGE, 0) == (ssize_t)(4 * PAGE));
    check_all(at, 4 * PAGE, 7);
    at = gone(4);
    CHECK(pwrite(file, at, 4 * PAGE, 4 * PAGE) == (ssize_t)(4 * PAGE));
    at = gone(1);
    CHECK(fstat(file, (struct stat *)at) == 0 && ((struct stat *)at)->st_size == (off_t)(8 * PAGE));
    struct iovec vectors[9];
    at = gone(9);
    for (int i = 0; i < 9; i++) vectors[i] = (struct iovec){at + i * PAGE + 100, 200};
    away(at, 9 * PAGE);
    CHECK(preadv(file, vectors, 9, 0) == 1800);
    close(file);
    file = file_with(4, O_DIRECT);
    at = gone(4);
    if (pread(file, at, 4 * PAGE, 0) == (ssize_t)(4 * PAGE)) check_all(at, 4 * PAGE, 7);
    else CHECK(errno == EINVAL);
    close(file);
}

// More than the limit by one call.
static void large(size_t bytes) {
    prepare(bytes);
    int file = file_with(bytes / PAGE, 0);
    CHECK(pread(file, memory, bytes, 0) == (ssize_t)bytes);
    check_all(memory, bytes, 7);
    CHECK(pwrite(file, memory, bytes, 0) == (ssize_t)bytes);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    fill_all(memory, bytes, 3);
    CHECK(read(file, memory, bytes) == (ssize_t)bytes);
    check_all(memory, bytes, 7);
    // The end of the file comes before that of the buffer.
    CHECK(pread(file, memory, bytes, (off_t)bytes / 2 + 100) == (ssize_t)bytes / 2 - 100);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    fill_all(memory, bytes, 4);
    pid_t reader = fork();
    CHECK(reader >= 0);
    if (reader == 0) {
        close(pipes[1]);
        char *copy = map(bytes);
        size_t done = 0;
        while (done < bytes) {
            ssize_t got = read(pipes[0], copy + done, bytes - done);
            CHECK(got > 0);
            done += (size_t)got;
        }
        check_all(copy, bytes, 4);
        _exit(0);
    }
    close(pipes[0]);
    CHECK(write(pipes[1], memory, bytes) == (ssize_t)bytes);
    close(pipes[1]);
    wait_ok(reader);
}

// A vector over more than the limit; and what is read of a stream until nothing more is there.
static void vectors(size_t bytes) {
    prepare(bytes);
    int file = file_with(1, 0);
    struct iovec vector[2] = {{"x", 1}, {memory, bytes}};
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    CHECK(writev(file, vector, 2) == (ssize_t)bytes + 1);
    fill_all(memory, bytes, 2);
    char first_byte = 0;
    vector[0].iov_base = &first_byte;
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    CHECK(readv(file, vector, 2) == (ssize_t)bytes + 1 && first_byte == 'x');
    check_all(memory, bytes, 1);
    // More than is held at once waits in a socket: all of it comes by one call.
    int pair[2], room = 32 << 20;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    CHECK(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    int queued = 0;
    ssize_t waits = write(pair[0], memory, bytes);
    CHECK(waits > 0 && ioctl(pair[1], FIONREAD, &queued) == 0);
    away(memory, bytes);
    CHECK(recv(pair[1], memory, bytes, MSG_PEEK) == waits);
    CHECK(read(pair[1], memory, bytes) == waits);
    check_all(memory, (size_t)waits & ~(PAGE - 1), 1);
    // The length that a program has given stays in its register.
    register size_t length __asm__("rdx") = bytes;
    long result;
    __asm__ volatile("syscall" : "=a"(result), "+r"(length) : "a"((long)SYS_pread64), "D"((long)file), "S"(memory) : "rcx", "r11", "memory");
    CHECK(length == bytes);
    CHECK(write(-1, memory, bytes) < 0 && errno == EBADF);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool over;
static int datagrams[2];

static void *waits_for_change(void *argument) {
    pthread_mutex_lock(&mutex);
    while (!over) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return argument;
}

static void *waits_for_messages(void *argument) {
    static struct mmsghdr messages[64];
    static struct iovec vectors[64];
    char *buffers = map(64 * PAGE);
    for (int i = 0; i < 64; i++) {
        vectors[i] = (struct iovec){buffers + i * PAGE, PAGE};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    CHECK(recvmmsg(datagrams[1], messages, 64, MSG_WAITFORONE, 0) == 1);
    CHECK(messages[0].msg_len == 4 && memcmp(buffers, "over", 4) == 0);
    return argument;
}

// Hundreds of threads wait in calls, one of them with many buffers; memory leaves all the same.
static void waiting(size_t bytes) {
    prepare(bytes);
    enum { THREADS = 400 };
    static pthread_t threads[THREADS];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 << 10) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], &small, i ? waits_for_change : waits_for_messages, 0) == 0);
    usleep(100000);
    fill_all(memory, bytes, 3);
    check_all(memory, bytes, 3);
    away(memory, bytes);
    CHECK(resident(memory, bytes) < bytes / PAGE / 2);
    // A mapping that has grown is known, whoever holds what.
    moved(bytes);
    pthread_mutex_lock(&mutex);
    over = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    CHECK(send(datagrams[0], "over", 4, 0) == 4);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], 0) == 0);
}

static void streams(size_t bytes) {
    prepare(bytes);
    int pipes[2], stream[2], datagram[2];
    CHECK(pipe(pipes) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram) == 0);
    char *at = gone(4);
    (void)*(volatile char *)at;
    CHECK(write(pipes[1], at, 4 * PAGE) == (ssize_t)(4 * PAGE));
    at = gone(4);
    CHECK(read(pipes[0], at, 4 * PAGE) == (ssize_t)(4 * PAGE));
    check_all(at, 4 * PAGE, 1);
    CHECK(write(stream[0], "stream", 6) == 6);
    at = gone(1);
    CHECK(recv(stream[1], at, PAGE, 0) == 6 && memcmp(at, "stream", 6) == 0);
    CHECK(send(datagram[0], "datagram", 8, 0) == 8);
    at = gone(1);
    CHECK(recv(datagram[1], at, PAGE, 0) == 8 && memcmp(at, "datagram", 8) == 0);
    // A message with a descriptor, all of which is away.
    at = gone(8);
    struct msghdr *message = (struct msghdr *)at;
    struct iovec *vectors = (struct iovec *)(at + PAGE);
    char *control = at + 2 * PAGE;
    memset(at, 0, 3 * PAGE);
    for (int i = 0; i < 8; i++) vectors[i] = (struct iovec){at + 3 * PAGE + i * 1000, 8};
    *message = (struct msghdr){.msg_iov = vectors, .msg_iovlen = 8, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &pipes[0], sizeof(int));
    away(at, 8 * PAGE);
    CHECK(sendmsg(datagram[0], message, 0) == 64);
    away(at, 8 * PAGE);
    CHECK(recvmsg(datagram[1], message, MSG_CMSG_CLOEXEC) == 64);
    int received;
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof received);
    CHECK(received > 2 && fcntl(received, F_GETFD) >= 0);
}

static void results(size_t bytes) {
    prepare(bytes);
    int event = eventfd(0, EFD_NONBLOCK);
    uint64_t count = 3;
    CHECK(write(event, &count, 8) == 8);
    char *at = gone(1);
    CHECK(read(event, at, 8) == 8 && *(uint64_t *)at == 3);
    pid_t child = fork();
    if (child == 0) _exit(5);
    at = gone(1);
    CHECK(waitpid(child, (int *)at, 0) == child && WEXITSTATUS(*(int *)at) == 5);
    at = gone(1);
    CHECK(pipe((int *)at) == 0);
    int reads = ((int *)at)[0], writes = ((int *)at)[1];
    at = gone(1);
    CHECK(getrandom(at, 100, 0) == 100);
    at = gone(1);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, at) == 0);
    at = gone(1);
    CHECK(sigprocmask(SIG_BLOCK, 0, (sigset_t *)at) == 0);
    at = gone(1);
    strcpy(at, "/");
    away(at, PAGE);
    CHECK(access(at, R_OK) == 0);
    at = gone(1);
    CHECK(getcwd(at, PAGE) == at && at[0] == '/');
    at = gone(1);
    CHECK(getrlimit(RLIMIT_NOFILE, (struct rlimit *)at) == 0);
    at = gone(1);
    CHECK(getrusage(RUSAGE_SELF, (struct rusage *)at) == 0);
    int epoll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLET, .data.u64 = 77};
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, reads, &wanted) == 0 && write(writes, "x", 1) == 1);
    at = gone(1);
    CHECK(epoll_wait(epoll, (struct epoll_event *)at, 8, 1000) == 1 && ((struct epoll_event *)at)->data.u64 == 77);
    at = gone(1);
    *(struct pollfd *)at = (struct pollfd){.fd = reads, .events = POLLIN};
    away(at, PAGE);
    CHECK(poll((struct pollfd *)at, 1, 1000) == 1 && ((struct pollfd *)at)->revents == POLLIN);
    at = gone(2);
    *(uint32_t *)at = 1;
    *(struct timespec *)(at + PAGE) = (struct timespec){0, 1000000};
    away(at, 2 * PAGE);
    CHECK(syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, 1, at + PAGE, 0, 0) < 0 && errno == ETIMEDOUT);
    away(at, 2 * PAGE);
    CHECK(syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, 2, 0, 0, 0) < 0 && errno == EAGAIN);
    at = gone(1);
    CHECK(mlock(at, PAGE) == 0 && munlock(at, PAGE) == 0);
    at = gone(4);
    CHECK(madvise(at, 4 * PAGE, MADV_POPULATE_READ) == 0);
    check_all(at, 4 * PAGE, 1);
    at = gone(4);
    CHECK(madvise(at, 4 * PAGE, MADV_POPULATE_WRITE) == 0);
    check_all(at, 4 * PAGE, 1);
    // What no mapping has stays the kernel's to refuse.
    char *nowhere = map(PAGE);
    munmap(nowhere, PAGE);
    CHECK(write(writes, nowhere, 10) < 0 && errno == EFAULT);
    char *volatile bad = (char *)8;
    CHECK(read(reads, bad, 1) < 0 && errno == EFAULT);
    // A ring would use memory that no call names.
    CHECK(syscall(SYS_io_uring_setup, 4, at) < 0 && errno == ENOSYS);
}

// Arguments and environment of an exec, all away.
static void images(size_t bytes) {
    prepare(bytes);
    for (int round = 0; round < 8; round++) {
        char *at = gone(16);
        memset(at, 0, 16 * PAGE);
        char **words = (char **)at, **environment = (char **)(at + 2 * PAGE);
        strcpy(at + 4 * PAGE, "/bin/sh");
        strcpy(at + 5 * PAGE, "-c");
        strcpy(at + 6 * PAGE, "test \"$A$B\" = onetwo");
        strcpy(at + 7 * PAGE, "A=one");
        strcpy(at + 8 * PAGE, "B=two");
        for (int i = 0; i < 3; i++) words[i] = at + (4 + i) * PAGE;
        for (int i = 0; i < 2; i++) environment[i] = at + (7 + i) * PAGE;
        pid_t child = round % 2 ? fork() : vfork();
        CHECK(child >= 0);
        if (child == 0) {
            madvise(at, 16 * PAGE, MADV_PAGEOUT);
            if (round % 4 < 2) execve(at + 4 * PAGE, words, environment);
            else syscall(SYS_execveat, AT_FDCWD, at + 4 * PAGE, words, environment, 0);
            _exit(9);
        }
        wait_ok(child);
    }
}

// A mapping that grows or moves is known before the next call uses it.
static void moved(size_t bytes) {
    prepare(bytes);
    int file = file_with(256, 0);
    for (int round = 0; round < 30; round++) {
        char *at = map(1024 * PAGE), *wall = at + 512 * PAGE;
        CHECK(munmap(wall, 512 * PAGE) == 0);
        fill_all(at, 64 * PAGE, 1);
        for (int tries = 0; tries < 200 && resident(at, 64 * PAGE) > 8; tries++) {
            away(at, 64 * PAGE);
            if (resident(at, 64 * PAGE) > 8) usleep(2000);
        }
        CHECK(munmap(at + 64 * PAGE, 448 * PAGE) == 0);
        // Into the room behind it.
        char *grown = mremap(at, 64 * PAGE, 320 * PAGE, MREMAP_MAYMOVE);
        CHECK(grown != MAP_FAILED);
        CHECK(pread(file, grown + 64 * PAGE, 256 * PAGE, 0) == (ssize_t)(256 * PAGE));
        check_all(grown + 64 * PAGE, 256 * PAGE, 7);
        check_all(grown, 64 * PAGE, 1);
        away(grown, 64 * PAGE);
        // To another place.
        char *place = map(512 * PAGE);
        char *there = mremap(grown, 320 * PAGE, 320 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
        CHECK(there == place);
        CHECK(pwrite(file, there, 64 * PAGE, 256 * PAGE) == (ssize_t)(64 * PAGE));
        check_all(there, 64 * PAGE, 1);
        CHECK(munmap(place, 512 * PAGE) == 0);
    }
}

static volatile sig_atomic_t handled;
static char *own_stack;
static void *frame_at;

// Its own frame leaves while it runs.
static void handler(int number) {
    (void)number;
    char here;
    uintptr_t page = (uintptr_t)&here & ~(PAGE - 1);
    away((void *)(page - 4 * PAGE), 4 * PAGE);
    // What the kernel reads at the end lies in several pages.
    uintptr_t top = (uintptr_t)memory + (page < (uintptr_t)memory + 64 * PAGE ? 64 : 128) * PAGE;
    away((void *)page, top - page);
    frame_at = &here;
    handled++;
}

static ucontext_t first, second;

static void on_coroutine(void) {
    for (int i = 0; i < 200; i++) {
        char here;
        uintptr_t page = (uintptr_t)&here & ~(PAGE - 1);
        // The next page down, where the frame would lie, and all below.
        away((void *)(page - 16 * PAGE), 16 * PAGE);
        CHECK(raise(SIGUSR2) == 0);
        swapcontext(&second, &first);
    }
}

static void signals(size_t bytes) {
    prepare(bytes);
    own_stack = memory;
    stack_t stack = {.ss_sp = memory, .ss_size = 64 * PAGE};
    CHECK(sigaltstack(&stack, 0) == 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, 0) == 0);
    action.sa_flags = 0;
    CHECK(sigaction(SIGUSR2, &action, 0) == 0);
    for (int i = 0; i < 200; i++) {
        // The frame lies across pages, elsewhere each time.
        stack.ss_size = 64 * PAGE - (size_t)(i % 64) * 64;
        CHECK(sigaltstack(&stack, 0) == 0);
        away(memory, 64 * PAGE);
        CHECK(raise(SIGUSR1) == 0);
        CHECK((char *)frame_at > memory && (char *)frame_at < memory + 64 * PAGE);
    }
    CHECK(handled == 200);
    // Coroutines, and handlers without a stack of their own.
    CHECK(getcontext(&second) == 0);
    second.uc_stack = (stack_t){.ss_sp = memory + 64 * PAGE, .ss_size = 64 * PAGE};
    second.uc_link = &first;
    makecontext(&second, on_coroutine, 0);
    for (int i = 0; i < 200; i++) {
        away(memory + 64 * PAGE, 64 * PAGE);
        CHECK(swapcontext(&first, &second) == 0);
    }
    CHECK(handled == 400);
}

static _Atomic int stop;

static void ticked(int number) {
    (void)number;
    handled++;
}

static void *works(void *argument) {
    (void)argument;
    char *own = map(64 * PAGE);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    for (uint64_t round = 0; !stop; round++) {
        fill_all(own, 8 * PAGE, round);
        CHECK(write(pipes[1], own, 8 * PAGE) == (ssize_t)(8 * PAGE));
        size_t done = 0;
        while (done < 8 * PAGE) {
            ssize_t got = read(pipes[0], own + 16 * PAGE + done, 8 * PAGE - done);
            if (got < 0 && errno == EINTR) continue;
            CHECK(got > 0);
            done += (size_t)got;
        }
        check_all(own + 16 * PAGE, 8 * PAGE, round);
        if (round % 16 == 0) away(own, 64 * PAGE);
        sched_getcpu();
    }
    close(pipes[0]);
    close(pipes[1]);
    munmap(own, 64 * PAGE);
    return 0;
}

// Threads that begin and end, with a signal each millisecond.
static void threads(size_t bytes) {
    prepare(bytes);
    struct sigaction action = {.sa_handler = ticked, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    struct itimerval each = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_REAL, &each, 0) == 0);
    for (int round = 0; round < 20; round++) {
        pthread_t all[4];
        stop = 0;
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&all[i], 0, works, 0) == 0);
        away(memory, size);
        check_all(memory, 64 * PAGE, 1);
        usleep(50000);
        stop = 1;
        for (int i = 0; i < 4; i++) CHECK(pthread_join(all[i], 0) == 0);
    }
    CHECK(handled > 20);
}

static sigjmp_buf out;
static volatile sig_atomic_t faults;

static void faulted(int number) {
    (void)number;
    faults++;
    siglongjmp(out, 1);
}

static void falls(void) {
    char *volatile nowhere = (char *)16;
    *nowhere = 1;
}

static int ends_by(void (*run)(void), int action) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, action ? SIG_IGN : SIG_DFL);
        run();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void raises(void) { raise(SIGSEGV); }

static void sent(void) { kill(getpid(), SIGSEGV); }

static void refused(int reads) {
    char *at = gone(4);
    CHECK(mprotect(at, PAGE, PROT_READ) == 0 && mprotect(at + PAGE, PAGE, PROT_NONE) == 0);
    CHECK(read(reads, at, 10) < 0 && errno == EFAULT);
    CHECK(read(reads, at + PAGE, 10) < 0 && errno == EFAULT);
    CHECK(access(at + PAGE, R_OK) < 0 && errno == EFAULT);
    CHECK(open(at + PAGE - 1, O_RDONLY) < 0);
    CHECK(mprotect(at, 2 * PAGE, PROT_READ | PROT_WRITE) == 0);
    check_all(at, 4 * PAGE, 1);
}

// A pointer that leads nowhere is the kernel's to refuse, and a fault ends a program as it would.
static void pointers(size_t bytes) {
    prepare(bytes);
    int pipes[2];
    CHECK(pipe(pipes) == 0 && write(pipes[1], "words", 5) == 5);
    struct sigaction action;
    refused(pipes[0]);
    CHECK(sigaction(SIGSEGV, 0, &action) == 0 && action.sa_handler == SIG_DFL && action.sa_flags == 0);
    CHECK(ends_by(falls, 0) == SIGSEGV && ends_by(falls, 1) == SIGSEGV);
    CHECK(ends_by(raises, 0) == SIGSEGV && ends_by(raises, 1) == 0);
    CHECK(ends_by(sent, 0) == SIGSEGV && ends_by(sent, 1) == 0);
    CHECK(signal(SIGSEGV, faulted) == SIG_DFL);
    refused(pipes[0]);
    CHECK(faults == 0);
    if (sigsetjmp(out, 1) == 0) falls();
    CHECK(faults == 1 && signal(SIGSEGV, SIG_IGN) == faulted);
    refused(pipes[0]);
    CHECK(system("kill -SEGV $$; exit 3") == 3 << 8);
    CHECK(signal(SIGSEGV, SIG_DFL) == SIG_IGN);
    refused(pipes[0]);
    // A handler that is there once is there until the program faults.
    struct sigaction once = {.sa_handler = faulted, .sa_flags = (int)SA_RESETHAND};
    CHECK(sigaction(SIGSEGV, &once, 0) == 0);
    refused(pipes[0]);
    CHECK(sigaction(SIGSEGV, 0, &once) == 0 && once.sa_handler == faulted);
    if (sigsetjmp(out, 1) == 0) falls();
    CHECK(faults == 2 && sigaction(SIGSEGV, 0, &once) == 0 && once.sa_handler == SIG_DFL);
    CHECK((system("kill -SEGV $$; exit 3") & 0x7f) == SIGSEGV);
    char word[5];
    CHECK(read(pipes[0], word, 5) == 5 && memcmp(word, "words", 5) == 0);
}

static int confined_file;

static void *behind_the_filter(void *argument) {
    (void)argument;
    for (size_t page = 0; page + 4 < size / PAGE; page += 64) {
        CHECK(pread(confined_file, memory + page * PAGE, 4 * PAGE, 0) == (ssize_t)(4 * PAGE));
        check_all(memory + page * PAGE, 4 * PAGE, 7);
    }
    return 0;
}

// A filter that forbids what arms a thread: the calls of new threads are not seen.
static void confined(size_t bytes) {
    prepare(bytes);
    confined_file = file_with(4, 0);
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, instructions};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    // A page that nothing may touch comes back as well.
    CHECK(mprotect(memory + 100 * PAGE, PAGE, PROT_NONE) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
    CHECK(mprotect(memory + 100 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
    check_page(memory + 100 * PAGE, 100, 1);
    // A second one, and one that is refused, change nothing.
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
    struct sock_fprog broken = {0, instructions};
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &broken) < 0);
    CHECK(prctl(PR_GET_PDEATHSIG, &filter) < 0 && errno == EPERM);
    away(memory, size);
    for (int round = 0; round < 4; round++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, 0, behind_the_filter, 0) == 0);
        CHECK(pthread_join(thread, 0) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            behind_the_filter(0);
            _exit(0);
        }
        wait_ok(child);
    }
    // An image that inherits the filter has no gate, and its memory stays.
    CHECK(system("true | cat && exit 7") == 7 << 8);
    // What is mapped from now on stays as well.
    char *more = map(MIB);
    fill_all(more, MIB, 2);
    usleep(100000);
    away(more, MIB);
    CHECK(resident(more, MIB) == MIB / PAGE);
    for (size_t page = 5; page < 64; page++) check_page(memory + page * PAGE, page, 1);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"files", files},     {"large", large},   {"streams", streams}, {"results", results}, {"images", images},
        {"moved", moved},     {"signals", signals}, {"threads", threads},   {"pointers", pointers},
        {"vectors", vectors},   {"waiting", waiting},
        {"confined", confined}, {0, 0},
    };
    return run_case(tests, argc, argv);
}
