/* The clocks that choose samples: see profiling.h. Random numbers: wyrand, base/random.h. */
#include "heap/profiling.h"

#include "base/alone.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/random.h"
#include "os/os.h"

enum { GRANT_LEAST = 32 }; /* below, a class is armed rather than visited after so few frees */

static struct {
    const struct heap_profiler *profiler; /* written before epoch */
    uint64_t interval_bytes;              /* atomic */
    uint64_t seed;                        /* atomic */
    uint32_t epoch;                       /* atomic: counts starts */
    uint32_t heaps;                       /* atomic: that began, for their seeds */
} profile;

enum { LOG_BITS = 40, UNIFORM_BITS = 53 };

/* -ln(number / 2^53) for a number from 1 to 2^53, in units of 2^-40. No floating point: a program
 * may trap what would be inexact there. The binary logarithm, bit by bit: squaring doubles it, and
 * what reaches 2 has the next bit (Knuth, The Art of Computer Programming 1, 1.2.2, exercise 25).
 */
static uint64_t minus_log_of(uint64_t number)
{
    unsigned exponent = 63 - (unsigned)__builtin_clzll(number);
    uint64_t mantissa = number << (63 - exponent); /* from 1 to 2, in units of 2^-63 */
    uint64_t fraction = 0;
    for (unsigned bit = 0; bit < LOG_BITS; bit++) {
        unsigned __int128 square = ((unsigned __int128)mantissa * mantissa) >> 63;
        bool reaches_2 = square >> 64 != 0;
        mantissa = (uint64_t)(reaches_2 ? square >> 1 : square);
        fraction = fraction << 1 | reaches_2;
    }
    const uint64_t ln_2 = 0xb17217f7d1cf79ac; /* in units of 2^-64 */
    uint64_t binary = ((uint64_t)(UNIFORM_BITS - exponent) << LOG_BITS) - fraction;
    return (uint64_t)((unsigned __int128)binary * ln_2 >> 64);
}

/* Exponential with mean interval / size, as the next whole number above. */
static int64_t draw(struct profiling *state, uint64_t size_bytes)
{
    uint64_t uniform = (random_next(&state->random) >> (64 - UNIFORM_BITS)) + 1;
    unsigned __int128 gap = (unsigned __int128)minus_log_of(uniform) *
                                load_relaxed(&profile.interval_bytes) / size_bytes >>
                            LOG_BITS;
    return gap < (unsigned __int128)1 << 60 ? 1 + (int64_t)gap : (int64_t)1 << 60;
}

static int64_t draw_of_class(struct profiling *state, unsigned class)
{
    return draw(state, size_classes[class].size_bytes);
}

static struct span *current_of(const struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    return slab == heap->current[CLASS_COUNT] ? NULL : slab; /* the last is the empty one */
}

static unsigned free_slots_of(const struct span *slab) { return slab->capacity - slab_used(slab); }

static void arm(struct heap *heap, unsigned class, bool on)
{
    uint32_t bit = (uint32_t)1 << class;
    uint32_t armed = heap->profiling->armed;
    heap->profiling->armed = on ? armed | bit : armed & ~bit;
    if (heap->profiling->armed != armed)
        heap_show_class(heap, class);
}

/* `unseen` is the number of free slots just now. */
static void grant(struct heap *heap, unsigned class, struct span *slab)
{
    struct profile_clock *clock = &heap->profiling->clocks[class];
    int64_t room = clock->left - 1 - clock->unseen;
    bool arms = room < GRANT_LEAST;
    slab_own(slab)->until = arms ? UINT8_MAX : (uint8_t)smaller_of((size_t)room, UINT8_MAX);
    clock->granted = arms ? 0 : slab_own(slab)->until;
    if (arms)
        clock->unseen = 0;
    arm(heap, class, arms);
}

/* Counts what went by until now. */
static void settle(struct heap *heap, unsigned class, unsigned until, unsigned free_slots)
{
    struct profile_clock *clock = &heap->profiling->clocks[class];
    clock->left -= clock->unseen + clock->granted - (int64_t)until - (int64_t)free_slots;
    clock->unseen = free_slots;
    clock->granted = 0;
}

static void renew(struct heap *heap, unsigned class, struct span *slab)
{
    settle(heap, class, slab_own(slab)->until, free_slots_of(slab));
    grant(heap, class, slab);
}

