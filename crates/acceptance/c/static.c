// A static program: no agent can be preloaded into it.
#include "check.h"
int main(void) {
    size_t bytes = 8 * MIB;
    char *a = map(bytes);
    fill_all(a, bytes, 1);
    check_all(a, bytes, 1);
    printf("static ok\n");
    return 0;
}
