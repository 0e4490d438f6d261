/* Watching the heap: for front/, which starts it when an option asks for it. */
#ifndef CAIRN_WATCH_WATCH_H
#define CAIRN_WATCH_WATCH_H

#include "base/compiler.h"

/* Guards one block in about `interval`, not 0, between inaccessible pages: see guarded_slots.h.
 * Once, before there are threads. 0 or a negative errno; then nothing is sampled. */
int sample_start(uint32_t interval);

#endif