static void begin(struct heap *heap, uint32_t epoch)
{
    struct profiling *state = heap->profiling;
    uint64_t seed = load_relaxed(&profile.seed);
    uint32_t number = fetch_add_relaxed(&profile.heaps, 1u);
    state->epoch = epoch;
    state->random = seed != 0 ? seed + (uint64_t)number * 0x9e3779b97f4a7c15u : os_entropy();
    state->large_left = draw(state, 1);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        struct span *slab = class_is_small(class) ? current_of(heap, class) : NULL;
        state->clocks[class] = (struct profile_clock){.left = draw_of_class(state, class)};
        if (slab) {
            state->clocks[class].unseen = free_slots_of(slab);
            grant(heap, class, slab);
        } else if (class_is_small(class)) {
            arm(heap, class, false);
        }
    }
}

static void end(struct heap *heap)
{
    heap->profiling->epoch = 0;
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        arm(heap, class, false);
}

/* The heap's state. NULL while the profiler is off, and where the heap follows it only now: what
 * the caller has to say is counted already. */
static struct profiling *state_of(struct heap *heap)
{
    if (heap->program != NULL)
        return NULL; /* its holder has a lock */
    if ((load_acquire(&heap_watch) & WATCH_PROFILE) == 0) {
        if (heap->profiling && heap->profiling->epoch != 0)
            end(heap);
        return NULL;
    }
    if (heap->profiling == NULL)
        heap->profiling = meta_take(META_COLD, sizeof *heap->profiling);
    if (heap->profiling == NULL)
        return NULL;
    uint32_t epoch = load_relaxed(&profile.epoch);
    if (likely(heap->profiling->epoch == epoch))
        return heap->profiling;
    begin(heap, epoch);
    return NULL;
}

void heap_profile_start(const struct heap_profiler *profiler, uint64_t interval_bytes,
                        uint64_t seed)
{
    store_relaxed(&profile.profiler, profiler);
    store_relaxed(&profile.interval_bytes, interval_bytes);
    store_relaxed(&profile.seed, seed);
    store_relaxed(&profile.heaps, 0u);
    fetch_add_relaxed(&profile.epoch, 1u);
    fetch_or_acq_rel(&heap_watch, (uint32_t)(WATCH_PROFILE | WATCH_PROFILED)); /* pairs with
                                                                                  state_of */
}

void heap_profile_stop(void) { fetch_and_acq_rel(&heap_watch, ~(uint32_t)WATCH_PROFILE); }

/* Small classes' current slabs. */

void heap_profile_attend(struct heap *heap, unsigned class)
{
    struct profiling *state = state_of(heap);
    if (state == NULL || heap_profile_arms(heap, class))
        return;
    struct profile_clock *clock = &state->clocks[class];
    clock->unseen += clock->granted;
    clock->granted = UINT8_MAX;
    if (unlikely(clock->unseen + UINT8_MAX >= clock->left))
        renew(heap, class, heap->current[class]);
}

void heap_profile_leave(struct heap *heap, unsigned class, unsigned free_slots)
{
    (void)state_of(heap); /* where the heap follows only now, nothing has gone by since */
    struct profiling *state = state_of(heap);
    if (state == NULL || heap_profile_arms(heap, class))
        return;
    settle(heap, class, slab_own(heap->current[class])->until, free_slots);
    state->clocks[class].unseen = 0;
    if (config_debug)
        check_internal(state->clocks[class].left > 0);
}

void heap_profile_enter(struct heap *heap, unsigned class, unsigned free_slots)
{
    struct profiling *state = state_of(heap);
    if (state == NULL || heap_profile_arms(heap, class))
        return;
    state->clocks[class].unseen = free_slots;
    grant(heap, class, heap->current[class]);
}

void heap_profile_collect(struct heap *heap, unsigned class, unsigned slots)
{
    struct profiling *state = state_of(heap);
    if (state == NULL || heap_profile_arms(heap, class))
        return;
    struct profile_clock *clock = &state->clocks[class];
    clock->unseen += slots;
    if (unlikely(clock->unseen + clock->granted >= clock->left))
        renew(heap, class, heap->current[class]);
}

/* Blocks. */

static void sample(struct span *span, void *block, size_t asked_bytes, size_t size_bytes)
{
    if (!load_relaxed(&profile.profiler)->allocated(block, asked_bytes, size_bytes))
        return;
    if (span_is_slab(span))
        store_relaxed(slab_link(span, (unsigned)slab_slot(span, block)), (uint8_t)LINK_PROFILED);
    else
        span->until = 1;
}

/* One malloc more; whether it is the one that is due. */
static bool count(struct heap *heap, unsigned class, bool guarded)
{
    struct profile_clock *clock = &heap->profiling->clocks[class];
    bool armed = !class_is_small(class) || heap_profile_arms(heap, class);
    if (!armed && !guarded)
        return false; /* a slot less is free */
    clock->left--;
    struct span *slab = class_is_small(class) ? current_of(heap, class) : NULL;
    if (!armed && slab && clock->unseen + clock->granted >= clock->left)
        renew(heap, class, slab);
    return clock->left <= 0;
}

