/* The options as they are now, and what can be changed of them at run time: names and text.
 *
 * Threading: one thread at a time reads or changes, others wait up to a second. No memory.
 */
#ifndef CAIRN_FRONT_SETTINGS_H
#define CAIRN_FRONT_SETTINGS_H

#include "front/options.h"

/* Before there are threads. */
void settings_start(const struct options *options);

/* What `verbose` is now. */
bool settings_are_verbose(void);

/* Of the `index`-th: its name, and whether it can be changed. NULL behind the last. */
const char *settings_name(size_t index, bool *writable);

/* 0 or a positive errno, as in cairn/control.h. */
int settings_get(const char *name, char *text, size_t capacity_bytes);
int settings_set(const char *name, const char *value);

#endif
