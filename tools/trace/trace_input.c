// Reads trace files. A compressed file is read from a pipe of the program that decompresses it.
#include "trace_input.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { EXPANSION_MOST = 1024 }; // of a compressed trace; gzip expands at most 1032 times

char *sentence(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        abort();
    va_end(arguments);
    return text;
}

void *more_memory(void *old, size_t bytes)
{
    void *block = realloc(old, bytes);
    if (block == NULL) {
        fprintf(stderr, "out of memory for the trace: %zu bytes refused\n", bytes);
        exit(2);
    }
    return block;
}

ssize_t input_read(struct trace_input *input, void *to, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(input->file, (char *)to + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

void input_close(struct trace_input *input)
{
    if (input->file >= 0)
        close(input->file);
    input->file = -1;
    if (input->child > 0)
        while (waitpid(input->child, NULL, 0) < 0 && errno == EINTR) {
        }
    input->child = 0;
}

// Starts the program with the file as its standard input. A pipe from its output replaces the file.
static char *decompress(struct trace_input *input, const char *program)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return sentence("cannot create a pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input->file, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    char name[16], option[] = "-dcq";
    snprintf(name, sizeof name, "%s", program);
    char *arguments[] = {name, option, NULL};
    int error = posix_spawnp(&input->child, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    close(input->file);
    input->file = ends[0];
    if (error == 0)
        return NULL;
    input->child = 0;
    return sentence("the file is compressed; cannot start %s: %s", program, strerror(error));
}

char *input_open(struct trace_input *input, const char *path)
{
    input->child = 0;
    input->file = open(path, O_RDONLY | O_CLOEXEC);
    if (input->file < 0)
        return sentence("%s", strerror(errno));
    unsigned char first[4] = {0};
    struct stat status;
    ssize_t got = pread(input->file, first, sizeof first, 0);
    char *error = NULL;
    if (got < 0 || fstat(input->file, &status) != 0)
        error = sentence("%s", strerror(errno));
    else if (memcmp(first, "\x28\xb5\x2f\xfd", 4) == 0)
        error = decompress(input, "zstd");
    else if (memcmp(first, "\x1f\x8b", 2) == 0)
        error = decompress(input, "gzip");
    if (error)
        input_close(input);
    else
        input->bytes_most = (uint64_t)status.st_size * (input->child ? EXPANSION_MOST : 1);
    return error;
}
