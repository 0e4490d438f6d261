/* The stacks of a trace: see trace_stacks.h. */
#include "watch/trace_stacks.h"

#include "base/alone.h"
#include "base/bits.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/trace_encode.h"
#include "watch/trace_file.h"
#include "watch/trace_modules.h"

#include <errno.h>

enum { TABLE_SHIFT = 17, TABLE_COUNT = 1 << TABLE_SHIFT, SET = 8, STACK_LANES = 4 };
enum { HASH_FREE, HASH_BUSY }; /* other values are hashes */

struct entry {
    uint64_t hash;   /* atomic: see trace_stacks.h */
    uint64_t number; /* atomic: likewise */
};

static struct entry *table; /* const after trace_stacks_make */
static uint32_t count;      /* atomic */
static struct stack_lane {
    uint32_t held; /* atomic: 1 while somebody has it */
    struct stack_encoder encoder;
} lanes[STACK_LANES];

/* What is known of each thread's stacks. Two threads of one memo take turns; one that finds it
 * held, or a handler that has interrupted its holder, walks anew. */
enum { MEMOS = 64 };
static struct memo {
    uint32_t held; /* atomic: 1 while somebody has it */
    struct os_stack_memo stack;
} *memos; /* const after trace_stacks_make */

int trace_stacks_make(void)
{
    if (table == NULL)
        table = os_map(TABLE_COUNT * sizeof *table);
    if (memos == NULL)
        memos = os_map(align_up(MEMOS * sizeof *memos, os_page_size()));
    return table && memos ? 0 : -ENOMEM;
}

void trace_stacks_forget(void)
{
    (void)os_purge(table, TABLE_COUNT * sizeof *table);
    store_relaxed(&count, 0u);
    for (unsigned i = 0; i < STACK_LANES; i++) {
        trace_file_unmap(lanes[i].encoder.chunk);
        lanes[i].encoder.chunk = NULL;
        store_relaxed(&lanes[i].held, 0u);
    }
    for (unsigned i = 0; i < MEMOS; i++) {
        memos[i].stack.end = 0; /* it may be half changed */
        memos[i].stack.used = 0;
        store_relaxed(&memos[i].held, 0u);
    }
}

uint32_t trace_stacks_count(void) { return load_relaxed(&count); }

/* No state of an entry. */
static uint64_t plain_hash(uint64_t hash) { return hash > HASH_BUSY ? hash : hash + 2; }

