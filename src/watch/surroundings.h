/* What the process lives in: its control group and the pressure on memory, and what the heap does
 * about them.
 *
 * Limits that follow the group: the soft one is nine tenths of the least of memory.high and
 * memory.max, so that free memory goes back before the kernel takes it; the hard one nineteen
 * twentieths of memory.max. What is left is for stacks, code and what is not ours.
 *
 * Pressure: while tasks wait for memory (PSI, of the system or of the group) for a tenth of the
 * time, nothing free is kept. It is over when they waited less than a hundredth of the time for
 * two seconds.
 *
 * Whoever changes an option calls the functions that follow; only one thread at a time looks.
 */
#ifndef CAIRN_WATCH_SURROUNDINGS_H
#define CAIRN_WATCH_SURROUNDINGS_H

#include "base/compiler.h"

enum { SURROUNDINGS_ROOT_MOST = 128, SURROUNDINGS_QUIET_MS = 2000 };

/* Where the files are: see os_read_group. Once, before there are threads. False: it is too long. */
bool surroundings_root(const char *root, size_t length_bytes);

/* From now on, or no more, the group's; the limit is set at once where it follows. Any thread. 0,
 * or -EBUSY: somebody has been at it for a second, the kernel's files may be slow. */
int surroundings_follow_soft(bool follows);
int surroundings_follow_hard(bool follows);

/* Reads the files again and does what they ask for. `now_ms` grows. One thread. */
void surroundings_look(uint64_t now_ms);

/* Nobody looks any more: no pressure. */
void surroundings_forget(void);

struct surroundings_figures {
    size_t max_bytes, high_bytes; /* as last read, 0 for none */
    uint64_t pressure_spells;
};
void surroundings_read(struct surroundings_figures *figures);

#endif
