// The program cairn-persist: arguments and error messages. persist_tool.h describes the program.
#include "persist_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

noreturn void fail(const char *sentence, int error)
{
    fprintf(stderr, "%s%s%s\n", sentence, error ? ": " : "", error ? strerror(error) : "");
    exit(STATUS_FAILED);
}

int open_file(const char *path, int flags, struct stat *status)
{
    int file = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); // a pipe would block
    if (file < 0 && errno == ENOENT)
        fail("no such file", 0);
    if (file < 0 && errno == EISDIR)
        fail("it is a folder, not a heap", 0);
    if (file < 0)
        fail("cannot open the file", errno);
    if (fstat(file, status) != 0)
        fail("cannot read its attributes", errno);
    if (S_ISDIR(status->st_mode))
        fail("it is a folder, not a heap", 0);
    if (!S_ISREG(status->st_mode))
        fail("not a regular file, so not a heap", 0);
    return file;
}

cairn_persist *open_heap(const char *path, unsigned flags, const char **finding)
{
    const char *why = NULL;
    // An open with the least capacity: a heap of any size opens with the least address space.
    struct cairn_persist_options options = {.flags = flags, .capacity_bytes = 1, .why = &why};
    cairn_persist *heap = cairn_persist_open(path, &options);
    if (heap)
        return heap;
    switch (errno) {
    case EBADMSG:
        *finding = why;
        return NULL;
    case EBUSY:
        fail("another process has the heap open", 0);
    case ENOENT:
    case ENODATA: // nothing was committed yet, which is no damage
    case ENOMEM:
    case ENOTSUP:
    case EADDRNOTAVAIL:
        fail(why, 0);
    default:
        fail("cannot open the heap", errno);
    }
}

// Ends the program when the file was truncated while it was mapped, or its medium has a fault.
static void on_bus_error(int number)
{
    static const char text[] = "the file was truncated during the command, or its medium cannot "
                               "be read\n";
    (void)number;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(STATUS_FAILED);
}

static int run(int argc, char **argv)
{
    const char *command = argc > 2 ? argv[1] : "";
    if (argc == 3 && strcmp(command, "info") == 0)
        return info(argv[2]);
    if (argc == 3 && strcmp(command, "check") == 0)
        return check(argv[2]);
    if (argc == 3 && strcmp(command, "compact") == 0)
        return compact(argv[2]);
    if (argc == 4 && strcmp(command, "dump") == 0)
        return dump(argv[2], strtoul(argv[3], NULL, 10));
    fail("usage: cairn-persist info|check|compact FILE, cairn-persist dump FILE BYTES", 0);
}

int main(int argc, char **argv)
{
    signal(SIGBUS, on_bus_error);
    signal(SIGXFSZ, SIG_IGN); // a limit of file sizes becomes an error of the write
    int status = run(argc, argv);
    if (fflush(stdout) != 0)
        fail("cannot write the output", errno);
    return status;
}
