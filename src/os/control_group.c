/* os_read_group (process.h): memory limits and pressure of the control group, of version 2 and
 * version 1, read from its files at each call.
 *
 * The limits of all parent groups apply too, so the files are read from the process's own group up
 * to the mount point, and the lowest value of each limit counts. In a container with its own
 * control-group namespace the path of the group is "/". In one without, it is a path of the host
 * that does not exist there, and then the mount point is the group.
 *
 * Sources: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst and accounting/psi.rst
 * of the kernel. No state; any thread; no memory is allocated.
 */
#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/process.h"

#include <string.h>

enum { PATH_BYTES = 1024, GROUPS_BYTES = 4096, TEXT_BYTES = 256 };

/* Parses a number of bytes; 0 for "max", and for the value near 2^63 that version 1 writes for
 * no limit. */
static size_t os_limit_of(const char *text)
{
    uint64_t value = 0;
    for (; *text >= '0' && *text <= '9' && value < UINT64_MAX / 16; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    return value > (uint64_t)1 << 46 ? 0 : (size_t)value;
}

/* Lowers `*least` to the limit in a file, if that is lower; 0 is no limit. */
static void os_take_least(size_t *least, const char *path)
{
    char text[TEXT_BYTES];
    size_t limit = os_read_file(path, text, sizeof text) > 0 ? os_limit_of(text) : 0;
    if (limit != 0 && (*least == 0 || limit < *least))
        *least = limit;
}

/* Reads from a pressure file for how many microseconds some task has waited for memory.
 * Returns: false when the file is missing or has another form. */
static bool os_read_stall(const char *path, uint64_t *stall_us)
{
    char text[TEXT_BYTES];
    if (os_read_file(path, text, sizeof text) <= 0 || strncmp(text, "some ", 5) != 0)
        return false;
    const char *total = text_find(text, "total=");
    if (total == NULL)
        return false;
    uint64_t value = 0;
    for (total += 6; *total >= '0' && *total <= '9'; total++)
        value = value * 10 + (uint64_t)(*total - '0');
    *stall_us = value;
    return true;
}

/* Reads the files from the process's own group, `group` below `mount`, up to the mount point.
 * `high` is NULL in version 1. */
static void os_read_groups(const char *root, const char *mount, const char *group, const char *max,
                           const char *high, struct os_group *found)
{
    char path[PATH_BYTES];
    size_t length = text_length(group);
    bool stalled = high == NULL;
    for (;;) {
        char part[PATH_BYTES];
        while (length > 0 && group[length - 1] == '/')
            length--;
        if (length >= sizeof part)
            return;
        memcpy(part, group, length);
        part[length] = '\0';
        (void)format_text(path, sizeof path, "%s%s%s/%s", root, mount, part, max);
        os_take_least(&found->max_bytes, path);
        if (high) {
            (void)format_text(path, sizeof path, "%s%s%s/%s", root, mount, part, high);
            os_take_least(&found->high_bytes, path);
        }
        (void)format_text(path, sizeof path, "%s%s%s/memory.pressure", root, mount, part);
        stalled = stalled || os_read_stall(path, &found->group_stall_us);
        if (length == 0)
            return;
        while (length > 0 && group[length - 1] != '/')
            length--;
    }
}

/* Whether a comma-separated list of controllers contains "memory". */
static bool os_names_memory(const char *controllers, const char *end)
{
    static const char word[] = "memory";
    while (controllers < end) {
        const char *comma = controllers;
        while (comma < end && *comma != ',')
            comma++;
        if (comma - controllers == sizeof word - 1 &&
            memcmp(controllers, word, sizeof word - 1) == 0)
            return true;
        controllers = comma + 1;
    }
    return false;
}

/* Reads the group of one line of /proc/self/cgroup: number, controllers and path, separated by
 * colons. */
static void os_read_line(const char *root, const char *line, struct os_group *found)
{
    const char *controllers = line + text_until(line, ':');
    if (*controllers == '\0')
        return;
    const char *group = controllers + 1 + text_until(controllers + 1, ':');
    if (*group == '\0')
        return;
    if (group == controllers + 1) {
        os_read_groups(root, "/sys/fs/cgroup", group + 1, "memory.max", "memory.high", found);
        os_read_groups(root, "/sys/fs/cgroup/unified", group + 1, "memory.max", "memory.high",
                       found);
    } else if (os_names_memory(controllers + 1, group)) {
        os_read_groups(root, "/sys/fs/cgroup/memory", group + 1, "memory.limit_in_bytes", NULL,
                       found);
    }
}

bool os_read_group(const char *root, struct os_group *found)
{
    char text[GROUPS_BYTES];
    char path[PATH_BYTES];
    *found = (struct os_group){0};
    (void)format_text(path, sizeof path, "%s/proc/pressure/memory", root);
    (void)os_read_stall(path, &found->system_stall_us);
    (void)format_text(path, sizeof path, "%s/proc/self/cgroup", root);
    if (os_read_file(path, text, sizeof text) <= 0)
        return false;
    for (char *line = text; *line != '\0';) {
        char *end = line + text_until(line, '\n');
        bool is_last = *end == '\0';
        *end = '\0';
        os_read_line(root, line, found);
        line = is_last ? end : end + 1;
    }
    return true;
}
