/* Walks that come again: see stack_again.h.
 *
 * A step outwards depends on the caller's address, stack and frame pointer alone, and on the words
 * that it reads. So a step that is known, of a caller that is in all three what it was, leads where
 * it led if these words are what they were, and so on outwards: two loads and a compare for each
 * caller, without its rule. The frame pointer counts only where a step further out uses it: of
 * programs that have none it is any word.
 *
 * Steps make a tree, which grows from the outermost callers inwards: each names the next one
 * outwards, and never changes. Of several with one address and stack, which lead to different
 * callers, one is tried, that which was right the last time. Where its words are not what they
 * were, the walk goes on by rules from there, until it comes to a step that it knows, all of whose
 * words are. Those that it has passed are looked for, or made, as steps of that one. A full memo
 * forgets all.
 *
 *   outer == NULL: the caller's rule says that there is no other; else the word at outer_at is
 *   outer->address. steps[0], whose address is 0, is what is outside of the outermost caller where
 *   nothing but a return address of 0 says so.
 *
 *   checked_at, expected: where such a word leads to `outer` and no other word counts, outer_at and
 *   outer->address; else a word of ours that is something else, so that one loop of a compare a
 *   step stops there.
 *
 *   record_at, record_frame: where the frame pointer counts, too, and lies below such a word, its
 *   place and outer->frame; else as above, so that one loop of two compares a step stops there.
 *
 * The words of a step are looked at only when those of all inner ones are what they were, and so
 * the walk itself would come to them: what is known of another stack, which may not be mapped any
 * more, is not touched.
 *
 * What a memo knows of a library's callers it believes of another library at its place, as traces
 * do: the dynamic linker has no count of its changes that can be read without its lock.
 */
#include "os/stack_again.h"

#include "os/os.h"

#include <string.h>

enum { PLACE_SHIFT = 64 - 10, RECORD_BYTES = 2 * sizeof(uintptr_t) };
static_check(OS_MEMO_PLACES == 1 << (64 - PLACE_SHIFT), "places by the highest bits");
static_check(2 * OS_MEMO_DEPTH < OS_MEMO_STEPS, "a walk, and what it has passed, fit");

static reads_stack uintptr_t word_at(uintptr_t at) { return *(const volatile uintptr_t *)at; }

static uintptr_t at_words(const struct os_stack_step *step, uint32_t words)
{
    return step->stack + ((uintptr_t)words - 1) * sizeof(uintptr_t);
}

static uint32_t words_to(uintptr_t stack, uintptr_t at)
{
    return at != 0 ? (uint32_t)((at - stack) / sizeof at) + 1 : 0;
}

/* Neither loop passes the step. */
static void check_nothing(struct os_stack_step *step)
{
    step->checked_at = step->record_at = (uintptr_t)&step->address;
    step->expected = step->record_frame = ~step->address;
}

static void forget(struct os_stack_memo *memo)
{
    memset(memo->latest, 0, sizeof memo->latest);
    memset(memo->inside, 0, sizeof memo->inside);
    memo->steps[0] = (struct os_stack_step){.hash = 1};
    check_nothing(&memo->steps[0]);
    memo->used = 1;
}

static uint64_t mix(uintptr_t address, uintptr_t stack)
{
    return (address ^ stack << 20) * 0x9e3779b97f4a7c15u;
}

static uint16_t *latest_place(struct os_stack_memo *memo, uint64_t mixed)
{
    return &memo->latest[mixed >> PLACE_SHIFT];
}

static uint16_t *inside_place(struct os_stack_memo *memo, uint64_t mixed,
                              const struct os_stack_step *outer)
{
    uint64_t number = outer ? (uint64_t)(outer - memo->steps) + 1 : 0;
    return &memo->inside[(mixed ^ number * 0xc2b2ae3d27d4eb4fu) >> PLACE_SHIFT];
}

static bool is_at(const struct os_stack_step *step, const struct stack_walker *walk)
{
    return step->address == walk->address && step->stack == walk->stack &&
           (!step->frame_counts || step->frame == walk->frame);
}

/* The step that was right for such a caller the last time; NULL: none is known. */
static struct os_stack_step *find_latest(struct os_stack_memo *memo,
                                         const struct stack_walker *walk)
{
    uint64_t mixed = mix(walk->address, walk->stack);
    struct os_stack_step *step = &memo->steps[*latest_place(memo, mixed)];
    return is_at(step, walk) ? step : NULL;
}

