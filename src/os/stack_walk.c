/* The walk, and what it remembers: see stack_walk.h.
 *
 * Remembered: a table of rules by return address, each in two words, key and rule. The first is
 * stored as key ^ rule, so that two halves of different writers are no entry of either (Hyatt and
 * Mann, "A lock-less transposition table implementation for parallel search", 2002). The key is
 * mixed of the address and the object's tag; so what was learned of a library that has been
 * unloaded is not believed of another one at its place.
 *
 * Bounds: a thread's stack ends below its thread pointer; the first thread's ends below the random
 * bytes that the kernel left there. Which of the two lies nearest above the stack pointer is the
 * end; what lies between is looked at once, and again where the stack has grown: all of it has to
 * be mapped. A program's own stack in other memory (coroutines) has such an end by chance only; the
 * C runtime walks it if not.
 */
#include "os/stack_walk.h"

#include "base/atomic.h"
#include "os/os.h"

#include <string.h>
#include <sys/auxv.h>

enum {
    REMEMBERED_SHIFT = 12,
    OBJECTS_MOST = 8,      /* of one walk, remembered during it */
    STACK_MOST = 64 << 20, /* looked at in one go */
};

#if __has_attribute(no_sanitize)
#define reads_stack __attribute__((no_sanitize("address"), no_sanitize("thread")))
#else
#define reads_stack
#endif

static struct {
    uint64_t check; /* atomic: key ^ rule */
    uint64_t rule;  /* atomic */
} remembered[1 << REMEMBERED_SHIFT];

static uintptr_t first_stack_end; /* const after stack_walk_prepare */

/* This thread's: what is known to be mapped. The second is 0 while the first changes. */
static thread_local_word uintptr_t mapped_from;
static thread_local_word uintptr_t mapped_to;

struct walk {
    uintptr_t address, stack, frame; /* of the caller that is looked at */
    uintptr_t end;                   /* of the stack */
    const struct stack_object *object;
    struct stack_object objects[OBJECTS_MOST];
    unsigned object_count;
};

void stack_walk_prepare(void) { first_stack_end = getauxval(AT_RANDOM); }

static uintptr_t end_of_stack(uintptr_t stack)
{
    uintptr_t thread = thread_identity();
    bool in_thread = stack < thread;
    bool in_first = stack < first_stack_end;
    if (in_thread && in_first)
        return thread < first_stack_end ? thread : first_stack_end;
    return in_thread ? thread : in_first ? first_stack_end : 0;
}

static bool find_bounds(struct walk *walk)
{
    walk->end = end_of_stack(walk->stack) & ~(uintptr_t)(sizeof(uintptr_t) - 1);
    if (walk->end == 0)
        return false;
    bool known = mapped_to == walk->end;
    if (known && mapped_from <= walk->stack)
        return true;
    uintptr_t page = os_page_size();
    uintptr_t from = walk->stack & ~(page - 1);
    uintptr_t to = known ? mapped_from : (walk->end + page - 1) & ~(page - 1);
    if (to - from > STACK_MOST || !os_is_mapped((void *)from, to - from))
        return false;
    *(volatile uintptr_t *)&mapped_to = 0;
    *(volatile uintptr_t *)&mapped_from = from;
    *(volatile uintptr_t *)&mapped_to = walk->end;
    return true;
}

static bool find_object(struct walk *walk)
{
    uintptr_t address = walk->address - 1;
    for (unsigned i = 0; i < walk->object_count; i++) {
        walk->object = &walk->objects[i];
        if (address >= walk->object->start && address < walk->object->end)
            return true;
    }
    struct stack_object *place = &walk->objects[walk->object_count % OBJECTS_MOST];
    if (!stack_object_of(address, place))
        return false;
    if (walk->object_count < OBJECTS_MOST)
        walk->object_count++;
    walk->object = place;
    return true;
}

static struct stack_rule find_rule(struct walk *walk)
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

/* A word of the stack. False: it lies elsewhere. */
static reads_stack bool load(const struct walk *walk, uintptr_t at, uintptr_t *word)
{
    if (at < walk->stack || at >= walk->end || at % sizeof *word != 0)
        return false;
    *word = *(const volatile uintptr_t *)at;
    return true;
}

/* aarch64 may have signed it, in the bits above an address. */
static uintptr_t plain_address(uintptr_t address)
{
#if defined(__aarch64__)
    register uintptr_t x30 __asm__("x30") = address;
    __asm__("hint #7" : "+r"(x30)); /* xpaclri */
    address = x30;
#endif
    return address;
}

static uintptr_t words(int64_t count) { return (uintptr_t)(count * (int64_t)sizeof(uintptr_t)); }

/* To the caller's caller. */
static bool step(struct walk *walk, struct stack_rule rule)
{
    uintptr_t cfa = (rule.step == STACK_BY_STACK ? walk->stack : walk->frame) + words(rule.cfa);
    if (rule.step == STACK_BY_POINTER && !load(walk, cfa, &cfa))
        return false;
    uintptr_t frame = walk->frame;
    uintptr_t address;
    if (cfa <= walk->stack || cfa > walk->end || cfa % sizeof(uintptr_t) != 0)
        return false;
    if (rule.frame_pointer_kind != FRAME_POINTER_KEPT) {
        uintptr_t from = rule.frame_pointer_kind == FRAME_POINTER_BY_CFA ? cfa : frame;
        if (!load(walk, from + words(rule.frame_pointer), &frame))
            return false;
    }
    if (!load(walk, cfa + words(rule.return_address), &address))
        return false;
    walk->address = plain_address(address);
    walk->stack = cfa;
    walk->frame = frame;
    return true;
}

/* The registers here, all at one place of the code. */
#if defined(__x86_64__)
#define take_registers(walk)                                                                       \
    __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"                          \
                     : "=&r"((walk)->address), "=&r"((walk)->stack), "=&r"((walk)->frame))
#else
#define take_registers(walk)                                                                       \
    __asm__ volatile("adr %0, .+4\n\tmov %1, sp\n\tmov %2, x29"                                    \
                     : "=&r"((walk)->address), "=&r"((walk)->stack), "=&r"((walk)->frame))
#endif

no_inline int stack_walk(uintptr_t *frames, unsigned capacity, uintptr_t first, uintptr_t own,
                         uintptr_t own_end)
{
    struct walk walk;
    walk.object = NULL;
    walk.object_count = 0;
    take_registers(&walk);
    if (!find_bounds(&walk))
        return -1;
    unsigned count = 0;
    bool begun = false;
    bool outside = false;
    while (count < capacity) {
        struct stack_rule rule = find_rule(&walk);
        if (rule.step == STACK_END)
            break;
        if (rule.step == STACK_UNKNOWN || !step(&walk, rule))
            return -1;
        if (walk.address == 0)
            break;
        begun = begun || walk.address == first;
        outside = outside || (begun && (walk.address < own || walk.address >= own_end));
        if (outside)
            frames[count++] = walk.address;
    }
    return begun ? (int)count : -1;
}
