// libcairn-probe.so records the file of a process's malloc, so that `cairn run` knows which
// allocator it has measured. A preload may have no effect: the program has its own malloc, a child
// starts with another environment, or the linker could not load the library.
//
// The library is preloaded after the allocator. At the start of a process, it appends one line to
// the file named by CAIRN_PROBE_FILE: the name by which the process was called, its program, the
// file of its malloc, and the file that malloc would come from without the allocator, with tabs in
// between. The library defines no symbol and keeps nothing open. Failures of the library are
// silent: a process without a line is one that the preload did not reach.
//
// The library finds the owner of the name malloc for everything that is linked dynamically. The
// library cannot see an allocator that a program calls by another name or contains without
// exporting it.
#define _GNU_SOURCE // dladdr1, RTLD_NEXT, program_invocation_short_name
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

// The functions of an allocator. Node.js takes the address of all of them.
static const char *const functions[] = {"malloc", "realloc", "calloc", "free"};

#ifdef __GLIBC__

// Returns: the file that defines a function of an allocator, in the order of lookup. NULL when the
// first definition is only a jump in the program: a program at a fixed address that takes the
// address of a function has such a jump.
static const char *file_of(void *from, const char *function, bool *in_program)
{
    Dl_info info;
    void *symbol = NULL, *map = NULL;
    void *address = dlsym(from, function);
    if (!address || !dladdr1(address, &info, &symbol, RTLD_DL_SYMENT) ||
        !dladdr1(address, &info, &map, RTLD_DL_LINKMAP))
        return NULL;
    *in_program = !((const struct link_map *)map)->l_prev;
    if (!symbol || ((const ElfW(Sym) *)symbol)->st_shndx == SHN_UNDEF)
        return NULL;
    return info.dli_fname;
}

// Returns: the first file after the program that defines malloc, or NULL.
static const char *file_after_program(void)
{
    for (const struct link_map *map = _r_debug.r_map->l_next; map; map = map->l_next) {
        Dl_info info;
        void *file = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        void *address = file ? dlsym(file, "malloc") : NULL; // also of what the file needs
        bool is_own = address && dladdr(address, &info) && info.dli_fbase == (void *)map->l_addr;
        if (file)
            dlclose(file);
        if (is_own)
            return map->l_name;
    }
    return NULL;
}

#else // musl, whose dladdr names the file only: such a jump counts as the program's own function

static const char *file_of(void *from, const char *function, bool *in_program)
{
    Dl_info info, program;
    void *address = dlsym(from, function);
    if (!address || !dladdr(address, &info) || !dladdr((void *)getauxval(AT_PHDR), &program))
        return NULL;
    *in_program = info.dli_fbase == program.dli_fbase;
    return info.dli_fname;
}

static const char *file_after_program(void) { return NULL; }

#endif

static void write_line(const char *path, const char *owner, const char *without)
{
    static char program[PATH_MAX];
    static char line[3 * PATH_MAX];
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    int bytes = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\n", program_invocation_short_name,
                         program, owner, without);
    // One write, so that lines of processes that start at the same time do not mix.
    if (bytes > 0 && (size_t)bytes < sizeof line && write(fd, line, (size_t)bytes) < 0)
        errno = 0;
    close(fd);
}

__attribute__((constructor)) static void look(void)
{
    int saved_errno = errno;
    const char *path = getenv("CAIRN_PROBE_FILE");
    const char *owner = NULL, *without = NULL;
    bool in_program = false;
    for (size_t at = 0; path && !owner && at < sizeof functions / sizeof functions[0]; at++) {
        owner = file_of(RTLD_DEFAULT, functions[at], &in_program);
        bool unused;
        without = in_program ? owner : file_of(RTLD_NEXT, functions[at], &unused);
    }
    if (path && !owner) {
        owner = file_after_program();
        without = file_of(RTLD_NEXT, "malloc", &in_program);
    }
    if (owner)
        write_line(path, owner, without ? without : "");
    errno = saved_errno;
}
