/* The clocks that choose samples: profiling.h. The random numbers are wyrand, base/random.h. */
#include "heap/profiling.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/random.h"
#include "os/process.h"

/* The smallest grant. Below it a class is diverted: a slow path after fewer frees costs more. */
enum { GRANT_MIN = 32 };

static struct {
    uint64_t interval_bytes; /* atomic: written by the thread that starts the profiler */
    uint64_t seed;           /* atomic: written by the thread that starts the profiler */
    uint32_t epoch;          /* atomic: number of starts */
    uint32_t heaps;          /* atomic: heaps that have drawn since the start, for their seeds */
} profile;

enum { LOG_BITS = 40, UNIFORM_BITS = 53 };

/* -ln(number / 2^53) for a number from 1 to 2^53, in units of 2^-40. There is no floating point,
 * because a program may trap inexact results. The binary logarithm is computed bit by bit: squaring
 * doubles it, and the next bit is set if the square is at least 2 (Knuth, The Art of Computer
 * Programming 1, 1.2.2, exercise 25). */
static uint64_t profiling_minus_log_of(uint64_t number)
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

/* Draws an exponential number with mean interval / size, rounded up to the next whole number. */
static int64_t profiling_draw(struct profiling *state, uint64_t size_bytes)
{
    uint64_t uniform = (random_next(&state->random) >> (64 - UNIFORM_BITS)) + 1;
    unsigned __int128 gap = (unsigned __int128)profiling_minus_log_of(uniform) *
                                load_relaxed(&profile.interval_bytes) / size_bytes >>
                            LOG_BITS;
    return gap < (unsigned __int128)1 << 60 ? 1 + (int64_t)gap : (int64_t)1 << 60;
}

/* The current slab of a small class. Returns: NULL if there is none, and for other classes. */
static struct span *profiling_current_of(const struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    return class_is_small(class) && slab != &empty_slab.header ? slab : NULL;
}

/* Slots that are free or were never handed out. */
static unsigned profiling_free_slots_of(const struct span *slab)
{
    return slab->capacity - slab_used(slab);
}

static void profiling_divert(struct heap *heap, unsigned class, bool on)
{
    uint32_t bit = (uint32_t)1 << class;
    uint32_t diverted = heap->profiling->diverted;
    heap->profiling->diverted = on ? diverted | bit : diverted & ~bit;
    if (heap->profiling->diverted != diverted)
        heap_route_class(heap, class);
}

static void profiling_divert_none(struct heap *heap)
{
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        profiling_divert(heap, class, false);
}

/* Grants frees to the current slab of the class up to the clock, or diverts the class if the grant
 * would be too small. `unseen` is the exact number of free slots. */
static void profiling_grant(struct heap *heap, unsigned class, struct span *slab)
{
    struct profile_clock *clock = &heap->profiling->clocks[class];
    int64_t room = clock->left - 1 - clock->unseen;
    bool diverts = room < GRANT_MIN;
    slab_hot(slab)->frees_to_attention =
        diverts ? FREES_MAX : (uint8_t)smaller_of((size_t)room, FREES_MAX);
    clock->granted = diverts ? 0 : slab_hot(slab)->frees_to_attention;
    if (diverts)
        clock->unseen = 0;
    profiling_divert(heap, class, diverts);
}

/* Subtracts the mallocs since the last count from the clock. `until` is the count of frees. */
static void profiling_settle(struct heap *heap, unsigned class, unsigned until, unsigned free_slots)
{
    struct profile_clock *clock = &heap->profiling->clocks[class];
    clock->left -= clock->unseen + clock->granted - (int64_t)until - (int64_t)free_slots;
    clock->unseen = free_slots;
    clock->granted = 0;
}

/* Counts the mallocs of the class up to now and makes a new grant. */
static void profiling_renew(struct heap *heap, unsigned class, struct span *slab)
{
    profiling_settle(heap, class, slab_hot(slab)->frees_to_attention,
                     profiling_free_slots_of(slab));
    profiling_grant(heap, class, slab);
}

/* Draws a new number for the class. Without a current slab the diversion stays as it is. */
static void profiling_draw_clock(struct heap *heap, unsigned class)
{
    struct profiling *state = heap->profiling;
    struct span *slab = profiling_current_of(heap, class);
    state->clocks[class] =
        (struct profile_clock){.left = profiling_draw(state, size_classes[class].size_bytes)};
    if (slab) {
        state->clocks[class].unseen = profiling_free_slots_of(slab);
        profiling_grant(heap, class, slab);
    }
}

/* Makes the heap follow a start of the profiler: draws a number for each class. */
static void profiling_begin(struct heap *heap, uint32_t epoch)
{
    struct profiling *state = heap->profiling;
    uint64_t seed = load_relaxed(&profile.seed);
    uint32_t number = fetch_add_relaxed(&profile.heaps, 1u);
    state->epoch = epoch;
    state->random = seed != 0 ? seed + (uint64_t)number * 0x9e3779b97f4a7c15u : os_random();
    state->large_left = profiling_draw(state, 1);
    profiling_divert_none(heap);
    for (unsigned class = 0; class < CLASS_COUNT; class ++)
        profiling_draw_clock(heap, class);
}

/* The profiling state of the heap. NULL while the profiler is off, or if the heap starts to follow
 * it in this call; then the caller's change is counted already. */
