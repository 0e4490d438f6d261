/* Whether the system is asked for huge pages: what the option says, and how near the limits are.
 *
 * A huge page is resident whole once a byte of it was touched. So with HUGE_PAGES_AUTO nothing is
 * asked for before the heap is so large that one of them hardly counts, and then only for what will
 * be filled from its start to its end: what the heap grows by, while it is dense (dense.h), and the
 * largest blocks (huge.c). docs/decisions/0020 has the figures.
 *
 * The system may refuse, or have none: then nothing is different. Threading: any thread.
 */
#ifndef CAIRN_PAGE_ADVICE_H
#define CAIRN_PAGE_ADVICE_H

#include "base/compiler.h"

#include <stdint.h>

enum huge_pages {
    HUGE_PAGES_OFF,
    HUGE_PAGES_ON,   /* for arenas, from their start to their end */
    HUGE_PAGES_AUTO, /* where they pay */
};

enum { HUGE_PAGE_BYTES = 2 << 20, HUGE_PAGE_SHIFT = 9 /* of pages */ };

/* HUGE_PAGES_AUTO: so large is a heap before it asks for what it grows by, and a block that asks
 * whatever else there is. One huge page is 2 % of it. */
static const size_t ADVICE_FROM_BYTES = (size_t)96 << 20;

/* Whether the heap may hold `more_bytes` beside what it has without coming near its own limit, 0
 * for none. Near the limit of a control group the system itself gives small pages. False where the
 * processor's huge pages are longer. */
bool advice_admits(size_t counted_bytes, size_t more_bytes, size_t limit_bytes);

#endif
