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
#include "os/stack_rules.h"

#include <string.h>
#include <sys/auxv.h>

enum {
    REMEMBERED_SHIFT = 12,
    MAPPED_SHIFT = 7,
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

/* What is known to be mapped, by the stack's end; as above, so that halves of two are none. A
 * thread's own stack is mapped from its stack pointer to its end in any case, so that an entry of
 * an earlier stack at that place does no harm. No word of each thread's: static TLS is scarce. */
static struct {
    uint64_t check; /* atomic: end ^ from */
    uint64_t from;  /* atomic */
} mapped[1 << MAPPED_SHIFT];

struct walk {
    uintptr_t address, stack, frame;          /* of the caller that is looked at */
    uintptr_t address_at, frame_at, stack_at; /* where they were read; 0: not read */
    uintptr_t end;                            /* of the stack */
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
    size_t place = (walk->end * 0x9e3779b97f4a7c15u) >> (64 - MAPPED_SHIFT);
    uint64_t mapped_from = load_relaxed(&mapped[place].from);
    bool known = (load_relaxed(&mapped[place].check) ^ mapped_from) == walk->end;
    if (known && mapped_from <= walk->stack)
        return true;
    uintptr_t page = os_page_size();
    uintptr_t from = walk->stack & ~(page - 1);
    uintptr_t to = known ? mapped_from : (walk->end + page - 1) & ~(page - 1);
    if (to - from > STACK_MOST || !os_is_mapped((void *)from, to - from))
        return false;
    store_relaxed(&mapped[place].from, (uint64_t)from);
    store_relaxed(&mapped[place].check, (uint64_t)(walk->end ^ from));
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
    walk->stack_at = rule.step == STACK_BY_POINTER ? cfa : 0;
    walk->frame_at = 0;
    if (rule.step == STACK_BY_POINTER && !load(walk, cfa, &cfa))
        return false;
    uintptr_t frame = walk->frame;
    uintptr_t address;
    if (cfa <= walk->stack || cfa > walk->end || cfa % sizeof(uintptr_t) != 0)
        return false;
    if (rule.frame_pointer_kind != FRAME_POINTER_KEPT) {
        uintptr_t from = rule.frame_pointer_kind == FRAME_POINTER_BY_CFA ? cfa : frame;
        walk->frame_at = from + words(rule.frame_pointer);
        if (!load(walk, walk->frame_at, &frame))
            return false;
    }
    walk->address_at = cfa + words(rule.return_address);
    if (!load(walk, walk->address_at, &address))
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

/* Walks that come again. A step depends on the caller's address, stack and frame pointer alone,
 * and on the words that it reads. So where a walk comes to a caller of the walk before, with these
 * three as they were, and all words that were read from there on are what they were, the rest is
 * what it was: a load instead of a rule for each caller. Where one has changed, the walk goes on to
 * the caller out of that, and looks again. The frame pointer counts only where a step further out
 * uses it: of programs that have none it is any word. */

static reads_stack uintptr_t word_at(uintptr_t at) { return *(const volatile uintptr_t *)at; }

/* The first step outwards of `from` whose words are not what they were; OS_MEMO_STEPS: none. The
 * walk is at step `from`, so up to there only words are looked at that it would come to itself:
 * what the memo says of another stack, which may not be mapped any more, is not touched. */
static reads_stack unsigned find_changed(const struct os_stack_memo *memo, unsigned from)
{
    unsigned i = from + 1;
    for (; i < OS_MEMO_STEPS; i++) {
        const struct os_stack_step *each = &memo->steps[i];
        if (each->stack_at != 0 && word_at(each->stack_at) != each->stack)
            break; /* the others lie where it says */
        if (plain_address(word_at(each->address_at)) != each->address ||
            (each->frame_counts && each->frame_at != 0 && word_at(each->frame_at) != each->frame))
            break;
    }
    return i;
}

/* Before the steps from `joined` on come the new ones. */
static void put(struct os_stack_memo *memo, unsigned joined, unsigned count)
{
    memo->first = joined - count;
    memcpy(&memo->steps[memo->first], memo->fresh, count * sizeof memo->fresh[0]);
    for (unsigned i = joined; i-- > memo->first;) {
        struct os_stack_step *each = &memo->steps[i];
        const struct os_stack_step *outer = i + 1 < OS_MEMO_STEPS ? each + 1 : NULL;
        uint64_t hash = ((outer ? outer->hash : 1) ^ each->address) * 0x9e3779b97f4a7c15u;
        each->hash = hash ^ hash >> 29;
        each->frame_counts =
            outer && (outer->by_frame || (outer->frame_at == 0 && outer->frame_counts));
    }
}

static bool is_step(const struct os_stack_step *seen, const struct walk *walk)
{
    return seen->stack == walk->stack && seen->address == walk->address &&
           (!seen->frame_counts || seen->frame == walk->frame);
}

/* How many new steps there are until the walk comes to the memo's step *joined, or to its end,
 * OS_MEMO_STEPS; negative: the walk is not for us. `at_caller`: where it is is the first of them.
 */
static int collect(struct os_stack_memo *memo, struct walk *walk, bool at_caller, unsigned *joined)
{
    unsigned next = memo->end == walk->end ? memo->first : (unsigned)OS_MEMO_STEPS;
    struct stack_rule rule = {.step = STACK_BY_STACK};
    unsigned count = 0;
    *joined = OS_MEMO_STEPS;
    for (;; at_caller = true) {
        if (at_caller) {
            while (next < OS_MEMO_STEPS && memo->steps[next].stack < walk->stack)
                next++;
            if (next < OS_MEMO_STEPS && is_step(&memo->steps[next], walk)) {
                unsigned changed = find_changed(memo, next);
                if (changed == OS_MEMO_STEPS) {
                    *joined = next;
                    return next >= count ? (int)count : -1;
                }
                next = changed;
            }
            if (count == OS_MEMO_STEPS)
                return -1; /* deeper than it holds */
            bool by_frame =
                rule.step != STACK_BY_STACK || rule.frame_pointer_kind == FRAME_POINTER_BY_FRAME;
            memo->fresh[count++] = (struct os_stack_step){.address = walk->address,
                                                          .stack = walk->stack,
                                                          .frame = walk->frame,
                                                          .address_at = walk->address_at,
                                                          .frame_at = walk->frame_at,
                                                          .stack_at = walk->stack_at,
                                                          .by_frame = by_frame};
        }
        rule = find_rule(walk);
        if (rule.step == STACK_END)
            return (int)count;
        if (rule.step == STACK_UNKNOWN || !step(walk, rule))
            return -1;
        if (walk->address == 0)
            return (int)count;
    }
}

/* This library is compiled with frame pointers: at each lies the caller's, and above it the return
 * address. So its own frames take two loads each. That the outermost of them, whose caller is asked
 * for, is such a frame its rule says; one without between them is left out, as all of them are. */
static reads_stack bool leave_own(struct walk *walk, uintptr_t frame,
                                  const struct stack_object *own)
{
    static const struct stack_rule expected = {STACK_BY_FRAME, FRAME_POINTER_BY_CFA, 2, -1, -2};
    enum { RECORD_BYTES = 2 * sizeof frame };
    uintptr_t address = 0;
    for (;;) {
        if (frame < walk->stack || frame >= walk->end - RECORD_BYTES || frame % sizeof frame != 0)
            return false;
        walk->address = address;
        walk->stack = frame + RECORD_BYTES;
        walk->frame_at = frame;
        walk->address_at = frame + sizeof frame;
        address = plain_address(word_at(walk->address_at));
        frame = word_at(frame);
        if (address < own->start || address >= own->end)
            break;
    }
    walk->object = own;
    struct stack_rule rule = walk->address != 0 ? find_rule(walk) : (struct stack_rule){0};
    walk->address = address;
    walk->frame = frame;
    walk->stack_at = 0;
    return memcmp(&rule, &expected, sizeof rule) == 0;
}

no_inline uintptr_t stack_walk_caller(const struct stack_object *own)
{
    struct walk walk;
    walk.object = NULL;
    walk.object_count = 0;
    take_registers(&walk);
    if (!find_bounds(&walk))
        return 0;
    bool found = leave_own(&walk, (uintptr_t)__builtin_frame_address(0), own);
    return found ? walk.address : 0;
}

no_inline int stack_walk_again(struct os_stack_memo *memo, uintptr_t first,
                               const struct stack_object *own)
{
    struct walk walk;
    walk.object = NULL;
    walk.object_count = 0;
    take_registers(&walk);
    if (!find_bounds(&walk))
        return -1;
    bool at_caller = own && leave_own(&walk, (uintptr_t)__builtin_frame_address(0), own);
    if (!at_caller)
        take_registers(&walk);
    unsigned joined;
    int count = collect(memo, &walk, at_caller, &joined);
    if (count < 0) {
        memo->end = 0;
        return -1;
    }
    unsigned at = joined - (unsigned)count;
    if (count > 0 || memo->end != walk.end)
        put(memo, joined, (unsigned)count);
    memo->end = walk.end;
    if (at_caller)
        return (int)at;
    while (at < OS_MEMO_STEPS && memo->steps[at].address != first)
        at++;
    if (at == OS_MEMO_STEPS)
        return -1;
    while (own && at < OS_MEMO_STEPS && memo->steps[at].address >= own->start &&
           memo->steps[at].address < own->end)
        at++;
    return (int)at;
}
