// Reads the pointers of a process that only the kernel has, as far as /proc shows them: values that
// the program gave to epoll_ctl() and timer_create() to receive them with the event, and the user
// data of entries in the rings of io_uring.
//
// The kernel does not show requests in progress of io_uring and aio, values of pending signals
// (sigqueue), an alternate signal stack (sigaltstack) that is not in use, and contents of pipes and
// sockets.
#include "look.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_pointer(struct target *target, uint64_t word)
{
    target->kernel_words = with_room(target->kernel_words, target->kernel_count,
                                     &target->kernel_most, sizeof *target->kernel_words);
    target->kernel_words[target->kernel_count++] = word;
}

// Adds the number after `word` of each line of a file in /proc.
static void read_numbers(struct target *target, const char *path, const char *word, int base)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &room, file) > 0) {
        const char *found = strstr(line, word);
        if (found)
            add_pointer(target, strtoull(found + strlen(word), NULL, base));
    }
    free(line);
    if (file)
        (void)fclose(file);
}

static void read_descriptor(struct target *target, int folder, const char *number)
{
    char kind[64], path[64];
    ssize_t length = readlinkat(folder, number, kind, sizeof kind - 1);
    if (length <= 0)
        return;
    kind[length] = '\0';
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%.20s", target->pid, number);
    if (strcmp(kind, "anon_inode:[eventpoll]") == 0)
        read_numbers(target, path, " data:", 16);
    else if (strcmp(kind, "anon_inode:[io_uring]") == 0)
        read_numbers(target, path, "user_data:", 10);
}

// Reads the timers, each of which has a line like "signal: 10/000055d0c8a3f2a0".
static void read_timers(struct target *target)
{
    char path[64], *line = NULL;
    size_t room = 0;
    uint64_t value;
    snprintf(path, sizeof path, "/proc/%d/timers", target->pid);
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &room, file) > 0)
        if (sscanf(line, "signal: %*d/%" SCNx64, &value) == 1)
            add_pointer(target, value);
    free(line);
    if (file)
        (void)fclose(file);
}

void read_kernel_pointers(struct target *target)
{
    char path[64];
    target->kernel_count = 0;
    if (target->pid == 0)
        return;
    read_timers(target);
    snprintf(path, sizeof path, "/proc/%d/fd", target->pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            read_descriptor(target, dirfd(folder), entry->d_name);
    (void)closedir(folder);
}
