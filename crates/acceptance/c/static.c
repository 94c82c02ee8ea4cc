// A static program: no agent can be preloaded into it.
#include "check.h"
// static [MILLISECONDS that it stays]
int main(int argc, char **argv) {
    size_t bytes = 8 * MIB;
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    if (argc > 1) usleep(atoi(argv[1]) * 1000);
    check_all(a, bytes, 1);
    printf("static ok\n");
    return 0;
}