static struct profiling *profiling_state_of(struct heap *heap)
{
    if (heap->private_heap != NULL)
        return NULL; /* its holder has a lock, under which no system call is allowed */
    if (!heap_has_hook(HOOK_PROFILE)) {
        if (heap->profiling && heap->profiling->epoch != 0) {
            heap->profiling->epoch = 0;
            profiling_divert_none(heap);
        }
        return NULL;
    }
    if (heap->profiling == NULL)
        heap->profiling = meta_take(META_COLD, sizeof *heap->profiling);
    if (heap->profiling == NULL)
        return NULL;
    uint32_t epoch = load_relaxed(&profile.epoch);
    if (likely(heap->profiling->epoch == epoch))
        return heap->profiling;
    profiling_begin(heap, epoch);
    return NULL;
}

void heap_profile_start(const struct heap_profiler *profiler, uint64_t interval_bytes,
                        uint64_t seed)
{
    store_relaxed(&heap_hooks.profiler, profiler);
    store_relaxed(&profile.interval_bytes, interval_bytes);
    store_relaxed(&profile.seed, seed);
    store_relaxed(&profile.heaps, 0u);
    fetch_add_relaxed(&profile.epoch, 1u);
    hooks_set(HOOK_PROFILE | HOOK_PROFILED); /* pairs with profiling_state_of */
}

void heap_profile_stop(void) { hooks_clear(HOOK_PROFILE); }

/* The clock of a small class; NULL when profiling_state_of is, or while the class is diverted. */
static struct profile_clock *profiling_clock_of(struct heap *heap, unsigned class)
{
    struct profiling *state = profiling_state_of(heap);
    return state && !heap_profile_diverts(heap, class) ? &state->clocks[class] : NULL;
}

/* Counts the mallocs up to now if those that are not seen may reach the clock. */
static void profiling_watch(struct heap *heap, unsigned class, const struct profile_clock *clock)
{
    struct span *slab = profiling_current_of(heap, class);
    if (unlikely(clock->unseen + clock->granted >= clock->left) && slab)
        profiling_renew(heap, class, slab);
}

void heap_profile_attend(struct heap *heap, unsigned class)
{
    struct profile_clock *clock = profiling_clock_of(heap, class);
    if (clock == NULL)
        return;
    clock->unseen += clock->granted;
    clock->granted = FREES_MAX;
    profiling_watch(heap, class, clock);
}

void heap_profile_leave(struct heap *heap, unsigned class, unsigned free_slots)
{
    /* If the heap starts to follow the profiler here, no malloc has passed since, and the second
     * call returns its state. */
    (void)profiling_state_of(heap);
    struct profile_clock *clock = profiling_clock_of(heap, class);
    if (clock == NULL)
        return;
    profiling_settle(heap, class, slab_hot(heap->current[class])->frees_to_attention, free_slots);
    clock->unseen = 0;
    if (config_debug)
        check_internal(clock->left > 0);
}

void heap_profile_enter(struct heap *heap, unsigned class, unsigned free_slots)
{
    struct profile_clock *clock = profiling_clock_of(heap, class);
    if (clock == NULL)
        return;
    clock->unseen = free_slots;
    profiling_grant(heap, class, heap->current[class]);
}

void heap_profile_collect(struct heap *heap, unsigned class, unsigned slots)
{
    struct profile_clock *clock = profiling_clock_of(heap, class);
    if (clock == NULL)
        return;
    clock->unseen += slots;
    profiling_watch(heap, class, clock);
}

static void profiling_sample(struct span *span, void *block, size_t asked_bytes, size_t size_bytes)
{
    if (load_relaxed(&heap_hooks.profiler)->allocated(block, asked_bytes, size_bytes))
        hooks_mark(span, block);
}

/* Counts one malloc. Returns: whether it is the one that is due. */
static bool profiling_count(struct heap *heap, unsigned class, bool guarded)
{
    struct profile_clock *clock = &heap->profiling->clocks[class];
    bool counted = !class_is_small(class) || heap_profile_diverts(heap, class);
    if (!counted && !guarded)
        return false; /* the free slots of the slab count it */
    clock->left--;
    if (!counted)
        profiling_watch(heap, class, clock);
    return clock->left <= 0;
}

void heap_profile_take(struct heap *heap, unsigned class, void *block, size_t asked_bytes)
{
    struct span *span = page_map_find(block);
    if (profiling_state_of(heap) == NULL || !profiling_count(heap, class, !span_is_slab(span)))
        return;
    profiling_draw_clock(heap, class);
    /* This is the last step, because the stack walk may allocate memory. */
    profiling_sample(span, block, asked_bytes, size_classes[class].size_bytes);
}

void heap_profile_large(struct heap *heap, struct span *span, size_t asked_bytes)
{
    struct profiling *state = heap ? profiling_state_of(heap) : NULL;
    if (state == NULL)
        return;
    size_t size_bytes = (size_t)span->pages << PAGE_SHIFT;
    state->large_left -= (int64_t)smaller_of(size_bytes, (size_t)INT64_MAX / 2);
    if (state->large_left > 0)
        return;
    state->large_left = profiling_draw(state, 1);
    profiling_sample(span, span->base, asked_bytes, size_bytes);
}
