/* The walk, and the rules that it remembers: see stack_walk.h.
 *
 * Remembered: a table of rules by return address, each in two words, key and rule. The first is
 * stored as key ^ rule, so that two halves of different writers are no entry of either (Hyatt and
 * Mann, "A lock-less transposition table implementation for parallel search", 2002). The key is
 * mixed of the address and the object's tag; so what was learned of a library that has been
 * unloaded is not believed of another one at its place.
 */
#include "os/stack_walk.h"

#include "base/atomic.h"
#include "os/stack_rules.h"

#include <string.h>

enum { REMEMBERED_SHIFT = 12 };

static struct {
    uint64_t check; /* atomic: key ^ rule */
    uint64_t rule;  /* atomic */
} remembered[1 << REMEMBERED_SHIFT];

static bool find_object(struct stack_walker *walk)
{
    uintptr_t address = walk->address - 1;
    walk->object = &stack_program;
    if (address - stack_program.start < stack_program.end - stack_program.start)
        return true;
    for (unsigned i = 0; i < walk->object_count; i++) {
        walk->object = &walk->objects[i];
        if (address >= walk->object->start && address < walk->object->end)
            return true;
    }
    struct stack_object *place = &walk->objects[walk->object_count % STACK_OBJECTS_MOST];
    if (!stack_object_of(address, place))
        return false;
    if (walk->object_count < STACK_OBJECTS_MOST)
        walk->object_count++;
    walk->object = place;
    return true;
}

static struct stack_rule find_rule(struct stack_walker *walk)
{
    struct stack_rule rule = {.step = STACK_UNKNOWN};
    const struct stack_object *object = walk->object;
    if (object == NULL || walk->address - 1 < object->start || walk->address > object->end)
        if (!find_object(walk))
            return rule;
    uint64_t key = (walk->address ^ walk->object->tag) * 0x9e3779b97f4a7c15u;
    size_t place = key >> (64 - REMEMBERED_SHIFT);
    uint64_t word = load_relaxed(&remembered[place].rule);
    if (likely((load_relaxed(&remembered[place].check) ^ word) == key)) {
        memcpy(&rule, &word, sizeof rule);
        return rule;
    }
    rule = stack_rule_of(walk->address, walk->object);
    memcpy(&word, &rule, sizeof word);
    store_relaxed(&remembered[place].rule, word);
    store_relaxed(&remembered[place].check, key ^ word);
    return rule;
}

/* False. What lies elsewhere may be another stack, which the C runtime goes on with, or nothing. */
static bool look_elsewhere(struct stack_walker *walk, uintptr_t at)
{
    walk->bounds.at_hole = walk->bounds.at_hole || at % sizeof at != 0 ||
                           stack_bounds_is_hole(&walk->bounds, at);
    return false;
}

/* A word of the stack. False: it lies elsewhere. */
static reads_stack bool load(struct stack_walker *walk, uintptr_t at, uintptr_t *word)
{
    if (at < walk->stack || at % sizeof *word != 0)
        return look_elsewhere(walk, at);
    if (unlikely(at >= walk->bounds.readable) && !stack_bounds_extend(&walk->bounds, at))
        return look_elsewhere(walk, at);
    *word = *(const volatile uintptr_t *)at;
    return true;
}

static uintptr_t words(int64_t count) { return (uintptr_t)(count * (int64_t)sizeof(uintptr_t)); }

/* To the caller's caller. */
static bool step(struct stack_walker *walk, struct stack_rule rule)
{
    uintptr_t cfa = (rule.step == STACK_BY_STACK ? walk->stack : walk->frame) + words(rule.cfa);
    walk->stack_at = rule.step == STACK_BY_POINTER ? cfa : 0;
    walk->frame_at = 0;
    if (rule.step == STACK_BY_POINTER && !load(walk, cfa, &cfa))
        return false;
    uintptr_t frame = walk->frame;
    uintptr_t address;
    if (cfa <= walk->stack || cfa > walk->bounds.end || cfa % sizeof(uintptr_t) != 0)
        return look_elsewhere(walk, cfa + words(rule.return_address));
    if (rule.frame_pointer_kind != FRAME_POINTER_KEPT) {
        uintptr_t from = rule.frame_pointer_kind == FRAME_POINTER_BY_CFA ? cfa : frame;
        walk->frame_at = from + words(rule.frame_pointer);
        if (!load(walk, walk->frame_at, &frame))
            return false;
    }
    walk->address_at = cfa + words(rule.return_address);
    if (!load(walk, walk->address_at, &address))
        return false;
    walk->by_frame =
        rule.step != STACK_BY_STACK || rule.frame_pointer_kind == FRAME_POINTER_BY_FRAME;
    walk->address = stack_plain_address(address);
    walk->stack = cfa;
    walk->frame = frame;
    return true;
}