/* Whether the step leads where it led. */
static reads_stack bool is_unchanged(const struct os_stack_step *step)
{
    const struct os_stack_step *outer = step->outer;
    if (stack_plain_address(word_at(step->outer_at)) != outer->address)
        return false;
    if (step->stack_words != 0 && word_at(at_words(step, step->stack_words)) != outer->stack)
        return false;
    return !outer->frame_counts || step->frame_words == 0 ||
           word_at(at_words(step, step->frame_words)) == outer->frame;
}

/* Along those where the frame pointer counts. */
static reads_stack no_inline struct os_stack_step *pass_frames(struct os_stack_step *step)
{
    while (likely(word_at(step->record_at) == step->record_frame &&
                  stack_plain_address(word_at(step->record_at + sizeof(uintptr_t))) ==
                      step->outer->address))
        step = step->outer;
    return step;
}

/* The first step, outwards of this one, whose words are not what they were; NULL: all are. */
inline_always reads_stack struct os_stack_step *find_changed(struct os_stack_step *step)
{
    for (;;) {
        while (likely(stack_plain_address(word_at(step->checked_at)) == step->expected))
            step = step->outer;
        if (step->outer == NULL)
            return NULL;
        struct os_stack_step *before = step;
        step = pass_frames(step);
        if (step != before)
            continue;
        if (step->checked_at == step->outer_at || !is_unchanged(step))
            return step;
        step = step->outer;
    }
}

/* The same where each page is looked at first. The other words of a step lie below `outer_at`. */
static struct os_stack_step *find_changed_paged(struct os_stack_step *step,
                                                struct stack_bounds *bounds)
{
    while (step->outer &&
           (step->outer_at < bounds->readable || stack_bounds_extend(bounds, step->outer_at)) &&
           is_unchanged(step))
        step = step->outer;
    return step->outer ? step : NULL;
}

/* A walk, and those that it has passed: the last one first, they lie before the end of the steps
 * until they are kept. */
struct going {
    struct os_stack_memo *memo;
    struct stack_walker walk;
    unsigned count;
    bool full; /* there was no room for one more */
};

/* The caller that the walk is at; NULL: no room. */
static struct os_stack_step *pass(struct going *going)
{
    unsigned place = OS_MEMO_STEPS - 1 - going->count;
    going->full = place < going->memo->used;
    if (going->full || going->count == OS_MEMO_DEPTH)
        return NULL;
    going->count++;
    struct os_stack_step *passed = &going->memo->steps[place];
    passed->address = going->walk.address;
    passed->stack = going->walk.stack;
    passed->frame = going->walk.frame;
    return passed;
}

/* Along what is known, from `step` on to `last`, whose own step has to be found out. */
static bool go_along(struct going *going, const struct os_stack_step *step,
                     const struct os_stack_step *last)
{
    struct stack_walker *walk = &going->walk;
    for (; step != last; step = step->outer) {
        struct os_stack_step *passed = pass(going);
        if (passed == NULL)
            return false;
        passed->outer_at = step->outer_at;
        passed->frame_words = step->frame_words;
        passed->stack_words = step->stack_words;
        passed->by_frame = step->by_frame;
        if (step->frame_words != 0)
            walk->frame = word_at(at_words(step, step->frame_words));
        walk->address = step->outer->address;
        walk->stack = step->outer->stack;
    }
    return true;
}

/* One step by its rule. */
static enum stack_went go_out(struct going *going)
{
    struct stack_walker *walk = &going->walk;
    struct os_stack_step *passed = pass(going);
    if (passed == NULL)
        return STACK_LOST;
    enum stack_went went = stack_walk_out(walk);
    bool gone = went == STACK_WENT;
    if (gone && (walk->frame_at > walk->address_at || walk->stack_at > walk->address_at))
        return STACK_LOST; /* see find_changed */
    passed->outer_at = gone ? walk->address_at : 0;
    passed->frame_words = gone ? words_to(passed->stack, walk->frame_at) : 0;
    passed->stack_words = gone ? words_to(passed->stack, walk->stack_at) : 0;
    passed->by_frame = gone && walk->by_frame;
    return went;
}

static const struct os_stack_step *first_changed(struct going *going, struct os_stack_step *step)
{
    struct stack_bounds *bounds = &going->walk.bounds;
    return bounds->readable == bounds->end ? find_changed(step) : find_changed_paged(step, bounds);
}

/* Outwards to a step that is known, all of whose words are what they were, or to the end. False:
 * the walk is not for us. */
