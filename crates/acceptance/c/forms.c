// Every form in which a program can start another one, with an environment that lacks the variables
// it was started with.
#include "check.h"
#include <spawn.h>

extern char **environ;
static char *program, *shell_line;

enum { LAST = 9 };

// Needs `bytes`, and was given the arguments 1 to 9 besides, or none.
static void plain(size_t bytes, int argc, char **argv) {
    if (argc != 3) {
        CHECK(argc == 3 + LAST);
        for (int i = 1; i <= LAST; i++) CHECK(atoi(argv[2 + i]) == i);
    }
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    check_all(a, bytes, 1);
    check_all(a, bytes, 1);
}

static char *size;
#define NINE "1", "2", "3", "4", "5", "6", "7", "8", "9", (char *)0
#define SELF program, "plain", size
static char **words(void) {
    static char *list[16];
    char *all[] = {SELF, NINE};
    memcpy(list, all, sizeof all);
    return list;
}

// Each form starts this program anew; `environment` is also in `environ`.
static void form_execl(char **environment) { (void)environment, execl(program, SELF, NINE); }
static void form_execl_short(char **environment) { (void)environment, execl(program, SELF, (char *)0); }
static void form_execle(char **environment) {
    environ = 0; // It must be the one that is given.
    execle(program, SELF, NINE, environment);
}
static void form_execlp(char **environment) { (void)environment, execlp(program, SELF, NINE); }
static void form_execv(char **environment) { (void)environment, execv(program, words()); }
static void form_execve(char **environment) { environ = 0, execve(program, words(), environment); }
static void form_execvp(char **environment) { (void)environment, execvp(program, words()); }
static void form_execvpe(char **environment) { environ = 0, execvpe(program, words(), environment); }
static void form_fexecve(char **environment) {
    int descriptor = open(program, O_RDONLY | O_CLOEXEC);
    CHECK(descriptor >= 0);
    environ = 0, fexecve(descriptor, words(), environment);
}
static void form_execveat(char **environment) {
    // The C library's function is young; without it a program can only do this.
    environ = 0;
    int (*function)(int, const char *, char *const[], char *const[], int) = 0;
    extern int execveat(int, const char *, char *const[], char *const[], int) __attribute__((weak));
    function = execveat;
    if (!function) function = (void *)execve;
    function(AT_FDCWD, program, words(), environment, 0);
}
static void finish(pid_t child) {
    wait_ok(child);
    _exit(0);
}
static void form_posix_spawn(char **environment) {
    pid_t child;
    environ = 0;
    CHECK(posix_spawn(&child, program, 0, 0, words(), environment) == 0);
    finish(child);
}
static void form_posix_spawnp(char **environment) {
    pid_t child;
    environ = 0;
    CHECK(posix_spawnp(&child, program, 0, 0, words(), environment) == 0);
    finish(child);
}
static void form_vfork(char **environment) {
    pid_t child = vfork();
    if (child == 0) {
        execle(program, SELF, NINE, environment);
        _exit(127);
    }
    finish(child);
}
static void form_system(char **environment) {
    (void)environment;
    CHECK(system(0) != 0);
    int status = system("exit 3");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    // Quotes and a value of the shell's own survive.
    CHECK(system("test \"it's $((1 + 1)) \" = 'it'\"'\"'s 2 '") == 0);
    CHECK(system(shell_line) == 0);
    _exit(0);
}
static void form_popen(char **environment) {
    (void)environment;
    char text[64] = "";
    FILE *stream = popen("echo it\\'s \"$(echo me)\"", "r");
    CHECK(stream && fgets(text, sizeof text, stream) && strcmp(text, "it's me\n") == 0);
    CHECK(pclose(stream) == 0);
    CHECK(popen("true", "x") == 0 && errno == EINVAL);
    CHECK((stream = popen(shell_line, "w")) != 0);
    CHECK(pclose(stream) == 0);
    _exit(0);
}

static const struct {
    const char *name;
    void (*start)(char **environment);
} forms[] = {
    {"execl", form_execl},
    {"execl-short", form_execl_short},
    {"execle", form_execle},
    {"execlp", form_execlp},
    {"execv", form_execv},
    {"execve", form_execve},
    {"execvp", form_execvp},
    {"execvpe", form_execvpe},
    {"fexecve", form_fexecve},
    {"execveat", form_execveat},
    {"posix_spawn", form_posix_spawn},
    {"posix_spawnp", form_posix_spawnp},
    {"vfork", form_vfork},
    {"system", form_system},
    {"popen", form_popen},
};

static void in_child(void (*start)(char **), char **environment) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        environ = environment;
        start(environment);
        FAIL("not started: %s", strerrordesc_np(errno));
    }
    wait_ok(child);
}

static void form(const char *name) {
    for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name, forms[i].name) == 0) {
            char *none[] = {0};
            char *other[] = {"PATH=/usr/bin:/bin", "LANG=C", "FOLIOSWAP=nothing", "LD_PRELOADED=/no", 0};
            in_child(forms[i].start, none);
            in_child(forms[i].start, other);
            // A missing array is an empty one.
            if (strncmp(name, "posix", 5) && strcmp(name, "system") && strcmp(name, "popen")) in_child(forms[i].start, 0);
            return;
        }
    FAIL("no such form: %s", name);
}