enum stack_went stack_walk_out(struct stack_walker *walk)
{
    struct stack_rule rule = find_rule(walk);
    if (rule.step == STACK_END)
        return STACK_ENDED;
    walk->bounds.at_hole = false;
    if (rule.step != STACK_UNKNOWN && step(walk, rule))
        return STACK_WENT;
    return walk->bounds.at_hole ? STACK_ENDED : STACK_LOST;
}

no_inline int stack_walk(uintptr_t *frames, unsigned capacity, uintptr_t first, uintptr_t own,
                         uintptr_t own_end)
{
    struct stack_walker walk;
    stack_take_registers(&walk);
    if (!stack_walk_begin(&walk))
        return -1;
    unsigned count = 0;
    bool begun = false;
    bool outside = false;
    while (count < capacity) {
        enum stack_went went = stack_walk_out(&walk);
        if (went == STACK_LOST)
            return -1;
        if (went == STACK_ENDED || walk.address == 0)
            break;
        begun = begun || walk.address == first;
        outside = outside || (begun && (walk.address < own || walk.address >= own_end));
        if (outside)
            frames[count++] = walk.address;
    }
    return begun ? (int)count : -1;
}

/* A return address of this library's whose rule says that its function has such a frame. */
static bool has_record(struct stack_walker *walk, const struct stack_object *own)
{
    static const struct stack_rule expected = {STACK_BY_FRAME, FRAME_POINTER_BY_CFA, 2, -1, -2};
    static uintptr_t known[8]; /* atomic */
    uintptr_t *place = &known[walk->address / 4 % (sizeof known / sizeof known[0])];
    if (likely(load_relaxed(place) == walk->address))
        return true;
    walk->object = own;
    struct stack_rule rule = find_rule(walk);
    if (memcmp(&rule, &expected, sizeof rule) != 0)
        return false;
    store_relaxed(place, walk->address);
    return true;
}

/* This library is compiled with frame pointers: at each lies the caller's, and above it the return
 * address. So its own frames take two loads each. That the outermost of them, whose caller is asked
 * for, is such a frame its rule says; one without between them is left out, as all of them are. */
reads_stack bool stack_walk_leave(struct stack_walker *walk, uintptr_t frame, uintptr_t address,
                                  const struct stack_object *own)
{
    enum { RECORD_BYTES = 2 * sizeof frame, FRAME_MOST = 64 << 10 };
    const uintptr_t start = own->start;
    const uintptr_t own_bytes = own->end - start;
    uintptr_t inner = walk->stack;
    uintptr_t next = frame;
    walk->address = address;
    if (address != 0 && !has_record(walk, own))
        return false; /* then this is no frame of it */
    do {
        frame = next;
        if (frame - inner >= FRAME_MOST || frame % sizeof frame != 0 ||
            (unlikely(frame + sizeof frame >= walk->bounds.readable) &&
             !stack_bounds_extend(&walk->bounds, frame + sizeof frame)))
            return false;
        inner = frame + RECORD_BYTES;
        walk->address = address;
        address = stack_plain_address(((const volatile uintptr_t *)frame)[1]);
        next = *(const volatile uintptr_t *)frame;
    } while (address - start < own_bytes);
    if (walk->address == 0 || !has_record(walk, own))
        return false;
    walk->address = address;
    walk->stack = inner;
    walk->frame = next;
    return true;
}

no_inline uintptr_t stack_walk_caller(const struct stack_object *own)
{
    struct stack_walker walk;
    stack_take_registers(&walk);
    if (!stack_walk_begin(&walk))
        return 0;
    bool found = stack_walk_leave(&walk, (uintptr_t)__builtin_frame_address(0), 0, own);
    return found ? walk.address : 0;
}
