/* The cache of walks: see unwind_cache.h.
 *
 * A step outwards is a pure function of the caller's address, stack pointer and frame pointer and
 * of the stack words that it reads. So if all of these are unchanged, a cached step leads to the
 * cached next caller, and so on outwards: two loads and a compare for each caller, without its
 * rule. The frame pointer is compared only where a step further out uses it, because in programs
 * without frame pointers it is any word.
 *
 * Steps form a tree that grows from the outermost callers inwards: each step names the next one
 * outwards and never changes. Of several steps with one address and stack pointer that lead to
 * different callers, one is tried: the one that was right the last time. Where its words have
 * changed, the walk continues by rules, until it reaches a cached step whose words are all
 * unchanged. The callers that it has passed are found, or made, as steps inside that one. A full
 * cache is emptied.
 *
 *   outer == NULL: the caller's rule says that it has no caller; else the word at outer_at is
 *   outer->address. steps[0], whose address is 0, is the step outside of the outermost caller
 *   where only a return address of 0 marks the end.
 *
 *   checked_at, expected: if only the word at outer_at matters, outer_at and outer->address;
 *   else a word of the step itself that differs from `expected`. So a loop of one compare for
 *   each step stops there.
 *
 *   record_at, record_frame: if the frame pointer matters too, and is the word below outer_at,
 *   its address and outer->frame; else a word of the step itself that differs from
 *   record_frame. So a loop of two compares for each step stops there.
 *
 * The words of a step are read only when the words of all steps inside it are unchanged, so that
 * the walk itself would read them too. Words of another stack, which may be unmapped, are not read.
 *
 * After a library was unloaded, its cached callers are valid for another library at its place,
 * as in traces: the dynamic linker has no count of its changes that can be read without its
 * lock.
 */
#include "unwind/unwind_cache.h"

#include "unwind/unwind_walk.h"

#include <string.h>

enum { PLACE_SHIFT = 64 - 10, RECORD_BYTES = 2 * sizeof(uintptr_t) };
static_check(UNWIND_CACHE_PLACES == 1 << (64 - PLACE_SHIFT), "places by the highest bits");
static_check(2 * UNWIND_CACHE_DEPTH < UNWIND_CACHE_STEPS, "a walk, and what it has passed, fit");

static reads_stack uintptr_t unwind_word_at(uintptr_t at)
{
    return *(const volatile uintptr_t *)at;
}

/* The address of a word of a step, from the distance that it stores. */
static uintptr_t unwind_at_words(const struct unwind_step *step, uint32_t words)
{
    return step->stack + ((uintptr_t)words - 1) * sizeof(uintptr_t);
}

/* The distance that a step stores for a word at `at`; 0 for none. */
static uint32_t unwind_words_to(uintptr_t stack, uintptr_t at)
{
    return at != 0 ? (uint32_t)((at - stack) / sizeof at) + 1 : 0;
}

/* Makes both loops of find_changed stop at the step. */
static void unwind_check_nothing(struct unwind_step *step)
{
    step->checked_at = step->record_at = (uintptr_t)&step->address;
    step->expected = step->record_frame = ~step->address;
}

/* Empties the cache. */
static void unwind_forget(struct unwind_cache *cache)
{
    memset(cache->latest, 0, sizeof cache->latest);
    memset(cache->inside, 0, sizeof cache->inside);
    cache->steps[0] = (struct unwind_step){.hash = 1};
    unwind_check_nothing(&cache->steps[0]);
    cache->used = 1;
}

static uint64_t unwind_mix(uintptr_t address, uintptr_t stack)
{
    return (address ^ stack << 20) * 0x9e3779b97f4a7c15u;
}

static uint16_t *unwind_latest_place(struct unwind_cache *cache, uint64_t mixed)
{
    return &cache->latest[mixed >> PLACE_SHIFT];
}

static uint16_t *unwind_inside_place(struct unwind_cache *cache, uint64_t mixed,
                                     const struct unwind_step *outer)
{
    uint64_t number = outer ? (uint64_t)(outer - cache->steps) + 1 : 0;
    return &cache->inside[(mixed ^ number * 0xc2b2ae3d27d4eb4fu) >> PLACE_SHIFT];
}

