/* The state of the page layer, the limits, unused headers and the cap: see state.h. limits.h and
 * purge.h enforce the limits. */
#include "page/state.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "page/page.h"

struct page_state pages_state = {
    .lock = {.rank = 1},
    .limits = PAGE_LIMITS_DEFAULT,
};

void defer(struct span *span)
{
    span->next = load_relaxed(&pages_state.deferred);
    while (!compare_swap_acq_rel(&pages_state.deferred, &span->next,
                                 span)) /* release: pairs with free_spans_settle */
        pause_processor();
}

at_process_start void pages_configure(const struct page_limits *limits)
{
    struct page_limits *own = &pages_state.limits;
    store_relaxed(&own->decay_ms, limits->decay_ms);
    store_relaxed(&own->dirty_cap_bytes, limits->dirty_cap_bytes);
    store_relaxed(&own->huge_pages, limits->huge_pages);
    pages_limit_soft(limits->soft_limit_bytes);
    pages_limit_hard(limits->hard_limit_bytes);
}

void pages_limit_soft(size_t bytes) { store_relaxed(&pages_state.limits.soft_limit_bytes, bytes); }

void pages_limit_hard(size_t bytes) { store_relaxed(&pages_state.limits.hard_limit_bytes, bytes); }

bool pages_have_hard_limit(void)
{
    return load_relaxed(&pages_state.limits.hard_limit_bytes) != 0;
}

void pages_read_limits(struct page_limits *limits)
{
    const struct page_limits *own = &pages_state.limits;
    *limits = (struct page_limits){
        .decay_ms = load_relaxed(&own->decay_ms),
        .dirty_cap_bytes = load_relaxed(&own->dirty_cap_bytes),
        .soft_limit_bytes = load_relaxed(&own->soft_limit_bytes),
        .hard_limit_bytes = load_relaxed(&own->hard_limit_bytes),
        .huge_pages = load_relaxed(&own->huge_pages),
    };
}

bool pages_are_huge(void) { return load_relaxed(&pages_state.limits.huge_pages) == HUGE_PAGES_ON; }

/* The lists of unused headers.
 *
 * The page lock protects the lists. While it is frozen for a fork, they are lent: the head of each
 * list is in a word of its own, where any thread takes and returns headers without a lock. The end
 * of a lent list stays its end, so the forking thread joins the remaining list to its own in
 * constant time. Only a list that became empty in between may have another end, and then it is
 * short.
 *
 * A thread that finds the lock frozen and nothing lent has arrived right before the lending or
 * right after it, and tries again for a short time. A header that is returned too late stays in its
 * word until the next fork. In the child of a fork the words and the links may be of different
 * instants, so the child forgets the lent lists if its parent had other threads.
 */

enum { HEADER_TRIES = 100 };

static struct span *last_headers[SIDE_UNIT_KINDS]; /* page lock: last header of each list */
static uintptr_t lent_headers[SIDE_UNIT_KINDS];    /* atomic: tagged head of each lent list */
static struct span
    *lent_last_headers[SIDE_UNIT_KINDS];      /* page lock: last headers at the time of lending */
static bool headers_ran_out[SIDE_UNIT_KINDS]; /* atomic: maybe empty at a time since the lending */
static bool headers_are_lent;                 /* atomic: whether the lists are lent */

struct span *header_pop(unsigned side_units)
{
    struct span *span = pages_state.headers[side_units];
    if (span)
        pages_state.headers[side_units] = span->next;
    return span;
}

void header_push(struct span *span)
{
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    span->next = pages_state.headers[span->side_units];
    if (span->next == NULL)
        last_headers[span->side_units] = span;
    pages_state.headers[span->side_units] = span;
}

/* Puts another list into the word and returns the list that was there. Acquire and release: pairs
 * with header_pop_lent and header_return. */
static struct span *header_exchange_lent(unsigned kind, struct span *first)
{
    uintptr_t head = load_acquire(&lent_headers[kind]);
    while (
        !compare_swap_acq_rel(&lent_headers[kind], &head, (uintptr_t)first | tagged_next_tag(head)))
        continue;
    return (struct span *)tagged_address(head);
}

void headers_lend(void)
{
    for (unsigned kind = 0; kind < SIDE_UNIT_KINDS; kind++) {
        struct span *first = pages_state.headers[kind];
        lent_last_headers[kind] = last_headers[kind];
        store_relaxed(&headers_ran_out[kind], first == NULL);
        pages_state.headers[kind] = NULL;
        for (struct span *late = header_exchange_lent(kind, first), *next; late; late = next) {
            next = late->next;
            header_push(late);
        }
    }
    store_release(&headers_are_lent, true); /* pairs with header_take and header_return */
}

void headers_take_back(bool whole)
{
    store_relaxed(&headers_are_lent, false);
    for (unsigned kind = 0; kind < SIDE_UNIT_KINDS; kind++) {
        struct span *first = header_exchange_lent(kind, NULL);
        if (first == NULL || !whole)
            continue;
        struct span *last = lent_last_headers[kind];
        if (load_relaxed(&headers_ran_out[kind]))
            for (last = first; last->next;)
                last = last->next;
        last->next = pages_state.headers[kind];
        if (pages_state.headers[kind] == NULL)
            last_headers[kind] = last;
        pages_state.headers[kind] = first;
    }
}

/* Reads the link of a header that another thread may have taken and be using. The link is any value
 * then, and the exchange that follows fails. */
not_instrumented static no_inline uintptr_t header_link_of(const struct span *span)
{
    return (uintptr_t)load_relaxed(&span->next);
}

