// SPDX-License-Identifier: MIT OR Apache-2.0
// Loads and attaches every program of a BPF object, prints "ready", and detaches them when its
// standard input ends.
#include <bpf/libbpf.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    if (count != 2) {
        fprintf(stderr, "usage: %s OBJECT.bpf.o\n", arguments[0]);
        return 2;
    }
    struct bpf_object *object = bpf_object__open_file(arguments[1], NULL);
    if (libbpf_get_error(object) || bpf_object__load(object)) {
        fprintf(stderr, "%s cannot be loaded; see the messages above\n", arguments[1]);
        return 1;
    }
    struct bpf_program *program;
    bpf_object__for_each_program(program, object) {
        if (libbpf_get_error(bpf_program__attach(program))) {
            fprintf(stderr, "%s cannot be attached: does this kernel have the tracepoint?\n", bpf_program__section_name(program));
            return 1;
        }
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