static bool unwind_is_at(const struct unwind_step *step, const struct unwind_walker *walk)
{
    return step->address == walk->address && step->stack == walk->stack &&
           (!step->frame_counts || step->frame == walk->frame);
}

/* The step that was right the last time for the current caller of a walk; NULL if there is none. */
static struct unwind_step *unwind_find_latest(struct unwind_cache *cache,
                                              const struct unwind_walker *walk)
{
    uint64_t mixed = unwind_mix(walk->address, walk->stack);
    struct unwind_step *step = &cache->steps[*unwind_latest_place(cache, mixed)];
    return unwind_is_at(step, walk) ? step : NULL;
}

/* Whether the words of a step are unchanged. */
static reads_stack bool unwind_is_unchanged(const struct unwind_step *step)
{
    const struct unwind_step *outer = step->outer;
    if (stack_plain_address(unwind_word_at(step->outer_at)) != outer->address)
        return false;
    if (step->stack_words != 0 &&
        unwind_word_at(unwind_at_words(step, step->stack_words)) != outer->stack)
        return false;
    return !outer->frame_counts || step->frame_words == 0 ||
           unwind_word_at(unwind_at_words(step, step->frame_words)) == outer->frame;
}

/* Passes the steps whose frame pointer matters and whose words are unchanged. */
static reads_stack no_inline struct unwind_step *unwind_pass_frames(struct unwind_step *step)
{
    while (likely(unwind_word_at(step->record_at) == step->record_frame &&
                  stack_plain_address(unwind_word_at(step->record_at + sizeof(uintptr_t))) ==
                      step->outer->address))
        step = step->outer;
    return step;
}

/* The first step from this one outwards whose words have changed; NULL if there is none. */
inline_always reads_stack struct unwind_step *find_changed(struct unwind_step *step)
{
    for (;;) {
        while (likely(stack_plain_address(unwind_word_at(step->checked_at)) == step->expected))
            step = step->outer;
        if (step->outer == NULL)
            return NULL;
        struct unwind_step *before = step;
        step = unwind_pass_frames(step);
        if (step != before)
            continue;
        if (step->checked_at == step->outer_at || !unwind_is_unchanged(step))
            return step;
        step = step->outer;
    }
}

/* The first step from this one outwards whose words have changed; NULL if there is none. Checks
 * first whether each page can be read. All words of a step are at or below `outer_at`. */
static struct unwind_step *unwind_find_changed_paged(struct unwind_step *step,
                                                     struct unwind_bounds *bounds)
{
    while (step->outer &&
           (step->outer_at < bounds->readable || unwind_bounds_extend(bounds, step->outer_at)) &&
           unwind_is_unchanged(step))
        step = step->outer;
    return step->outer ? step : NULL;
}

/* A walk and the callers that it has passed. The callers are stored at the end of the array of
 * steps, downwards, until they are kept. */
struct unwind_path {
    struct unwind_cache *cache;
    struct unwind_walker walk;
    unsigned count; /* callers that were passed */
    bool full;      /* the cache has no space for another one */
};

/* Stores the current caller of the walk as passed.
 * Returns: NULL when there is no space. */
static struct unwind_step *unwind_pass(struct unwind_path *path)
{
    unsigned place = UNWIND_CACHE_STEPS - 1 - path->count;
    path->full = place < path->cache->used;
    if (path->full || path->count == UNWIND_CACHE_DEPTH)
        return NULL;
    path->count++;
    struct unwind_step *passed = &path->cache->steps[place];
    passed->address = path->walk.address;
    passed->stack = path->walk.stack;
    passed->frame = path->walk.frame;
    return passed;
}

/* Passes the cached steps from `step` to `last`; the step of `last` itself has to be computed.
 * Returns: false when there is no space. */
static bool unwind_go_along(struct unwind_path *path, const struct unwind_step *step,
                            const struct unwind_step *last)
{
    struct unwind_walker *walk = &path->walk;
    for (; step != last; step = step->outer) {
        struct unwind_step *passed = unwind_pass(path);
        if (passed == NULL)
            return false;
        passed->outer_at = step->outer_at;
        passed->frame_words = step->frame_words;
        passed->stack_words = step->stack_words;
        passed->by_frame = step->by_frame;
        if (step->frame_words != 0)
            walk->frame = unwind_word_at(unwind_at_words(step, step->frame_words));
        walk->address = step->outer->address;
        walk->stack = step->outer->stack;
    }
    return true;
}