static struct span *header_pop_lent(unsigned side_units)
{
    uintptr_t head = load_acquire(&lent_headers[side_units]); /* pairs with headers_lend */
    while (tagged_address(head) != 0) {
        struct span *first = (struct span *)tagged_address(head);
        uintptr_t next = tagged_address(header_link_of(first));
        if (compare_swap_acq_rel(&lent_headers[side_units], &head, next | tagged_next_tag(head)))
            return first;
    }
    return NULL;
}

void header_return(struct span *span)
{
    span->pages = 0;
    if (!load_acquire(&headers_are_lent)) { /* pairs with headers_lend */
        defer(span);
        return;
    }
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    unsigned kind = span->side_units;
    uintptr_t head = load_relaxed(&lent_headers[kind]);
    do {
        span->next = (struct span *)tagged_address(head);
        if (span->next == NULL)
            store_relaxed(&headers_ran_out[kind], true);
        /* release: pairs with header_pop_lent and header_exchange_lent */
    } while (
        !compare_swap_acq_rel(&lent_headers[kind], &head, (uintptr_t)span | tagged_next_tag(head)));
}

struct span *header_make(unsigned side_units)
{
    enum meta_kind kind = side_units == 0 ? META_HOT : META_COLD;
    struct span *span = meta_take_near(kind, sizeof *span + (size_t)side_units * 64);
    if (span == NULL)
        return NULL;
    span->side_units = (uint8_t)side_units;
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    return span;
}

struct span *header_take(unsigned side_units)
{
    struct span *span = NULL;
    for (int tries = 0; span == NULL && tries < HEADER_TRIES; tries++) {
        if (lock_acquire(&pages_state.lock)) {
            span = header_pop(side_units);
            lock_release(&pages_state.lock);
            break;
        }
        span = header_pop_lent(side_units);
        if (load_acquire(&headers_are_lent)) /* pairs with headers_lend */
            break;
        pause_processor();
    }
    return span ? span : header_make(side_units);
}

enum { CAP_RAISED_PART = 8, CAP_AGED_PART = 8 };

static ptrdiff_t cap_learned_pages; /* atomic: the cap minus its first value */
static size_t cap_missed_pages;     /* atomic: purged pages that may be taken again soon */
static size_t cap_given_pages;      /* atomic: pages purged above the cap in this interval */
static size_t
    cap_most_free; /* atomic: most free pages before a take in this interval; 0: no take */
static size_t cap_least_free; /* atomic: fewest free pages after a take in this interval */

/* The option `dirty_cap` in pages, limited so that no computation overflows. */
static size_t cap_option_pages(void)
{
    return smaller_of(load_relaxed(&pages_state.limits.dirty_cap_bytes) >> PAGE_SHIFT,
                      (size_t)PTRDIFF_MAX / CAP_MAX_TIMES);
}

/* The nearest value of cap_learned_pages for which the cap is between its lowest and its highest
 * value.
 */
static ptrdiff_t cap_within_bounds(ptrdiff_t learned)
{
    ptrdiff_t option = (ptrdiff_t)cap_option_pages();
    ptrdiff_t first = option / CAP_FIRST_PART;
    ptrdiff_t least = option / CAP_MIN_PART - first;
    ptrdiff_t most = option * CAP_MAX_TIMES - first;
    return learned < least ? least : learned > most ? most : learned;
}

size_t cap_pages(void)
{
    ptrdiff_t learned = cap_within_bounds(load_relaxed(&cap_learned_pages));
    return cap_option_pages() / CAP_FIRST_PART + (size_t)learned;
}

/* Changes the cap by `pages`. A change that another thread makes at the same time may be lost. */
static void cap_learn(ptrdiff_t pages)
{
    store_relaxed(&cap_learned_pages, cap_within_bounds(load_relaxed(&cap_learned_pages) + pages));
}

void cap_note_given(size_t pages)
{
    if (pages == 0 || load_relaxed(&pages_state.pressed))
        return; /* under pressure memory is not purged because the program has too much of it */
    fetch_add_relaxed(&cap_given_pages, pages);
    fetch_add_relaxed(&cap_missed_pages, pages);
    cap_learn(-(ptrdiff_t)(pages / CAP_LOWERED_PART));
}

void cap_note_taken(size_t pages)
{
    size_t missed = load_relaxed(&cap_missed_pages);
    size_t again = smaller_of(pages, missed);
    if (likely(again == 0) ||
        !compare_swap_acq_rel(&cap_missed_pages, &missed, missed - again)) /* another thread does */
        return;
    cap_learn((ptrdiff_t)(again + again / CAP_RAISED_PART));
}

void cap_note_again(size_t pages, size_t of_pages)
{
    size_t left = of_pages - smaller_of(pages, of_pages);
    size_t most = load_relaxed(&cap_most_free);
    if (most == 0 || left < load_relaxed(&cap_least_free))
        store_relaxed(&cap_least_free, left);
    if (of_pages > most)
        store_relaxed(&cap_most_free, of_pages);
}

void cap_age(void)
{
    size_t given = exchange_acq_rel(&cap_given_pages, (size_t)0);
    store_relaxed(&cap_missed_pages, smaller_of(load_relaxed(&cap_missed_pages), given));
    size_t most = exchange_acq_rel(&cap_most_free, (size_t)0);
    size_t swing = most - smaller_of(load_relaxed(&cap_least_free), most);
    ptrdiff_t used = (ptrdiff_t)swing - (ptrdiff_t)(cap_option_pages() / CAP_FIRST_PART);
    ptrdiff_t learned = cap_within_bounds(load_relaxed(&cap_learned_pages));
    ptrdiff_t aged = learned - learned / CAP_AGED_PART;
    ptrdiff_t least = used < learned ? used : learned;
    store_relaxed(&cap_learned_pages, aged > least ? aged : least);
}
