/* The table of known stacks, and the bounds of one: see unwind_bounds.h. */
#include "unwind/unwind_bounds.h"

#include "base/atomic.h"
#include "os/memory.h"

#include <sys/auxv.h>

enum {
    KNOWN_SHIFT = 7,
    OWN_MAX = 64 << 20,  /* a longer stack is treated as a coroutine's */
    NEAR_HOLE = 1 << 20, /* the first thread's stack may have grown over a hole that is nearer */
    EXTENDED_PAGES = 64, /* pages that are checked for one read: no frame is larger */
};

static uintptr_t first_stack_end; /* const after unwind_bounds_prepare */
/* const after unwind_bounds_prepare: its stack does not end at its thread pointer; 0: not known */
static uintptr_t first_thread;

/* A known stack, in a table by its end: the lowest address from which it is readable, and the next
 * address below that at which a read fails, 0 if none was found.
 *
 * A writer stores a check that is mixed of all three values, so that values of two writers are
 * no valid entry together (Hyatt and Mann, see unwind_walk.c). An entry is true while the thread
 * lives: a part of an earlier thread's stack with that end may be unmapped, and a coroutine may
 * be in another part (unwind_forget_thread). The entries are not in thread-local words, because
 * static TLS is scarce. */
static struct known {
    uint64_t check;      /* atomic: mix of end, from and hole */
    uint64_t from, hole; /* atomic */
} known_stacks[1 << KNOWN_SHIFT];

void unwind_bounds_prepare(bool in_first_thread)
{
    first_stack_end = getauxval(AT_RANDOM);
    if (in_first_thread)
        first_thread = thread_identity();
}

/* The nearest end of a stack above an address; 0 if there is none. */
static uintptr_t unwind_end_of_stack(uintptr_t stack)
{
    uintptr_t thread = thread_identity();
    bool in_thread = stack < thread;
    bool in_first = stack < first_stack_end;
    if (in_thread && in_first)
        return thread < first_stack_end ? thread : first_stack_end;
    return in_thread ? thread : in_first ? first_stack_end : 0;
}

static struct known *unwind_place_of(uintptr_t end)
{
    return &known_stacks[(end * 0x9e3779b97f4a7c15u) >> (64 - KNOWN_SHIFT)];
}

static uint64_t unwind_check_of(uintptr_t end, uint64_t from, uint64_t hole)
{
    return end ^ from ^ (hole << 32 | hole >> 32);
}

/* Whether the stack is the thread's own: checks the pages from the known readable part down to
 * the page of the stack pointer or to a hole. */
static no_inline bool unwind_is_own(uintptr_t end, uintptr_t stack)
{
    struct known *place = unwind_place_of(end);
    uintptr_t page = os_page_size();
    uint64_t from = load_relaxed(&place->from);
    uint64_t hole = load_relaxed(&place->hole);
    if (load_relaxed(&place->check) != unwind_check_of(end, from, hole)) {
        from = (end + page - 1) & ~(page - 1);
        hole = 0;
    }
    if (end == first_thread || (stack < hole && hole - stack > NEAR_HOLE) || from - stack > OWN_MAX)
        return false;
    hole = 0;
    while (from > stack && hole == 0)
        if (os_is_readable((const void *)(from - page)))
            from -= page;
        else
            hole = from;
    store_relaxed(&place->from, from);
    store_relaxed(&place->hole, hole);
    store_relaxed(&place->check, unwind_check_of(end, from, hole));
    return hole == 0;
}

at_process_start void unwind_forget_thread(void)
{
    uintptr_t end = thread_identity();
    struct known *place = unwind_place_of(end);
    uint64_t from = load_relaxed(&place->from);
    if (load_relaxed(&place->check) == unwind_check_of(end, from, load_relaxed(&place->hole)))
        store_relaxed(&place->check, (uint64_t)0);
}

bool unwind_bounds_find(struct unwind_bounds *bounds, uintptr_t stack)
{
    uintptr_t end = unwind_end_of_stack(stack) & ~(uintptr_t)(sizeof(uintptr_t) - 1);
    if (unlikely(end == 0))
        return false;
    const struct known *place = unwind_place_of(end);
    uint64_t from = load_relaxed(&place->from);
    bool known =
        load_relaxed(&place->check) == unwind_check_of(end, from, load_relaxed(&place->hole));
    bounds->end = end;
    bounds->readable = end;
    bounds->at_hole = false;
    if (likely(known && stack >= from))
        return true;
    if (!unwind_is_own(end, stack)) {
        uintptr_t page = os_page_size();
        bounds->readable = (stack & ~(page - 1)) + page;
    }
    return true;
}

bool unwind_bounds_is_hole(const struct unwind_bounds *bounds, uintptr_t at)
{
    uintptr_t known = bounds->readable - sizeof at;
    return !os_is_readable((const void *)at) && os_is_readable((const void *)known);
}

bool unwind_bounds_extend(struct unwind_bounds *bounds, uintptr_t at)
{
    uintptr_t page = os_page_size();
    if (at >= bounds->end || at - bounds->readable >= EXTENDED_PAGES * page)
        return false;
    while (bounds->readable <= at) {
        if (!os_is_readable((const void *)bounds->readable)) {
            bounds->at_hole = unwind_bounds_is_hole(bounds, bounds->readable);
            return false;
        }
        bounds->readable += page;
    }
    return true;
}