/* Passes one caller by its rule. */
static enum unwind_went unwind_go_out(struct unwind_path *path)
{
    struct unwind_walker *walk = &path->walk;
    struct unwind_step *passed = unwind_pass(path);
    if (passed == NULL)
        return UNWIND_LOST;
    enum unwind_went went = unwind_walk_out(walk);
    bool gone = went == UNWIND_WENT;
    if (gone && (walk->frame_at > walk->address_at || walk->stack_at > walk->address_at))
        return UNWIND_LOST; /* find_changed needs these words below the return address */
    passed->outer_at = gone ? walk->address_at : 0;
    passed->frame_words = gone ? unwind_words_to(passed->stack, walk->frame_at) : 0;
    passed->stack_words = gone ? unwind_words_to(passed->stack, walk->stack_at) : 0;
    passed->by_frame = gone && walk->by_frame;
    return went;
}

/* The first step from `step` outwards whose words have changed, on the thread's own stack or
 * another; NULL if there is none. */
static const struct unwind_step *unwind_first_changed(struct unwind_path *path,
                                                      struct unwind_step *step)
{
    struct unwind_bounds *bounds = &path->walk.bounds;
    return bounds->readable == bounds->end ? find_changed(step)
                                           : unwind_find_changed_paged(step, bounds);
}

/* Walks outwards to a cached step whose words, and those of all steps further out, are unchanged,
 * or to the end.
 * Returns: false when the stack cannot be walked here. */
static bool unwind_find_joined(struct unwind_path *path, struct unwind_step **joined)
{
    struct unwind_walker *walk = &path->walk;
    for (;;) {
        struct unwind_step *step = unwind_find_latest(path->cache, walk);
        *joined = step;
        if (step) {
            const struct unwind_step *changed = unwind_first_changed(path, step);
            if (changed == NULL)
                return true;
            if (!unwind_go_along(path, step, changed))
                return false;
        }
        enum unwind_went went = unwind_go_out(path);
        if (went == UNWIND_LOST)
            return false;
        *joined = went == UNWIND_WENT ? &path->cache->steps[0] : NULL;
        if (went == UNWIND_ENDED || walk->address == 0)
            return true;
    }
}

/* Whether a step equals a passed caller with `outer` as its next caller. */
static bool unwind_is_inside(const struct unwind_step *step, const struct unwind_step *passed,
                             const struct unwind_step *outer)
{
    return step->address == passed->address && step->stack == passed->stack &&
           step->outer == outer && step->outer_at == passed->outer_at &&
           step->frame_words == passed->frame_words &&
           (!step->frame_counts || step->frame == passed->frame);
}

/* Makes the step of a passed caller with `outer` as its next caller. */
static struct unwind_step *unwind_make_inside(struct unwind_cache *cache,
                                              const struct unwind_step *passed,
                                              struct unwind_step *outer)
{
    struct unwind_step *step = &cache->steps[cache->used++];
    bool outer_counts = outer && outer->frame_counts;
    uint64_t hash = ((outer ? outer->hash : 1) ^ passed->address) * 0x9e3779b97f4a7c15u;
    *step = *passed;
    step->outer = outer;
    step->hash = hash ^ hash >> 29;
    step->depth = (uint8_t)(outer ? outer->depth + 1 : 1);
    step->number = 0;
    step->seen = false;
    step->frame_counts = passed->by_frame || (passed->frame_words == 0 && outer_counts);
    bool frame_checked = passed->frame_words != 0 && outer_counts;
    bool is_plain = outer && passed->stack_words == 0;
    unwind_check_nothing(step);
    if (is_plain && !frame_checked) {
        step->checked_at = step->outer_at;
        step->expected = outer->address;
    } else if (is_plain && unwind_at_words(step, step->frame_words + 1) == step->outer_at) {
        step->record_at = unwind_at_words(step, step->frame_words);
        step->record_frame = outer->frame;
    }
    return step;
}

