// Opens a live process as the target, through /proc/PID. The threads of the target keep running
// unless something else has stopped them.
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
        fail("no process %d", pid);
    if (errno != EACCES && errno != EPERM)
        fail("cannot read process %d: %s", pid, strerror(errno));
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int scope = 0;
    if (file && fscanf(file, "%d", &scope) != 1)
        scope = 0;
    if (scope == 3)
        fail("cannot read process %d: kernel.yama.ptrace_scope is 3, which forbids it until the "
             "next boot; read a core file instead",
             pid);
    if (geteuid() == 0)
        fail("cannot read process %d: permission denied to root, since the tool lacks "
             "CAP_SYS_PTRACE or another right of the process (a container needs "
             "--cap-add=SYS_PTRACE; root of the host can read it)",
             pid);
    fail("cannot read process %d: permission denied; run the tool as its user%s, as root, or "
         "with CAP_SYS_PTRACE%s",
         pid, scope == 1 ? " with kernel.yama.ptrace_scope 0 (it is 1)" : "",
         scope == 0 ? " (only root can read a process that changed its user or rights; a "
                      "container needs --cap-add=SYS_PTRACE)"
                    : "");
}

static void read_state(struct target *target)
{
    char line[512];
    FILE *file = open_text(target->pid, "stat");
    if (file == NULL)
        refuse(target->pid);
    line[fread(line, 1, sizeof line - 1, file)] = '\0'; // the name may contain a newline
    (void)fclose(file);
    char *start = strchr(line, '(');
    char *end = strrchr(line, ')');
    if (start == NULL || end == NULL)
        fail("no process %d", target->pid);
    *end = '\0';
    snprintf(target->program, sizeof target->program, "%.60s", start + 1);
    target->state = end[1] == ' ' ? end[2] : '?';
}

static const char *name_of_kind(const char *path)
{
    return path[0] == '/' ? "/" : strncmp(path, "[v", 2) == 0 ? "[v" : "";
}

// Parses a line like "7f2c-7f3c rw-p 00001000 08:01 1234   /a/path".
static bool parse_line(char *line, struct mapping *mapping, bool with_names)
{
    char *at;
    mapping->start = strtoull(line, &at, 16);
    if (*at != '-')
        return false;
    mapping->end = strtoull(at + 1, &at, 16);
    if (strlen(at) < 6)
        return false;
    mapping->readable = at[1] == 'r';
    mapping->writable = at[2] == 'w';
    mapping->executable = at[3] == 'x';
    mapping->shared = at[4] == 's';
    mapping->file_offset = strtoull(at + 5, &at, 16);
    at += strspn(at, " ");
    at += strcspn(at, " "); // skips the device
    (void)strtoull(at, &at, 10);
    at += strspn(at, " ");
    at[strcspn(at, "\n")] = '\0';
    mapping->path = *at == '\0' ? "" : with_names ? strdup(at) : name_of_kind(at);
    return mapping->path != NULL;
}

static bool read_mappings(struct target *target, bool with_names, uint64_t deadline)
{
    FILE *file = open_text(target->pid, "maps");
    if (file == NULL)
        refuse(target->pid);
    char *line = NULL;
    size_t room = 0, most = 0;
    free(target->mappings);
    target->mappings = NULL;
    target->mapping_count = 0;
    (void)go_first();
    bool is_in_time = true;
    while ((is_in_time = now_ns() < deadline) && getline(&line, &room, file) > 0) {
        target->mappings =
            with_room(target->mappings, target->mapping_count, &most, sizeof *target->mappings);
        if (parse_line(line, &target->mappings[target->mapping_count], with_names))
            target->mapping_count++;
    }
    go_as_before();
    free(line);
    (void)fclose(file);
    return is_in_time;
}

void open_process(struct target *target, int pid)
{
    char path[64];
    target->pid = pid;
    target->steps = UINT64_MAX;
    target->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    read_state(target);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    target->file = open(path, O_RDONLY | O_CLOEXEC);
    if (target->file < 0)
        refuse(pid);
    (void)read_mappings(target, true, UINT64_MAX);
    if (target->mapping_count == 0)
        fail("process %d has no memory: it has ended, or it is a kernel thread", pid);
    snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
    target->residence = open(path, O_RDONLY | O_CLOEXEC);
}

void read_mappings_again(struct target *target) { (void)read_mappings(target, true, UINT64_MAX); }

bool read_ranges(struct target *target, uint64_t deadline)
{
    return read_mappings(target, false, deadline);
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