static bool find_joined(struct going *going, struct os_stack_step **joined)
{
    struct stack_walker *walk = &going->walk;
    for (;;) {
        struct os_stack_step *step = find_latest(going->memo, walk);
        *joined = step;
        if (step) {
            const struct os_stack_step *changed = first_changed(going, step);
            if (changed == NULL)
                return true;
            if (!go_along(going, step, changed))
                return false;
        }
        enum stack_went went = go_out(going);
        if (went == STACK_LOST)
            return false;
        *joined = went == STACK_WENT ? &going->memo->steps[0] : NULL;
        if (went == STACK_ENDED || walk->address == 0)
            return true;
    }
}

static bool is_inside(const struct os_stack_step *step, const struct os_stack_step *passed,
                      const struct os_stack_step *outer)
{
    return step->address == passed->address && step->stack == passed->stack &&
           step->outer == outer && step->outer_at == passed->outer_at &&
           step->frame_words == passed->frame_words &&
           (!step->frame_counts || step->frame == passed->frame);
}

static struct os_stack_step *make_inside(struct os_stack_memo *memo,
                                         const struct os_stack_step *passed,
                                         struct os_stack_step *outer)
{
    struct os_stack_step *step = &memo->steps[memo->used++];
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
    check_nothing(step);
    if (is_plain && !frame_checked) {
        step->checked_at = step->outer_at;
        step->expected = outer->address;
    } else if (is_plain && at_words(step, step->frame_words + 1) == step->outer_at) {
        step->record_at = at_words(step, step->frame_words);
        step->record_frame = outer->frame;
    }
    return step;
}

/* The steps that were passed become ones of `outer`. NULL: they are too many together. */
static struct os_stack_step *keep(struct going *going, struct os_stack_step *outer)
{
    struct os_stack_memo *memo = going->memo;
    for (unsigned i = going->count; i-- > 0;) {
        const struct os_stack_step *passed = &memo->steps[OS_MEMO_STEPS - 1 - i];
        uint64_t mixed = mix(passed->address, passed->stack);
        uint16_t *place = inside_place(memo, mixed, outer);
        struct os_stack_step *step = &memo->steps[*place];
        if (!is_inside(step, passed, outer)) {
            if (outer && outer->depth == OS_MEMO_DEPTH)
                return NULL;
            step = make_inside(memo, passed, outer);
            *place = (uint16_t)(step - memo->steps);
        }
        *latest_place(memo, mixed) = (uint16_t)(step - memo->steps);
        outer = step;
    }
    return outer;
}

/* The step of the caller that the walk is at. */
static struct os_stack_step *find_step(struct going *going)
{
    struct os_stack_memo *memo = going->memo;
    going->full = false;
    const uintptr_t address = going->walk.address;
    const uintptr_t stack = going->walk.stack;
    const uintptr_t frame = going->walk.frame;
    for (;;) {
        struct os_stack_step *joined;
        going->count = 0;
        bool found = find_joined(going, &joined);
        if (found && going->count == 0)
            return joined;
        bool full = going->full || memo->used + 2 * going->count > OS_MEMO_STEPS;
        if (found && !full)
            return keep(going, joined);
        if (!full || memo->used == 1)
            return NULL;
        forget(memo);
        going->walk.address = address;
        going->walk.stack = stack;
        going->walk.frame = frame;
    }
}

/* All words of a thread's own steps lie below the end of its stack; another thread's steps may
 * have lain there. */
static bool begin(struct going *going, uint32_t thread)
{
    struct os_stack_memo *memo = going->memo;
    struct stack_walker *walk = &going->walk;
    if (!stack_walk_begin(walk))
        return false;
    bool is_own = walk->bounds.readable == walk->bounds.end;
    if (memo->used == 0 || (is_own && memo->end != walk->bounds.end))
        forget(memo);
    if (is_own) {
        memo->thread = thread;
        memo->from = thread != 0 ? walk->stack : UINTPTR_MAX;
        memo->end = walk->bounds.end;
    }
    return true;
}

/* Ways through this library, from the first frame's record to the outermost one's. Its functions
 * have frames of one size at each place of their code, since none has an array of variable length
 * (-Wvla). So where all return addresses are those of a way, it is the way. It is looked for by
 * the third address, since all begin with one of a few. Two ways stand side by side: a new one
 * takes the place of that which was learned before the other. */
