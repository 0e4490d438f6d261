/* See growth.h. */
#include "heap/growth.h"

#include "base/layout.h"

static const uintptr_t AGED = LAYOUT_KEPT_AGED;
static const uintptr_t HELD = LAYOUT_KEPT_NONE;
enum { PAGES_SHIFT = 48 };

static_check(GROWTH_MOST_PAGES < 1 << (64 - PAGES_SHIFT), "the word holds its length");

static bool is_room(uintptr_t word) { return (word & HELD) != 0; }

static struct span *front_of(uintptr_t word) { return (struct span *)(word & ~AGED); }

static char *room_start(uintptr_t word)
{
    return (char *)(word & (((uintptr_t)1 << PAGES_SHIFT) - PAGE_BYTES));
}

static size_t room_length(uintptr_t word) { return word >> PAGES_SHIFT; }

/* 0 for none. */
static uintptr_t room_word(char *start, size_t pages)
{
    return pages == 0 ? 0 : (uintptr_t)pages << PAGES_SHIFT | (uintptr_t)start | HELD;
}

/* The room's word, if it is right behind the block; else 0. */
static uintptr_t room_behind(const uintptr_t *growth, const struct span *span)
{
    uintptr_t word = load_relaxed(growth);
    return is_room(word) && room_start(word) == span_end(span) ? word : 0;
}

bool growth_is_kept(const uintptr_t *growth)
{
    uintptr_t word = load_relaxed(growth);
    return word != 0 && !is_room(word);
}

struct span *growth_take(uintptr_t *growth, size_t pages)
{
    if (!growth_is_kept(growth))
        return NULL;
    uintptr_t word = exchange_acquire(growth, (uintptr_t)0); /* pairs with growth_put */
    if (word == 0)
        return NULL;
    struct span *span = front_of(word);
    if (span->pages < pages) {
        store_release(growth, word);
        return NULL;
    }
    growth_cut(growth, span, pages);
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    return span;
}

void growth_cut(uintptr_t *growth, struct span *span, size_t pages)
{
    size_t rest = span->pages - pages;
    store_relaxed(&span->pages, (uint32_t)pages);
    store_relaxed(growth, room_word(span_end(span), rest));
}

bool growth_extend(uintptr_t *growth, struct span *span, size_t pages)
{
    size_t more = pages - span->pages;
    uintptr_t word = room_behind(growth, span);
    if (word == 0 || room_length(word) < more)
        return false;
    char *end = span_end(span) + (more << PAGE_SHIFT);
    if (!compare_swap_acq_rel(growth, &word, room_word(end, room_length(word) - more)))
        return false;
    store_relaxed(&span->pages, (uint32_t)pages);
    return true;
}

bool growth_join(uintptr_t *growth, struct span *span)
{
    uintptr_t word = room_behind(growth, span);
    if (word == 0 || !compare_swap_acq_rel(growth, &word, (uintptr_t)0))
        return false;
    store_relaxed(&span->pages, span->pages + (uint32_t)room_length(word));
    return true;
}

/* Whether what is there made place for a longer run. */
static bool make_place(uintptr_t *growth, size_t pages)
{
    uintptr_t word = load_relaxed(growth);
    if (is_room(word))
        return room_length(word) < pages && growth_empty(growth);
    if (word == 0 || (word = exchange_acquire(growth, (uintptr_t)0)) == 0) /* as above */
        return true;
    struct span *front = front_of(word);
    if (front->pages >= pages) {
        store_release(growth, word);
        return false;
    }
    pages_give(front);
    return true;
}

bool growth_put(uintptr_t *growth, struct span *span)
{
    bool joined = growth_join(growth, span);
    size_t pages = span->pages;
    if (pages > GROWTH_MOST_PAGES || !pages_may_keep(pages) || !make_place(growth, pages))
        return false;
    if (!joined && !pages_holds(span->base)) /* runs made during a fork go back as they came */
        return false;
    store_relaxed(&span->zero, false);
    store_release(growth, (uintptr_t)span);
    return true;
}

/* Room has no header, so it gets one before it is anybody's. Acquire: as above. */
static bool leave(uintptr_t *growth, uintptr_t word)
{
    struct span *header = is_room(word) ? pages_take_header() : NULL;
    if (is_room(word) && header == NULL)
        return false;
    if (!compare_swap_acq_rel(growth, &word, (uintptr_t)0)) {
        if (header)
            pages_give_header(header);
        return false;
    }
    if (header) {
        header->base = room_start(word);
        store_relaxed(&header->pages, (uint32_t)room_length(word));
    }
    pages_give(header ? header : front_of(word));
    return true;
}

/* More than once, since its owner may just use it. */
bool growth_empty(uintptr_t *growth)
{
    enum { TRIES = 4 };
    for (int i = 0; i < TRIES; i++) {
        uintptr_t word = load_relaxed(growth);
        if (word == 0)
            return false;
        if (leave(growth, word))
            return true;
    }
    return false;
}

void growth_age(uintptr_t *growth)
{
    uintptr_t word = load_relaxed(growth);
    if ((word & AGED) != 0)
        (void)leave(growth, word);
    else if (word != 0)
        (void)compare_swap_acq_rel(growth, &word, word | AGED);
}
