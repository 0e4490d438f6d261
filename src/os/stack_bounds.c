/* Bounds of stacks: see stack_bounds.h. */
#include "os/stack_bounds.h"

#include "base/atomic.h"
#include "os/os.h"

#include <sys/auxv.h>

enum {
    KNOWN_SHIFT = 7,
    OWN_MOST = 64 << 20, /* a stack that is longer counts as a coroutine's */
    NEAR_HOLE = 1 << 20, /* the first thread's stack may have grown over it */
    EXTENDED_PAGES = 64, /* at once: no frame is larger */
};

static uintptr_t first_stack_end; /* these: const after stack_bounds_prepare */
static uintptr_t first_thread;    /* its stack does not end at its thread pointer; 0: not known */

/* What is known of a stack, by its end: from where on it can be read, and the next address below
 * that at which something cannot, 0 if that was not looked for. Whoever writes mixes a check of
 * all three, so that halves of two writers are nothing (Hyatt and Mann, see stack_walk.c). It is
 * true while the thread lives: of an earlier thread's stack with that end a part may be gone, and
 * a coroutine lie in another one (os_stack_forget). No word of each thread's: static TLS is
 * scarce. */
static struct known {
    uint64_t check; /* these: atomic */
    uint64_t from, hole;
} known_stacks[1 << KNOWN_SHIFT];

void stack_bounds_prepare(bool in_first_thread)
{
    first_stack_end = getauxval(AT_RANDOM);
    if (in_first_thread)
        first_thread = thread_identity();
}

static uintptr_t end_of_stack(uintptr_t stack)
{
    uintptr_t thread = thread_identity();
    bool in_thread = stack < thread;
    bool in_first = stack < first_stack_end;
    if (in_thread && in_first)
        return thread < first_stack_end ? thread : first_stack_end;
    return in_thread ? thread : in_first ? first_stack_end : 0;
}

static struct known *place_of(uintptr_t end)
{
    return &known_stacks[(end * 0x9e3779b97f4a7c15u) >> (64 - KNOWN_SHIFT)];
}

static uint64_t check_of(uintptr_t end, uint64_t from, uint64_t hole)
{
    return end ^ from ^ (hole << 32 | hole >> 32);
}

/* Down from what is known to be readable to the page of the stack pointer, or to a hole. */
static no_inline bool is_own(uintptr_t end, uintptr_t stack)
{
    struct known *place = place_of(end);
    uintptr_t page = os_page_size();
    uint64_t from = load_relaxed(&place->from);
    uint64_t hole = load_relaxed(&place->hole);
    if (load_relaxed(&place->check) != check_of(end, from, hole)) {
        from = (end + page - 1) & ~(page - 1);
        hole = 0;
    }
    if (end == first_thread || (stack < hole && hole - stack > NEAR_HOLE) ||
        from - stack > OWN_MOST)
        return false;
    hole = 0;
    while (from > stack && hole == 0)
        if (os_is_readable((const void *)(from - page)))
            from -= page;
        else
            hole = from;
    store_relaxed(&place->from, from);
    store_relaxed(&place->hole, hole);
    store_relaxed(&place->check, check_of(end, from, hole));
    return hole == 0;
}

void os_stack_forget(void)
{
    uintptr_t end = thread_identity();
    struct known *place = place_of(end);
    uint64_t from = load_relaxed(&place->from);
    if (load_relaxed(&place->check) == check_of(end, from, load_relaxed(&place->hole)))
        store_relaxed(&place->check, (uint64_t)0);
}

bool stack_bounds_find(struct stack_bounds *bounds, uintptr_t stack)
{
    uintptr_t end = end_of_stack(stack) & ~(uintptr_t)(sizeof(uintptr_t) - 1);
    if (unlikely(end == 0))
        return false;
    const struct known *place = place_of(end);
    uint64_t from = load_relaxed(&place->from);
    bool known = load_relaxed(&place->check) == check_of(end, from, load_relaxed(&place->hole));
    bounds->end = end;
    bounds->readable = end;
    bounds->at_hole = false;
    if (likely(known && stack >= from))
        return true;
    if (!is_own(end, stack)) {
        uintptr_t page = os_page_size();
        bounds->readable = (stack & ~(page - 1)) + page;
    }
    return true;
}

bool stack_bounds_is_hole(const struct stack_bounds *bounds, uintptr_t at)
{
    uintptr_t known = bounds->readable - sizeof at;
    return !os_is_readable((const void *)at) && os_is_readable((const void *)known);
}

bool stack_bounds_extend(struct stack_bounds *bounds, uintptr_t at)
{
    uintptr_t page = os_page_size();
    if (at >= bounds->end || at - bounds->readable >= EXTENDED_PAGES * page)
        return false;
    while (bounds->readable <= at) {
        if (!os_is_readable((const void *)bounds->readable)) {
            bounds->at_hole = stack_bounds_is_hole(bounds, bounds->readable);
            return false;
        }
        bounds->readable += page;
    }
    return true;
}
