/* The walk and its table of remembered rules: see unwind_walk.h.
 *
 * The table is indexed by return address; an entry has two words, key and rule. The first is
 * stored as key ^ rule, so that words of two writers are no valid entry together (Hyatt and
 * Mann, "A lock-less transposition table implementation for parallel search", 2002). The key is
 * mixed of the address and the tag of the object, so a rule of a library that was unloaded does
 * not match another one at its place.
 */
#include "unwind/unwind_walk.h"

#include "base/atomic.h"
#include "unwind/unwind_rules.h"

#include <string.h>

enum { REMEMBERED_SHIFT = 12 };

static struct {
    uint64_t check; /* atomic: key ^ rule */
    uint64_t rule;  /* atomic: struct unwind_rule as a word */
} remembered[1 << REMEMBERED_SHIFT];

/* Finds the object of the current caller.
 * Returns: false when it is not known. */
static bool unwind_find_object(struct unwind_walker *walk)
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
    struct unwind_object *place = &walk->objects[walk->object_count % UNWIND_OBJECTS_MAX];
    if (!unwind_object_of(address, place))
        return false;
    if (walk->object_count < UNWIND_OBJECTS_MAX)
        walk->object_count++;
    walk->object = place;
    return true;
}

/* The rule for the current caller, remembered or computed. */
static struct unwind_rule unwind_find_rule(struct unwind_walker *walk)
{
    struct unwind_rule rule = {.step = UNWIND_UNKNOWN};
    const struct unwind_object *object = walk->object;
    if (object == NULL || walk->address - 1 < object->start || walk->address > object->end)
        if (!unwind_find_object(walk))
            return rule;
    uint64_t key = (walk->address ^ walk->object->tag) * 0x9e3779b97f4a7c15u;
    size_t place = key >> (64 - REMEMBERED_SHIFT);
    uint64_t word = load_relaxed(&remembered[place].rule);
    if (likely((load_relaxed(&remembered[place].check) ^ word) == key)) {
        memcpy(&rule, &word, sizeof rule);
        return rule;
    }
    rule = unwind_rule_of(walk->address, walk->object);
    memcpy(&word, &rule, sizeof word);
    store_relaxed(&remembered[place].rule, word);
    store_relaxed(&remembered[place].check, key ^ word);
    return rule;
}

/* Notes whether the needed address is unreadable. If it is readable, it may be on another stack,
 * where the C runtime can continue.
 * Returns: false. */
static bool unwind_look_elsewhere(struct unwind_walker *walk, uintptr_t at)
{
    walk->bounds.at_hole =
        walk->bounds.at_hole || at % sizeof at != 0 || unwind_bounds_is_hole(&walk->bounds, at);
    return false;
}

/* Reads a word of the stack.
 * Returns: false when it is not within the bounds. */
static reads_stack bool unwind_load(struct unwind_walker *walk, uintptr_t at, uintptr_t *word)
{
    if (at < walk->stack || at % sizeof *word != 0)
        return unwind_look_elsewhere(walk, at);
    if (unlikely(at >= walk->bounds.readable) && !unwind_bounds_extend(&walk->bounds, at))
        return unwind_look_elsewhere(walk, at);
    *word = *(const volatile uintptr_t *)at;
    return true;
}

static uintptr_t unwind_words(int64_t count)
{
    return (uintptr_t)(count * (int64_t)sizeof(uintptr_t));
}

/* Goes one step outwards by a rule.
 * Returns: false when a needed word is not within the bounds. */
static bool unwind_step(struct unwind_walker *walk, struct unwind_rule rule)
{
    uintptr_t cfa =
        (rule.step == UNWIND_BY_STACK ? walk->stack : walk->frame) + unwind_words(rule.cfa);
    walk->stack_at = rule.step == UNWIND_BY_POINTER ? cfa : 0;
    walk->frame_at = 0;
    if (rule.step == UNWIND_BY_POINTER && !unwind_load(walk, cfa, &cfa))
        return false;
    uintptr_t frame = walk->frame;
    uintptr_t address;
    if (cfa <= walk->stack || cfa > walk->bounds.end || cfa % sizeof(uintptr_t) != 0)
        return unwind_look_elsewhere(walk, cfa + unwind_words(rule.return_address));
    if (rule.frame_pointer_kind != FRAME_POINTER_KEPT) {
        uintptr_t from = rule.frame_pointer_kind == FRAME_POINTER_BY_CFA ? cfa : frame;
        walk->frame_at = from + unwind_words(rule.frame_pointer);
        if (!unwind_load(walk, walk->frame_at, &frame))
            return false;
    }
    walk->address_at = cfa + unwind_words(rule.return_address);
    if (!unwind_load(walk, walk->address_at, &address))
        return false;
    walk->by_frame =
        rule.step != UNWIND_BY_STACK || rule.frame_pointer_kind == FRAME_POINTER_BY_FRAME;
    walk->address = stack_plain_address(address);
    walk->stack = cfa;
    walk->frame = frame;
    return true;
}

