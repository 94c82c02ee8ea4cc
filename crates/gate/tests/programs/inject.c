// Starts a program with an object mapped into it and its constructor run before the first instruction of the program's
// own, or of its loader: so a static program gets the gate too. Detaches before the program begins.
//
//   inject OBJECT PROGRAM [ARGUMENT...]
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
static pid_t child;
static struct user_regs_struct first;
static void die(const char *what) { fprintf(stderr, "inject: %s: %s\n", what, strerror(errno)); kill(child, SIGKILL); exit(99); }
static void put(unsigned long at, const void *bytes, unsigned long size) {
    for (unsigned long i = 0; i < size; i += 8) {
        unsigned long word = ptrace(PTRACE_PEEKDATA, child, at + i, 0);
        memcpy(&word, (const char *)bytes + i, size - i < 8 ? size - i : 8);
        if (ptrace(PTRACE_POKEDATA, child, at + i, word)) die("write");
    }
}
// Lets the child run to the breakpoint behind `rip`'s instruction, with these registers.
static unsigned long run(struct user_regs_struct registers) {
    int status, signal = 0;
    registers.orig_rax = -1;
    if (ptrace(PTRACE_SETREGS, child, 0, &registers)) die("registers");
    do {
        if (ptrace(PTRACE_CONT, child, 0, signal) || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) die("run");
        signal = WSTOPSIG(status);
    } while (signal != SIGTRAP);
    ptrace(PTRACE_GETREGS, child, 0, &registers);
    return registers.rax;
}
static unsigned long call(long number, long a, long b, long c, long d, long e, long f) {
    struct user_regs_struct r = first;
    r.rax = number, r.rdi = a, r.rsi = b, r.rdx = c, r.r10 = d, r.r8 = e, r.r9 = f;
    unsigned long answer = run(r);
    if (answer > -4096UL) { errno = -answer; die("call"); }
    return answer;
}
int main(int count, char **arguments) {
    if (count < 3) return 99;
    int file = open(arguments[1], O_RDONLY), status;
    struct stat stat;
    if (file < 0 || fstat(file, &stat)) die(arguments[1]);
    char *image = mmap(0, stat.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    Elf64_Ehdr *header = (void *)image;
    Elf64_Phdr *segments = (void *)(image + header->e_phoff);
    child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execvp(arguments[2], arguments + 2);
        _exit(127);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    ptrace(PTRACE_GETREGS, child, 0, &first);
    unsigned long text = ptrace(PTRACE_PEEKDATA, child, first.rip, 0), name = first.rsp - 8192;
    put(first.rip, "\x0f\x05\xcc", 3);
    put(name, arguments[1], strlen(arguments[1]) + 1);
    long object = call(SYS_open, name, O_RDONLY, 0, 0, 0, 0);
    unsigned long span = 0, start = 0;
    for (int i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > span) span = segments[i].p_vaddr + segments[i].p_memsz;
    unsigned long base = call(SYS_mmap, 0, span + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr *s = &segments[i];
        if (s->p_type != PT_LOAD) continue;
        unsigned long page = s->p_vaddr & ~4095UL, head = s->p_vaddr - page, file_end = (s->p_vaddr + s->p_filesz + 4095) & ~4095UL, end = (s->p_vaddr + s->p_memsz + 4095) & ~4095UL;
        int protection = (s->p_flags & PF_R ? PROT_READ : 0) | (s->p_flags & PF_W ? PROT_WRITE : 0) | (s->p_flags & PF_X ? PROT_EXEC : 0);
        if (s->p_filesz) call(SYS_mmap, base + page, file_end - page, protection, MAP_PRIVATE | MAP_FIXED, object, s->p_offset - head);
        else file_end = page;
        if (end > file_end) call(SYS_mmap, base + file_end, end - file_end, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        static const char zero[4096];
        if (s->p_filesz && s->p_memsz > s->p_filesz) put(base + s->p_vaddr + s->p_filesz, zero, file_end - s->p_vaddr - s->p_filesz);
    }
    call(SYS_close, object, 0, 0, 0, 0, 0);
    Elf64_Shdr *sections = (void *)(image + header->e_shoff);
    const char *names = image + sections[header->e_shstrndx].sh_offset;
    unsigned long constructors = 0;
    for (int i = 0; i < header->e_shnum; i++)
        if (!strcmp(names + sections[i].sh_name, ".init_array")) constructors = sections[i].sh_addr;
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_RELA) continue;
        Elf64_Rela *r = (void *)(image + sections[i].sh_offset);
        for (unsigned long n = 0; n < sections[i].sh_size / sizeof *r; n++) {
            if (ELF64_R_TYPE(r[n].r_info) != R_X86_64_RELATIVE) die("a relocation");
            unsigned long value = base + r[n].r_addend;
            put(base + r[n].r_offset, &value, 8);
            if (r[n].r_offset == constructors) start = value;
        }
    }
    if (!start) die("no constructor");
    // The constructor's arguments, as a loader gives them, and the breakpoint as its return address.
    struct user_regs_struct r = first;
    unsigned long arguments_count = ptrace(PTRACE_PEEKDATA, child, first.rsp, 0), back = first.rip + 2;
    r.rip = start, r.rdi = arguments_count, r.rsi = first.rsp + 8, r.rdx = first.rsp + 8 * (arguments_count + 2);
    r.rsp = (first.rsp - 256 & ~15UL) - 8;
    put(r.rsp, &back, 8);
    run(r);
    put(first.rip, &text, 8);
    first.orig_rax = -1;
    ptrace(PTRACE_SETREGS, child, 0, &first);
    ptrace(PTRACE_DETACH, child, 0, 0);
    if (waitpid(child, &status, 0) != child) return 99;
    if (WIFSIGNALED(status)) { signal(WTERMSIG(status), SIG_DFL); raise(WTERMSIG(status)); }
    return WEXITSTATUS(status);
}
