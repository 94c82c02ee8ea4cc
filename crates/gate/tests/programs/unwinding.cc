// A cancelled thread runs the destructors of its frames: an unwinder finds its way out of the gate.
#include <cstdio>
#include <pthread.h>
#include <unistd.h>
struct Destroyed {
    int number;
    ~Destroyed() {
        printf("destroyed %d\n", number);
        fflush(stdout);
    }
};
static int pipes[2];
__attribute__((noinline)) static void inner(int number) {
    Destroyed destroyed{number};
    char byte;
    if (read(pipes[0], &byte, 1) < 0) printf("?");
}
static void *run(void *argument) {
    Destroyed destroyed{100};
    inner((long)argument);
    return 0;
}
int main() {
    if (pipe(pipes)) return 1;
    for (long i = 0; i < 6; i++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, 0, run, (void *)i);
        usleep(3000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("%d\n", result == PTHREAD_CANCELED);
    }
}