// Environments of every size arrive whole. The last argument is the expected number of variables.
static void variables(size_t bytes, int count) {
    char name[32], *value;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "V%d", i);
        CHECK((value = getenv(name)) && atoi(value) == i * 7);
    }
    int strings = 0, preloads = 0;
    for (char **each = environ; *each; each++) strings++, preloads += strncmp(*each, "LD_PRELOAD=", 11) == 0;
    CHECK(preloads <= 1 && strings <= count + 2);
    plain(bytes, 3, 0);
}

static char **many(int count) {
    char **environment = calloc(count + 1, sizeof *environment);
    CHECK(environment);
    for (int i = 0; i < count; i++) CHECK(asprintf(&environment[i], "V%d=%d", i, i * 7) > 0);
    return environment;
}

static __attribute__((noinline)) pid_t with_vfork(char **list, char **environment) {
    pid_t child = vfork();
    if (child == 0) {
        execve(program, list, environment);
        _exit(127);
    }
    return child;
}

static void many_variables(void) {
    for (int count = 1; count < 20000; count = count * 3 + 1) {
        char **environment = many(count), number[16];
        snprintf(number, sizeof number, "%d", count);
        char *list[] = {program, "variables", count < 9000 ? "1" : size, number, 0};
        pid_t child;
        wait_ok(with_vfork(list, environment));
        CHECK(posix_spawn(&child, program, 0, 0, list, environment) == 0);
        wait_ok(child);
    }
}

// execve and execle are allowed in a signal handler, whose stack may be small.
static void small_handler(int signal) {
    (void)signal;
    char *none[] = {0};
    execle(program, SELF, NINE, none);
    _exit(127);
}
static void in_small_handler(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // The kernel's part of the frame grows with the registers of the machine; 8 KiB is the
        // traditional SIGSTKSZ.
        size_t own = sysconf(_SC_MINSIGSTKSZ) + 8192;
        char *area = map(own + 2 * PAGE);
        CHECK(mprotect(area, PAGE, PROT_NONE) == 0);
        stack_t stack = {.ss_sp = area + PAGE, .ss_size = own};
        struct sigaction action = {.sa_handler = small_handler, .sa_flags = SA_ONSTACK};
        CHECK(sigaltstack(&stack, 0) == 0 && sigaction(SIGUSR1, &action, 0) == 0);
        raise(SIGUSR1);
        FAIL("the handler did not run");
    }
    wait_ok(child);
}

// A failing form reports it in the usual way, and changes nothing.
static void failing(void) {
    char *none[] = {0};
    environ = none;
    CHECK(execl("/nowhere/nothing", "x", "1", "2", "3", "4", "5", "6", "7", (char *)0) == -1 && errno == ENOENT);
    CHECK(execle("/etc/passwd", "x", "1", "2", "3", "4", "5", "6", (char *)0, none) == -1 && errno == EACCES);
    CHECK(execlp("no-such-program-here", "x", (char *)0) == -1 && errno == ENOENT);
    CHECK(execveat(AT_FDCWD, "/nowhere", none, none, 0) == -1 && errno == ENOENT);
    pid_t child;
    CHECK(posix_spawn(&child, "/nowhere/nothing", 0, 0, none, none) == ENOENT);
    int status = system("no-such-program-here 2> /dev/null");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 127);
    status = system("kill -9 $$");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    char **environment = many(3000);
    size_t before = 0, after = 0;
    for (int i = 0; i < 200; i++) {
        CHECK(execve("/nowhere/nothing", none, environment) == -1 && errno == ENOENT);
        FILE *file = fopen("/proc/self/statm", "r");
        CHECK(file && fscanf(file, "%zu", i == 99 ? &before : &after) == 1);
        fclose(file);
    }
    if (after > before) FAIL("each failed exec leaves memory behind: %zu pages, then %zu", before, after);
}

// A thread that waits in system(3) can be cancelled; its shell is ended.
static void *sleeping(void *unused) {
    (void)unused;
    system("exec sleep 100");
    return 0;
}
static void cancelled(void) {
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        void *result = 0;
        CHECK(pthread_create(&thread, 0, sleeping, 0) == 0);
        usleep(300000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
        CHECK(waitpid(-1, 0, WNOHANG) == -1 && errno == ECHILD);
        clearenv();
    }
}

// The command line is CASE MEBIBYTES [...].
int main(int argc, char **argv) {
    CHECK(argc >= 3);
    program = realpath("/proc/self/exe", 0), size = argv[2];
    CHECK(program && asprintf(&shell_line, "%s plain %s 1 2 3 4 5 6 7 8 9", program, size) > 0);
    size_t bytes = strtoul(size, 0, 10) * MIB;
    if (strcmp(argv[1], "plain") == 0) {
        plain(bytes, argc, argv);
        return 0;
    }
    if (strcmp(argv[1], "variables") == 0) {
        variables(bytes, atoi(argv[3]));
        return 0;
    }
    if (strcmp(argv[1], "many-variables") == 0)
        many_variables();
    else if (strcmp(argv[1], "small-handler") == 0)
        in_small_handler();
    else if (strcmp(argv[1], "failing") == 0)
        failing(), in_child(form_execl, environ);
    else if (strcmp(argv[1], "cancelled") == 0)
        cancelled(), in_child(form_execl, environ);
    else
        form(argv[1]);
    printf("ok %s\n", argv[1]);
}