void heap_profile_take(struct heap *heap, unsigned class, void *block, size_t asked_bytes,
                       bool guarded)
{
    struct profiling *state = state_of(heap);
    if (state == NULL || !count(heap, class, guarded))
        return;
    state->clocks[class] = (struct profile_clock){.left = draw_of_class(state, class)};
    struct span *slab = class_is_small(class) ? current_of(heap, class) : NULL;
    if (slab) {
        state->clocks[class].unseen = free_slots_of(slab);
        grant(heap, class, slab);
    }
    /* Last, for who walks the stack may ask for memory. */
    sample(page_map_find(block), block, asked_bytes, size_classes[class].size_bytes);
}

void heap_profile_large(struct heap *heap, struct span *span, size_t asked_bytes)
{
    struct profiling *state = heap ? state_of(heap) : NULL;
    if (state == NULL)
        return;
    size_t size_bytes = (size_t)span->pages << PAGE_SHIFT;
    state->large_left -= (int64_t)smaller_of(size_bytes, (size_t)INT64_MAX / 2);
    if (state->large_left > 0)
        return;
    state->large_left = draw(state, 1);
    sample(span, span->base, asked_bytes, size_bytes);
}

/* Its sample, if it is one, ends. */
static void forget(void *block)
{
    const struct heap_profiler *profiler = load_relaxed(&profile.profiler);
    if (profiler)
        profiler->freed(block);
}

static void unmark_slot(struct span *slab, unsigned slot)
{
    uint8_t *at = slab_link(slab, slot);
    uint8_t link = load_relaxed(at);
    if (likely(link == LINK_PROFILED))
        (void)alone_or_compare_swap(at, &link, (uint8_t)LINK_LIVE);
}

void heap_profile_leave_slot(struct span *slab, unsigned slot)
{
    forget(slab_block(slab, slot));
    unmark_slot(slab, slot);
}

void heap_profile_leave_span(struct span *span)
{
    forget(span->base);
    span->until = 0;
}

/* Blocks are aligned, so an address with its lowest bit set is nobody's. */
static struct span_sample hold(char *block)
{
    struct span_sample held = {NULL, 0};
    const struct heap_profiler *profiler = load_relaxed(&profile.profiler);
    if (profiler) {
        held.name = block + 1;
        profiler->renamed(block, held.name);
    }
    return held;
}

struct span_sample heap_profile_hold(struct span *span)
{
    return span->until != 0 ? hold(span->base) : (struct span_sample){NULL, 0};
}

struct span_sample heap_profile_hold_block(struct span *span, void *block)
{
    struct span_sample held = {NULL, 0};
    if (!span_is_slab(span)) {
        held = heap_profile_hold(span);
        held.pages = span->pages;
        span->until = 0;
    } else if (!slab_is_packed(span) && !slab_is_void(span)) {
        unsigned slot = (unsigned)slab_slot(span, block);
        if (load_relaxed(slab_link(span, slot)) == LINK_PROFILED) {
            held = hold(block);
            unmark_slot(span, slot);
        }
    }
    return held;
}

void heap_profile_mark_again(struct span *span, const void *block)
{
    if (!span_is_slab(span)) {
        span->until = 1;
    } else if (!slab_is_packed(span) && !slab_is_void(span)) {
        unsigned slot = (unsigned)slab_slot(span, block);
        uint8_t *at = slab_link(span, slot);
        uint8_t link = LINK_LIVE;
        if (likely(slab_shows_live(span, slot)))
            (void)alone_or_compare_swap(at, &link, (uint8_t)LINK_PROFILED);
    }
}

static void drop(struct span_sample held)
{
    if (held.name)
        load_relaxed(&profile.profiler)->freed(held.name);
}

void heap_profile_let_go_block(void *block, void *now, struct span_sample held)
{
    struct span *span = page_map_find(block);
    bool same = now == NULL || (now == block && !span_is_slab(span) && span->pages == held.pages);
    if (held.name == NULL || !same) {
        drop(held);
        return;
    }
    load_relaxed(&profile.profiler)->renamed(held.name, block);
    heap_profile_mark_again(span, block);
}

void heap_profile_resume(struct span *span, struct span_sample held)
{
    if (held.name)
        load_relaxed(&profile.profiler)->renamed(held.name, span->base);
}

void heap_profile_resized(struct heap *heap, struct span *span, struct span_sample held,
                          size_t asked_bytes)
{
    drop(held);
    if (!heap_is_traced()) /* which has the same mark */
        span->until = 0;
    heap_profile_large(heap, span, asked_bytes);
}
