// Fills memory, has a child read it, and becomes the next program of a chain.
//
//     chain MEBIBYTES PROGRAM...
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    size_t size = atol(argv[1]) * MIB, version = argc;
    char *memory = map(size);
    fill_all(memory, size, version);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_all(memory, size, version);
        _exit(0);
    }
    check_all(memory, size, version);
    wait_ok(child);
    if (argc == 2) {
        printf("ok chain\n");
        return 0;
    }
    // None of these is there, or may be executed: the program goes on.
    char *nothing[] = {"nothing", 0};
    CHECK(execve("/nowhere/nothing", nothing, environ) == -1 && errno == ENOENT);
    CHECK(execve("/etc", nothing, environ) == -1 && errno == EACCES);
    check_all(memory, size, version);
    char *next = argv[2], *mebibytes = argv[1];
    argv[1] = next;
    argv[2] = mebibytes;
    execv(next, argv + 1);
    FAIL("%s: %s", next, strerror(errno));
}