enum unwind_went unwind_walk_out(struct unwind_walker *walk)
{
    struct unwind_rule rule = unwind_find_rule(walk);
    if (rule.step == UNWIND_END)
        return UNWIND_ENDED;
    walk->bounds.at_hole = false;
    if (rule.step != UNWIND_UNKNOWN && unwind_step(walk, rule))
        return UNWIND_WENT;
    return walk->bounds.at_hole ? UNWIND_ENDED : UNWIND_LOST;
}

no_inline int unwind_walk(uintptr_t *frames, unsigned capacity, uintptr_t first, uintptr_t own,
                          uintptr_t own_end)
{
    struct unwind_walker walk;
    stack_take_registers(&walk);
    if (!unwind_walk_begin(&walk))
        return -1;
    unsigned count = 0;
    bool begun = false;
    bool outside = false;
    while (count < capacity) {
        enum unwind_went went = unwind_walk_out(&walk);
        if (went == UNWIND_LOST)
            return -1;
        if (went == UNWIND_ENDED || walk.address == 0)
            break;
        begun = begun || walk.address == first;
        outside = outside || (begun && (walk.address < own || walk.address >= own_end));
        if (outside)
            frames[count++] = walk.address;
    }
    return begun ? (int)count : -1;
}

/* Whether the function of the current return address, in this library, has a frame with frame
 * pointer and return address at the usual places, by its rule. */
static bool unwind_has_record(struct unwind_walker *walk, const struct unwind_object *own)
{
    static const struct unwind_rule expected = {UNWIND_BY_FRAME, FRAME_POINTER_BY_CFA, 2, -1, -2};
    static uintptr_t known[8]; /* atomic: return addresses for which this is true */
    uintptr_t *place = &known[walk->address / 4 % (sizeof known / sizeof known[0])];
    if (likely(load_relaxed(place) == walk->address))
        return true;
    walk->object = own;
    struct unwind_rule rule = unwind_find_rule(walk);
    if (memcmp(&rule, &expected, sizeof rule) != 0)
        return false;
    store_relaxed(place, walk->address);
    return true;
}

/* This library is compiled with frame pointers: each points to the caller's frame pointer, with
 * the return address above it. So each of its frames takes two loads. Only the outermost frame,
 * whose caller is wanted, and the first one are checked by their rules. A frame without frame
 * pointer between them is left out, as all these frames are. */
reads_stack bool unwind_walk_leave(struct unwind_walker *walk, uintptr_t frame, uintptr_t address,
                                   const struct unwind_object *own)
{
    enum { RECORD_BYTES = 2 * sizeof frame, FRAME_MAX = 64 << 10 };
    const uintptr_t start = own->start;
    const uintptr_t own_bytes = own->end - start;
    uintptr_t inner = walk->stack;
    uintptr_t next = frame;
    walk->address = address;
    if (address != 0 && !unwind_has_record(walk, own))
        return false; /* `frame` does not belong to this function then */
    do {
        frame = next;
        if (frame - inner >= FRAME_MAX || frame % sizeof frame != 0 ||
            (unlikely(frame + sizeof frame >= walk->bounds.readable) &&
             !unwind_bounds_extend(&walk->bounds, frame + sizeof frame)))
            return false;
        inner = frame + RECORD_BYTES;
        walk->address = address;
        address = stack_plain_address(((const volatile uintptr_t *)frame)[1]);
        next = *(const volatile uintptr_t *)frame;
    } while (address - start < own_bytes);
    if (walk->address == 0 || !unwind_has_record(walk, own))
        return false;
    walk->address = address;
    walk->stack = inner;
    walk->frame = next;
    return true;
}
