/* The control group of the process and the pressure on memory, and how the heap reacts.
 *
 * Limits of the group: the soft limit becomes nine tenths of the lower of memory.high and
 * memory.max, so that free memory is released before the kernel reclaims it. The hard limit becomes
 * nineteen twentieths of memory.max. The rest is for stacks, code and memory of others than Cairn.
 *
 * Pressure: it begins when tasks wait for memory (PSI, of the system or of the group) for a tenth
 * of the time. During pressure no free memory is kept. Pressure ends when tasks waited less than a
 * hundredth of the time for two seconds.
 *
 * Threads: any may change an option; one at a time calls memory_pressure_look and
 * memory_pressure_forget, the background thread. */
#ifndef CAIRN_WATCH_MEMORY_PRESSURE_H
#define CAIRN_WATCH_MEMORY_PRESSURE_H

#include "base/compiler.h"

enum { MEMORY_PRESSURE_ROOT_MAX = 128, MEMORY_PRESSURE_QUIET_MS = 2000 };

/* Sets the root of the group's files: see os_read_group.
 *
 * Threads: one, before there are others.
 * Returns: false if it is too long. */
bool memory_pressure_root(const char *root, size_t length_bytes);

/* Sets whether the soft limit follows the group. If so, the limit is set at once.
 *
 * Threads: any.
 * Returns: 0, or -EBUSY if another thread has been setting limits for a second: the kernel's files
 * may be slow. */
int memory_pressure_follow_soft(bool follows);

/* Sets whether the hard limit follows the group. If so, the limit is set at once.
 *
 * Threads: any.
 * Returns: 0, or -EBUSY if another thread has been setting limits for a second. */
int memory_pressure_follow_hard(bool follows);

/* Reads the files again, sets the limits that follow them, and begins or ends pressure. `now_ms`
 * never decreases.
 *
 * Threads: one at a time. */
void memory_pressure_look(uint64_t now_ms);

/* Ends pressure, because no thread reads the files any more.
 *
 * Threads: one at a time, as memory_pressure_look. */
void memory_pressure_forget(void);

/* The state of the group when it was last read. */
struct memory_pressure_figures {
    size_t max_bytes, high_bytes; /* limits of the group when last read; 0: none */
    uint64_t pressure_spells;
};

/* Copies the figures.
 *
 * Threads: any. */
void memory_pressure_read(struct memory_pressure_figures *figures);

#endif
