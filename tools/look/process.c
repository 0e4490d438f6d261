// A live process as a target: /proc/PID. Its threads go on, unless something else has stopped them.
#include "look.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *open_text(int pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return fopen(path, "re");
}

static noreturn void refuse(int pid)
{
    if (errno == ENOENT || errno == ESRCH)
        fail("there is no process %d", pid);
    if (errno != EACCES && errno != EPERM)
        fail("process %d cannot be read: %s", pid, strerror(errno));
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int scope = 0;
    if (file && fscanf(file, "%d", &scope) != 1)
        scope = 0;
    if (scope == 3)
        fail("process %d may not be read: kernel.yama.ptrace_scope is 3, which forbids it to "
             "everybody until the next boot; read a core file instead",
             pid);
    fail("process %d may not be read: run this as its user%s, as root, or with CAP_SYS_PTRACE%s",
         pid, scope == 1 ? " with kernel.yama.ptrace_scope at 0 (it is 1)" : "",
         scope == 0 ? " (a process that has changed its user or its rights is root's to read; a "
                      "container needs --cap-add=SYS_PTRACE)"
                    : "");
}

static void read_state(struct target *target)
{
    char line[512] = "";
    FILE *file = open_text(target->pid, "stat");
    if (file == NULL)
        refuse(target->pid);
    if (fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    (void)fclose(file);
    char *start = strchr(line, '(');
    char *end = strrchr(line, ')');
    if (start == NULL || end == NULL)
        fail("there is no process %d", target->pid);
    *end = '\0';
    snprintf(target->program, sizeof target->program, "%.60s", start + 1);
    target->state = end[1] == ' ' ? end[2] : '?';
}

static bool parse_line(char *line, struct mapping *mapping)
{
    char rights[5];
    int at = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*u %n", &mapping->start,
               &mapping->end, rights, &mapping->file_offset, &at) < 4)
        return false;
    mapping->readable = rights[0] == 'r';
    mapping->writable = rights[1] == 'w';
    mapping->executable = rights[2] == 'x';
    mapping->shared = rights[3] == 's';
    char *path = at > 0 ? line + at : line + strlen(line);
    path[strcspn(path, "\n")] = '\0';
    mapping->path = *path ? strdup(path) : "";
    return mapping->path != NULL;
}

static void read_mappings(struct target *target)
{
    FILE *file = open_text(target->pid, "maps");
    if (file == NULL)
        refuse(target->pid);
    char *line = NULL;
    size_t room = 0, most = 0;
    target->mappings = NULL;
    (void)go_first();
    while (getline(&line, &room, file) > 0) {
        target->mappings =
            with_room(target->mappings, target->mapping_count, &most, sizeof *target->mappings);
        if (parse_line(line, &target->mappings[target->mapping_count]))
            target->mapping_count++;
    }
    go_as_before();
    free(line);
    (void)fclose(file);
}

void open_process(struct target *target, int pid)
{
    char path[64];
    target->pid = pid;
    target->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    read_state(target);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    target->file = open(path, O_RDONLY | O_CLOEXEC);
    if (target->file < 0)
        refuse(pid);
    read_mappings(target);
    if (target->mapping_count == 0)
        fail("process %d has no memory: it has ended, or is a thread of the kernel", pid);
    snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
    target->residence = open(path, O_RDONLY | O_CLOEXEC);
}

void read_mappings_again(struct target *target)
{
    free(target->mappings);
    target->mapping_count = 0;
    read_mappings(target);
}

void check_alive(const struct target *target)
{
    FILE *file = target->pid ? open_text(target->pid, "maps") : NULL;
    bool has_memory = file && fgetc(file) != EOF;
    if (file)
        (void)fclose(file);
    if (target->pid && !has_memory)
        fail("process %d has ended", target->pid);
}

uint64_t mappings_resident(const struct target *target, const bool *marked)
{
    FILE *file = target->pid ? open_text(target->pid, "smaps") : NULL;
    char *line = NULL;
    size_t room = 0, place = 0;
    uint64_t total = 0, start, end, kilobytes;
    bool counts = false;
    (void)go_first();
    while (file && getline(&line, &room, file) > 0) {
        if (sscanf(line, "Rss: %" SCNu64 " kB", &kilobytes) == 1) {
            total += counts ? kilobytes * 1024 : 0;
        } else if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2) {
            while (place < target->mapping_count && target->mappings[place].start < start)
                place++;
            counts = place < target->mapping_count && target->mappings[place].start == start &&
                     marked[place];
        }
    }
    go_as_before();
    free(line);
    if (file)
        (void)fclose(file);
    return total;
}

const char *other_malloc(const struct target *target)
{
    static const char *const names[] = {"jemalloc", "tcmalloc", "mimalloc", "snmalloc"};
    for (size_t i = 0; i < target->mapping_count; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++)
            if (strstr(target->mappings[i].path, names[j]))
                return names[j];
    return NULL;
}
