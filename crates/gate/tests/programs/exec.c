// Images that follow each other: what a new one inherits of SIGSYS, and execs that fail.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <errno.h>
#include <string.h>
int main(int count, char **arguments) {
    int stage = count > 1 ? atoi(arguments[1]) : 0;
    struct sigaction action;
    sigaction(SIGSYS, 0, &action);
    printf("stage %d: SIGSYS %s\n", stage, action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "handled");
    fflush(stdout);
    if (stage == 0) signal(SIGSYS, SIG_IGN);
    if (stage == 1) signal(SIGSYS, (void (*)(int))main);
    execl("/none/such", "such", (char *)0);
    printf("%s\n", strerror(errno));
    sigaction(SIGSYS, 0, &action);
    printf("then %d\n", action.sa_handler == SIG_IGN);
    fflush(stdout);
    char next[4];
    snprintf(next, sizeof next, "%d", stage + 1);
    if (stage < 3) execl("/proc/self/exe", arguments[0], next, (char *)0);
    return 0;
}