/* Finds or makes the steps of all passed callers, with `outer` outside of them.
 * Returns: the innermost step; NULL when the stack is too deep. */
static struct unwind_step *unwind_keep(struct unwind_path *path, struct unwind_step *outer)
{
    struct unwind_cache *cache = path->cache;
    for (unsigned i = path->count; i-- > 0;) {
        const struct unwind_step *passed = &cache->steps[UNWIND_CACHE_STEPS - 1 - i];
        uint64_t mixed = unwind_mix(passed->address, passed->stack);
        uint16_t *place = unwind_inside_place(cache, mixed, outer);
        struct unwind_step *step = &cache->steps[*place];
        if (!unwind_is_inside(step, passed, outer)) {
            if (outer && outer->depth == UNWIND_CACHE_DEPTH)
                return NULL;
            step = unwind_make_inside(cache, passed, outer);
            *place = (uint16_t)(step - cache->steps);
        }
        *unwind_latest_place(cache, mixed) = (uint16_t)(step - cache->steps);
        outer = step;
    }
    return outer;
}

/* Finds or makes the step of the current caller of a walk.
 * Returns: NULL when the stack cannot be walked here. */
static struct unwind_step *unwind_find_step(struct unwind_path *path)
{
    struct unwind_cache *cache = path->cache;
    path->full = false;
    const uintptr_t address = path->walk.address;
    const uintptr_t stack = path->walk.stack;
    const uintptr_t frame = path->walk.frame;
    for (;;) {
        struct unwind_step *joined;
        path->count = 0;
        bool found = unwind_find_joined(path, &joined);
        if (found && path->count == 0)
            return joined;
        bool full = path->full || cache->used + 2 * path->count > UNWIND_CACHE_STEPS;
        if (found && !full)
            return unwind_keep(path, joined);
        if (!full || cache->used == 1)
            return NULL;
        unwind_forget(cache);
        path->walk.address = address;
        path->walk.stack = stack;
        path->walk.frame = frame;
    }
}

/* Begins a walk. The cache is emptied if the thread's own stack has another end than in the last
 * walk: another thread's stack may have been there. All words of cached steps have to be below the
 * end of the stack.
 * Returns: false when the bounds of the stack are not known. */
static bool unwind_begin(struct unwind_path *path, uint32_t thread)
{
    struct unwind_cache *cache = path->cache;
    struct unwind_walker *walk = &path->walk;
    if (!unwind_walk_begin(walk))
        return false;
    bool is_own = walk->bounds.readable == walk->bounds.end;
    if (cache->used == 0 || (is_own && cache->end != walk->bounds.end))
        unwind_forget(cache);
    if (is_own) {
        cache->thread = thread;
        cache->from = thread != 0 ? walk->stack : UINTPTR_MAX;
        cache->end = walk->bounds.end;
    }
    return true;
}

/* Paths through this library, from the first frame record to the outermost one. At each place of
 * its code a function of this library has frames of one size, because none has an array of
 * variable length (-Wvla). So if all return addresses of a path match, it is the path. Paths are
 * indexed by the third address, because all begin with one of a few. Each place has two paths; a
 * new one replaces the older one. */
enum { ALIKE = 2 };
static reads_stack struct unwind_entry_path *unwind_ways_of(struct unwind_cache *cache,
                                                            uintptr_t frame)
{
    uintptr_t next = unwind_word_at(frame);
    bool is_there = next > frame && next % sizeof next == 0 && next + RECORD_BYTES <= cache->end;
    uintptr_t third = is_there ? unwind_word_at(next + sizeof next) : 0;
    return &cache->ways[third / 4 % (UNWIND_ENTRY_PATHS / ALIKE) * ALIKE];
}

