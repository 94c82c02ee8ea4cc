// Starts a program by each function of the C library that does so without one of the exec functions
// being called, and checks that each ends with status 0.
//
//     spawner PROGRAM ARGUMENT
#include "check.h"
#include <spawn.h>

int main(int argc, char **argv) {
    CHECK(argc == 3);
    char *words[] = {argv[1], argv[2], 0}, *none[] = {0}, line[1024], answer[64];
    pid_t child = 0;
    CHECK(posix_spawn(&child, argv[1], 0, 0, words, environ) == 0);
    wait_ok(child);
    CHECK(posix_spawn(&child, argv[1], 0, 0, words, none) == 0);
    wait_ok(child);
    CHECK(posix_spawnp(&child, argv[1], 0, 0, words, environ) == 0);
    wait_ok(child);
    CHECK(posix_spawn(&child, "/nowhere/nothing", 0, 0, words, environ) == ENOENT);
    CHECK(posix_spawn(&child, "/etc", 0, 0, words, environ) == EACCES);
    // `exec` keeps the shell, which calls an exec function, from being the parent.
    snprintf(line, sizeof line, "exec '%s' %s", argv[1], argv[2]);
    CHECK(system(line) == 0);
    FILE *pipe = popen(line, "r");
    CHECK(pipe && fgets(answer, sizeof answer, pipe));
    CHECK(pclose(pipe) == 0);
    fputs(answer, stdout);
    printf("ok spawner\n");
    return 0;
}
