/* The current values of the options, and their changes at run time, by name and as text. Uses no
 * memory.
 *
 * Threads: any; one at a time reads or changes a setting, others wait up to a second. */
#ifndef CAIRN_FRONT_SETTINGS_H
#define CAIRN_FRONT_SETTINGS_H

#include "front/options.h"

/* Sets the values at the start of the library.
 *
 * Threads: one, before there are others. */
void settings_start(const struct options *options);

/* Whether the setting `verbose` is on. */
bool settings_are_verbose(void);

/* Returns the name of a setting, and stores whether it can be changed.
 *
 * Returns: NULL behind the last one. */
const char *settings_name(size_t index, bool *writable);

/* Writes the value of a setting.
 *
 * Returns: 0 or a positive errno, as cairn_get in cairn/control.h. */
int settings_get(const char *name, char *text, size_t capacity_bytes);

/* Changes a setting.
 *
 * Returns: 0 or a positive errno, as cairn_set in cairn/control.h. */
int settings_set(const char *name, const char *value);

#endif