/* Learns the path from the record at `frame` to the one at `outermost`. */
static reads_stack void unwind_learn_way(struct unwind_cache *cache, uintptr_t first,
                                         uintptr_t frame, uintptr_t outermost)
{
    uintptr_t second = stack_plain_address(unwind_word_at(frame + sizeof frame));
    struct unwind_entry_path *way = unwind_ways_of(cache, frame);
    way[1] = way[0];
    way->first = 0;
    way->second = second;
    way->count = 0;
    for (uintptr_t at = frame; at != outermost; at = unwind_word_at(at)) {
        if (way->count == UNWIND_ENTRY_FRAMES_MAX || at > outermost)
            return;
        way->at[way->count] = (uint32_t)(at + sizeof at - frame);
        way->address[way->count++] = stack_plain_address(unwind_word_at(at + sizeof at));
    }
    way->record = (uint32_t)(outermost - frame);
    way->first = first;
}

/* Whether the return addresses on the stack are those of a path. */
static reads_stack bool unwind_is_way(const struct unwind_entry_path *way, uintptr_t first,
                                      uintptr_t frame, uintptr_t second, uintptr_t end)
{
    if (way->first != first || way->second != second || frame + way->record + RECORD_BYTES > end)
        return false;
    for (unsigned i = 1; i < way->count; i++)
        if (stack_plain_address(unwind_word_at(frame + way->at[i])) != way->address[i])
            return false;
    return true;
}

/* Goes to the caller of this library by a learned path.
 * Returns: false when no path matches. */
static reads_stack bool unwind_follow_way(struct unwind_cache *cache, uintptr_t first,
                                          uintptr_t frame, struct unwind_walker *walk)
{
    uintptr_t second = stack_plain_address(unwind_word_at(frame + sizeof frame));
    const struct unwind_entry_path *way = unwind_ways_of(cache, frame);
    if (!unwind_is_way(way, first, frame, second, cache->end) &&
        !unwind_is_way(++way, first, frame, second, cache->end))
        return false;
    uintptr_t record = frame + way->record;
    walk->frame = unwind_word_at(record);
    walk->address = stack_plain_address(unwind_word_at(record + sizeof record));
    walk->stack = record + RECORD_BYTES;
    return true;
}

/* Finds the stack from the registers of this function, and learns the path through this library. */
static no_inline struct unwind_step *unwind_walk_anew(struct unwind_cache *cache, uint32_t thread,
                                                      uintptr_t first, uintptr_t frame,
                                                      const struct unwind_object *own)
{
    struct unwind_path path;
    struct unwind_walker *walk = &path.walk;
    path.cache = cache;
    stack_take_registers(walk);
    if (!unwind_begin(&path, thread))
        return NULL;
    bool at_caller = own && unwind_walk_leave(walk, frame, first, own);
    if (!at_caller)
        stack_take_registers(walk);
    else if (walk->bounds.readable == walk->bounds.end)
        unwind_learn_way(cache, first, frame, walk->stack - RECORD_BYTES);
    struct unwind_step *step = unwind_find_step(&path);
    if (at_caller)
        return step;
    while (step && step->address != first)
        step = step->outer;
    while (own && step && step->address >= own->start && step->address < own->end)
        step = step->outer;
    return step;
}

/* Finds the stack from a caller outside of this library, on the thread's own stack. */
static no_inline struct unwind_step *unwind_walk_from(struct unwind_cache *cache, uintptr_t address,
                                                      uintptr_t stack, uintptr_t frame)
{
    struct unwind_path path;
    path.cache = cache;
    path.walk.address = address;
    path.walk.stack = stack;
    path.walk.frame = frame;
    path.walk.bounds = (struct unwind_bounds){.end = cache->end, .readable = cache->end};
    path.walk.object = NULL;
    path.walk.object_count = 0;
    return unwind_find_step(&path);
}

no_inline struct unwind_step *unwind_walk_cached(struct unwind_cache *cache, uint32_t thread,
                                                 uintptr_t first, uintptr_t frame,
                                                 const struct unwind_object *own)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    struct unwind_walker walk;
    if (unlikely(cache->thread != thread || here < cache->from || frame < here ||
                 frame + RECORD_BYTES > cache->end || own == NULL ||
                 !unwind_follow_way(cache, first, frame, &walk) ||
                 walk.address - own->start < own->end - own->start))
        return unwind_walk_anew(cache, thread, first, frame, own);
    struct unwind_step *step = unwind_find_latest(cache, &walk);
    if (likely(step && find_changed(step) == NULL))
        return step;
    return unwind_walk_from(cache, walk.address, walk.stack, walk.frame);
}