static uint64_t hash_of(const uintptr_t *frames, unsigned depth)
{
    uint64_t hash = depth;
    for (unsigned i = 0; i < depth; i++) {
        hash = (hash ^ frames[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return plain_hash(hash);
}

static struct entry *set_of(uint64_t hash)
{
    return &table[(hash >> (64 - TABLE_SHIFT)) & ~(uint64_t)(SET - 1)];
}

/* 0: it has none. */
static uint32_t find(uint64_t hash)
{
    struct entry *set = set_of(hash);
    for (unsigned i = 0; i < SET; i++) {
        uint64_t seen = load_acquire(&set[i].hash); /* pairs with keep */
        if (seen == hash) {
            uint64_t number = load_acquire(&set[i].number); /* before the second look */
            return load_relaxed(&set[i].hash) == hash ? (uint32_t)number : 0;
        }
        if (seen == HASH_FREE)
            return 0;
    }
    return 0;
}

static void keep(uint64_t hash, uint32_t number)
{
    struct entry *set = set_of(hash);
    struct entry *entry = &set[0];
    for (unsigned i = 0; i < SET; i++)
        if (load_relaxed(&set[i].hash) == HASH_FREE) {
            entry = &set[i];
            break;
        }
    uint64_t seen = load_relaxed(&entry->hash);
    if (seen == HASH_BUSY || !compare_swap_acq_rel(&entry->hash, &seen, (uint64_t)HASH_BUSY))
        return; /* it will be written again when it comes again */
    store_release(&entry->number, (uint64_t)number); /* not before BUSY is seen */
    store_release(&entry->hash, hash);               /* pairs with find */
}

static struct stack_lane *hold_lane(void)
{
    for (unsigned i = 0;; i = (i + 1) % STACK_LANES) {
        uint32_t free = 0;
        if (load_relaxed(&lanes[i].held) == 0 &&
            compare_swap_acq_rel(&lanes[i].held, &free, 1u)) /* pairs with let_go */
            return &lanes[i];
        pause_processor();
    }
}

static void let_go(struct stack_lane *lane)
{
    store_release(&lane->held, 0u); /* pairs with hold_lane */
}

static bool write(struct stack_lane *lane, uint32_t number, const uintptr_t *frames, unsigned depth,
                  bool cut)
{
    if (trace_file_state() != TRACE_FILE_ON)
        return false;
    if (encode_stack(&lane->encoder, number, frames, depth, cut))
        return true;
    struct trace_chunk *full = lane->encoder.chunk;
    lane->encoder.chunk = NULL; /* before: see trace_lanes.c */
    trace_file_unmap(full);
    uint64_t first_order;
    struct trace_chunk *chunk = trace_file_chunk(&first_order);
    if (chunk == NULL)
        return false;
    encode_stacks_begin(&lane->encoder, chunk, (uint32_t)(lane - lanes), first_order);
    return encode_stack(&lane->encoder, number, frames, depth, cut);
}

static no_inline uint32_t add(uint64_t hash, const uintptr_t *frames, unsigned depth, bool cut)
{
    struct stack_lane *lane = hold_lane();
    uint32_t number = find(hash); /* another thread may have added it */
    if (number == 0) {
        number = fetch_add_relaxed(&count, 1u) + 1;
        if (!write(lane, number, frames, depth, cut))
            number = 0;
        else
            keep(hash, number);
    }
    let_go(lane);
    return number;
}

uint32_t trace_stacks_number(const uintptr_t *frames, unsigned depth, bool cut)
{
    if (depth == 0)
        return 0;
    uint64_t hash = hash_of(frames, depth);
    uint32_t number = find(hash);
    if (likely(number != 0))
        return number;
    (void)trace_modules_see(frames, depth, &count);
    return add(hash, frames, depth, cut);
}

static struct memo *hold_memo(const struct traced_thread *own)
{
    struct memo *memo = &memos[own->number % MEMOS];
    uint32_t free = 0;
    bool held = load_relaxed(&memo->held) == 0 &&
                alone_or_compare_swap(&memo->held, &free, 1u); /* pairs with find_again */
    return held ? memo : NULL;
}

/* What was seen of a step was seen of those outside of it, too. */
static void see_modules(struct os_stack_step *innermost, const uintptr_t *frames, unsigned depth)
{
    unsigned fresh = 0;
    for (const struct os_stack_step *step = innermost; fresh < depth && !step->seen;
         step = step->outer)
        fresh++;
    if (fresh == 0 || !trace_modules_see(frames, fresh, &count))
        return;
    for (struct os_stack_step *step = innermost; fresh > 0; step = step->outer, fresh--)
        step->seen = true;
}

static no_inline uint32_t number_steps(struct os_stack_step *innermost)
{
    uint64_t hash = plain_hash(innermost->hash);
    uint32_t number = find(hash);
    if (number != 0)
        return number;
    bool cut = innermost->depth > TRACE_DEPTH;
    uintptr_t frames[TRACE_DEPTH];
    unsigned kept = cut ? (unsigned)TRACE_DEPTH : innermost->depth;
    const struct os_stack_step *step = innermost;
    for (unsigned i = 0; i < kept; i++, step = step->outer)
        frames[i] = step->address;
    see_modules(innermost, frames, kept);
    return add(hash, frames, kept, cut);
}

/* By what is known of this thread's stacks. 0: it cannot be told so. */
static uint32_t find_again(const struct traced_thread *own)
{
    struct memo *memo = hold_memo(own);
    if (memo == NULL)
        return 0;
    struct os_stack_step *innermost = os_stack_again(&memo->stack, own->number);
    uint32_t number = innermost ? innermost->number : 0;
    if (unlikely(number == 0) && innermost && innermost->depth > 0)
        number = innermost->number = number_steps(innermost);
    store_release(&memo->held, 0u); /* pairs with hold_memo */
    return number;
}

static no_inline uint32_t find_anew(void)
{
    uintptr_t frames[TRACE_DEPTH + 1];
    unsigned depth = os_stack(frames, TRACE_DEPTH + 1, 0);
    bool cut = depth > TRACE_DEPTH;
    return trace_stacks_number(frames, cut ? (unsigned)TRACE_DEPTH : depth, cut);
}

uint32_t trace_stacks_find(struct traced_thread *own)
{
    if (unlikely(own == NULL || own->inside))
        return 0;
    own->inside = true;
    uint32_t number = find_again(own);
    if (unlikely(number == 0))
        number = find_anew();
    own->inside = false;
    return number;
}