enum { ALIKE = 2 };
static reads_stack struct os_stack_way *ways_of(struct os_stack_memo *memo, uintptr_t frame)
{
    uintptr_t next = word_at(frame);
    bool is_there = next > frame && next % sizeof next == 0 && next + RECORD_BYTES <= memo->end;
    uintptr_t third = is_there ? word_at(next + sizeof next) : 0;
    return &memo->ways[third / 4 % (OS_MEMO_WAYS / ALIKE) * ALIKE];
}

static reads_stack void learn_way(struct os_stack_memo *memo, uintptr_t first, uintptr_t frame,
                                  uintptr_t outermost)
{
    uintptr_t second = stack_plain_address(word_at(frame + sizeof frame));
    struct os_stack_way *way = ways_of(memo, frame);
    way[1] = way[0];
    way->first = 0;
    way->second = second;
    way->count = 0;
    for (uintptr_t at = frame; at != outermost; at = word_at(at)) {
        if (way->count == OS_WAY_MOST || at > outermost)
            return;
        way->at[way->count] = (uint32_t)(at + sizeof at - frame);
        way->address[way->count++] = stack_plain_address(word_at(at + sizeof at));
    }
    way->record = (uint32_t)(outermost - frame);
    way->first = first;
}

static reads_stack bool is_way(const struct os_stack_way *way, uintptr_t first, uintptr_t frame,
                               uintptr_t second, uintptr_t end)
{
    if (way->first != first || way->second != second || frame + way->record + RECORD_BYTES > end)
        return false;
    for (unsigned i = 1; i < way->count; i++)
        if (stack_plain_address(word_at(frame + way->at[i])) != way->address[i])
            return false;
    return true;
}

static reads_stack bool follow_way(struct os_stack_memo *memo, uintptr_t first, uintptr_t frame,
                                   struct stack_walker *walk)
{
    uintptr_t second = stack_plain_address(word_at(frame + sizeof frame));
    const struct os_stack_way *way = ways_of(memo, frame);
    if (!is_way(way, first, frame, second, memo->end) &&
        !is_way(++way, first, frame, second, memo->end))
        return false;
    uintptr_t record = frame + way->record;
    walk->frame = word_at(record);
    walk->address = stack_plain_address(word_at(record + sizeof record));
    walk->stack = record + RECORD_BYTES;
    return true;
}

static no_inline struct os_stack_step *walk_anew(struct os_stack_memo *memo, uint32_t thread,
                                                 uintptr_t first, uintptr_t frame,
                                                 const struct stack_object *own)
{
    struct going going;
    struct stack_walker *walk = &going.walk;
    going.memo = memo;
    stack_take_registers(walk);
    if (!begin(&going, thread))
        return NULL;
    bool at_caller = own && stack_walk_leave(walk, frame, first, own);
    if (!at_caller)
        stack_take_registers(walk);
    else if (walk->bounds.readable == walk->bounds.end)
        learn_way(memo, first, frame, walk->stack - RECORD_BYTES);
    struct os_stack_step *step = find_step(&going);
    if (at_caller)
        return step;
    while (step && step->address != first)
        step = step->outer;
    while (own && step && step->address >= own->start && step->address < own->end)
        step = step->outer;
    return step;
}

/* From a caller of whom this library's frames were left; the stack is the thread's own. */
static no_inline struct os_stack_step *walk_from(struct os_stack_memo *memo, uintptr_t address,
                                                 uintptr_t stack, uintptr_t frame)
{
    struct going going;
    going.memo = memo;
    going.walk.address = address;
    going.walk.stack = stack;
    going.walk.frame = frame;
    going.walk.bounds = (struct stack_bounds){.end = memo->end, .readable = memo->end};
    going.walk.object = NULL;
    going.walk.object_count = 0;
    return find_step(&going);
}

no_inline struct os_stack_step *stack_walk_again(struct os_stack_memo *memo, uint32_t thread,
                                                 uintptr_t first, uintptr_t frame,
                                                 const struct stack_object *own)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    struct stack_walker walk;
    if (unlikely(memo->thread != thread || here < memo->from || frame < here ||
                 frame + RECORD_BYTES > memo->end || own == NULL ||
                 !follow_way(memo, first, frame, &walk) ||
                 walk.address - own->start < own->end - own->start))
        return walk_anew(memo, thread, first, frame, own);
    struct os_stack_step *step = find_latest(memo, &walk);
    if (likely(step && find_changed(step) == NULL))
        return step;
    return walk_from(memo, walk.address, walk.stack, walk.frame);
}
