/* The text of a trace, the table of stacks, their chunks, and the caches of walks: see
 * trace_stacks.h. Text is first written to a file in memory, because its length is not known, and
 * then copied to chunks. */
#include "watch/trace_stacks.h"

#include "base/alone.h"
#include "base/bits.h"
#include "base/text.h"
#include "cairn/api.h"
#include "heap/heap.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/module.h"
#include "os/process.h"
#include "unwind/unwind.h"
#include "watch/profile_writer.h"
#include "watch/trace_file.h"
#include "watch/trace_format.h"

#include <errno.h>
#include <string.h>

enum { KNOWN_MAX = 256, CHUNK_ROOM = TRACE_CHUNK_BYTES - (int)sizeof(struct trace_chunk) };

static struct scratch {
    struct profile_writer writer;
    struct profile_maps maps;
} *scratch; /* const after trace_modules_make; its contents: thread that has `busy` */

static uint32_t busy; /* atomic: 1 while a thread writes text */

/* The known files, by their address and the address of their name. known_count is raised after an
 * entry was written. */
static struct {
    uintptr_t base; /* atomic, thread that has `busy` writes */
    uintptr_t name; /* atomic, thread that has `busy` writes */
} known[KNOWN_MAX];
static uint32_t known_count; /* atomic: files that were ever known; the last KNOWN_MAX are kept */

int trace_modules_make(void)
{
    if (scratch == NULL)
        scratch = os_map(align_up(sizeof *scratch, os_page_size()));
    return scratch ? 0 : -ENOMEM;
}

/* Copies text from the file in memory to chunks. */
static void trace_modules_copy_text(int file, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t first_order;
        struct trace_chunk *chunk = trace_file_chunk(&first_order);
        if (chunk == NULL)
            return;
        size_t part = smaller_of(bytes - done, CHUNK_ROOM);
        int error = os_file_read(file, chunk + 1, part, done);
        encode_text(chunk, first_order, error == 0 ? (uint32_t)part : 0);
        trace_file_unmap(chunk);
        done += part;
    }
}

/* Writes the first lines of a trace if `stack` is 0; else the mappings, for stacks from this number
 * on. */
static void trace_modules_write_text(uint32_t stack)
{
    int file = os_file_in_memory("cairn: modules");
    if (file < 0)
        return;
    struct profile_writer *writer = &scratch->writer;
    writer->file = file;
    writer->error = 0;
    writer->held = 0;
    writer->offset = 0;
    if (stack == 0) {
        profile_write(writer, "library %s\nprogram ", CAIRN_VERSION);
        const char *name = os_program_name();
        profile_write_text(writer, name, text_length(name));
        profile_write(writer, "\n");
    } else {
        profile_write(writer, "maps %u\n", stack);
        profile_write_maps(writer, &scratch->maps);
    }
    if (profile_write_out(writer) == 0)
        trace_modules_copy_text(file, writer->offset);
    os_file_close(file);
}

/* Whether a file is known. */
static bool trace_modules_is_known(uintptr_t base, uintptr_t name)
{
    /* Acquire: pairs with trace_modules_add_new. */
    uint32_t count = (uint32_t)smaller_of(load_acquire(&known_count), KNOWN_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (load_relaxed(&known[i].base) == base && load_relaxed(&known[i].name) == name)
            return true;
    return false;
}

/* Records the loaded files that contain the addresses.
 *
 * Locking: `busy` claimed.
 * Returns: whether one of the files was unknown. */
static bool trace_modules_add_new(const uintptr_t *frames, unsigned depth)
{
    bool any = false;
    for (unsigned i = 0; i < depth; i++) {
        uintptr_t base = 0;
        uintptr_t name = (uintptr_t)os_locate(frames[i] - 1, &base);
        if (name == 0 || trace_modules_is_known(base, name))
            continue;
        uint32_t count = load_relaxed(&known_count);
        store_relaxed(&known[count % KNOWN_MAX].base, base);
        store_relaxed(&known[count % KNOWN_MAX].name, name);
        store_release(&known_count, count + 1); /* pairs with trace_modules_is_known */
        any = true;
    }
    return any;
}

/* Whether one of the addresses is in an unknown file. */
static bool trace_modules_is_new(const uintptr_t *frames, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++) {
        uintptr_t base = 0;
        uintptr_t name = (uintptr_t)os_locate(frames[i] - 1, &base);
        if (name != 0 && !trace_modules_is_known(base, name))
            return true;
    }
    return false;
}

static bool trace_modules_claim(void)
{
    uint32_t free = 0;
    return compare_swap_acq_rel(&busy, &free, 1u); /* pairs with trace_modules_unclaim */
}

/* Release: pairs with trace_modules_claim. */
static void trace_modules_unclaim(void) { store_release(&busy, 0u); }

void trace_modules_begin(void)
{
    store_relaxed(&busy, 1u);
    store_relaxed(&known_count, 0u);
    trace_modules_write_text(0);
    trace_modules_unclaim();
}

bool trace_modules_see(const uintptr_t *frames, unsigned depth, const uint32_t *stacks)
{
    if (likely(!trace_modules_is_new(frames, depth)))
        return true;
    if (!trace_modules_claim())
        return false;
    /* The count is read before the files become known: a thread that finds one of them known takes
     * a number only afterwards, for which the mappings hold. */
    uint32_t first = load_relaxed(stacks) + 1;
    if (trace_modules_add_new(frames, depth))
        trace_modules_write_text(first);
    trace_modules_unclaim();
    return true;
}

enum { TABLE_SHIFT = 17, TABLE_COUNT = 1 << TABLE_SHIFT, SET = 8, STACK_LANES = 4 };
enum { HASH_FREE, HASH_BUSY }; /* other values are hashes */

struct entry {
    uint64_t hash;   /* atomic: HASH_FREE, HASH_BUSY or a hash */
    uint64_t number; /* atomic: changes while `hash` is HASH_BUSY */
};

static struct entry *table; /* const after trace_stacks_make */
static uint32_t count;      /* atomic: numbers given to stacks */
static struct stack_lane {
    uint32_t held; /* atomic: 1 while a thread holds it */
    struct stack_encoder encoder;
} lanes[STACK_LANES];

struct trace_stack_cache *trace_stack_caches;

int trace_stacks_make(void)
{
    if (table == NULL)
        table = os_map(TABLE_COUNT * sizeof *table);
    if (trace_stack_caches == NULL)
        trace_stack_caches =
            os_map(align_up(TRACE_STACK_CACHES * sizeof *trace_stack_caches, os_page_size()));
    return table && trace_stack_caches ? 0 : -ENOMEM;
}

void trace_stacks_forget(void)
{
    size_t bytes = TABLE_COUNT * sizeof *table;
    if (table && os_purge(table, bytes) != 0)
        memset(table, 0, bytes);
    store_relaxed(&count, 0u);
    for (unsigned i = 0; i < STACK_LANES; i++) {
        trace_file_unmap(lanes[i].encoder.chunk);
        lanes[i].encoder.chunk = NULL;
        store_relaxed(&lanes[i].held, 0u);
    }
    for (unsigned i = 0; i < TRACE_STACK_CACHES; i++) {
        trace_stack_caches[i].stack.end = 0; /* the fork may have interrupted a change of it */
        trace_stack_caches[i].stack.used = 0;
        store_relaxed(&trace_stack_caches[i].held, 0u);
    }
}

uint32_t trace_stacks_count(void) { return load_relaxed(&count); }

/* Returns a hash that is not a state of an entry. */
static uint64_t trace_stacks_plain_hash(uint64_t hash)
{
    return hash > HASH_BUSY ? hash : hash + 2;
}

static uint64_t trace_stacks_hash_of(const uintptr_t *frames, unsigned depth)
{
    uint64_t hash = depth;
    for (unsigned i = 0; i < depth; i++) {
        hash = (hash ^ frames[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return trace_stacks_plain_hash(hash);
}

/* Returns the first entry of a hash's set. */
static struct entry *trace_stacks_set_of(uint64_t hash)
{
    return &table[(hash >> (64 - TABLE_SHIFT)) & ~(uint64_t)(SET - 1)];
}

/* Finds the number of a hash.
 *
 * Returns: 0: none. */
static uint32_t trace_stacks_find_in(uint64_t hash)
{
    struct entry *set = trace_stacks_set_of(hash);
    for (unsigned i = 0; i < SET; i++) {
        uint64_t seen = load_acquire(&set[i].hash); /* pairs with trace_stacks_keep */
        if (seen == hash) {
            /* Acquire: before the second load of `hash`. */
            uint64_t number = load_acquire(&set[i].number);
            return load_relaxed(&set[i].hash) == hash ? (uint32_t)number : 0;
        }
        if (seen == HASH_FREE)
            return 0;
    }
    return 0;
}

/* Enters a number in the table. If another thread is changing the entry, the stack is not entered
 * and will be written again. */
static void trace_stacks_keep(uint64_t hash, uint32_t number)
{
    struct entry *set = trace_stacks_set_of(hash);
    struct entry *entry = &set[0];
    for (unsigned i = 0; i < SET; i++)
        if (load_relaxed(&set[i].hash) == HASH_FREE) {
            entry = &set[i];
            break;
        }
    uint64_t seen = load_relaxed(&entry->hash);
    if (seen == HASH_BUSY || !compare_swap_acq_rel(&entry->hash, &seen, (uint64_t)HASH_BUSY))
        return;
    store_release(&entry->number, (uint64_t)number); /* release: after BUSY */
    store_release(&entry->hash, hash);               /* pairs with trace_stacks_find_in */
}

/* Holds the first lane that is free. */
static struct stack_lane *trace_stacks_hold_lane(void)
{
    for (unsigned i = 0;; i = (i + 1) % STACK_LANES) {
        uint32_t free = 0;
        if (load_relaxed(&lanes[i].held) == 0 &&
            compare_swap_acq_rel(&lanes[i].held, &free, 1u)) /* pairs with trace_stacks_let_go */
            return &lanes[i];
        pause_processor();
    }
}

static void trace_stacks_let_go(struct stack_lane *lane)
{
    store_release(&lane->held, 0u); /* pairs with trace_stacks_hold_lane */
}

/* Writes a stack to a lane, in a new chunk if the current one is full.
 *
 * Returns: false if the trace is over. */
static bool trace_stacks_write(struct stack_lane *lane, uint32_t number, const uintptr_t *frames,
                               unsigned depth, bool cut)
{
    if (trace_file_state() != TRACE_FILE_ON)
        return false;
    if (encode_stack(&lane->encoder, number, frames, depth, cut))
        return true;
    uint64_t first_order;
    struct trace_chunk *chunk = trace_file_next_chunk(&lane->encoder.chunk, &first_order);
    if (chunk == NULL)
        return false;
    encode_stacks_begin(&lane->encoder, chunk, (uint32_t)(lane - lanes), first_order);
    return encode_stack(&lane->encoder, number, frames, depth, cut);
}

/* Writes a stack and enters it in the table.
 *
 * Returns: its number; 0 if the trace is over. */
static no_inline uint32_t trace_stacks_add_to(uint64_t hash, const uintptr_t *frames,
                                              unsigned depth, bool cut)
{
    struct stack_lane *lane = trace_stacks_hold_lane();
    uint32_t number = trace_stacks_find_in(hash); /* another thread may have added it */
    if (number == 0) {
        number = fetch_add_relaxed(&count, 1u) + 1;
        if (!trace_stacks_write(lane, number, frames, depth, cut))
            number = 0;
        else
            trace_stacks_keep(hash, number);
    }
    trace_stacks_let_go(lane);
    return number;
}

uint32_t trace_stacks_number(const uintptr_t *frames, unsigned depth, bool cut)
{
    if (depth == 0)
        return 0;
    uint64_t hash = trace_stacks_hash_of(frames, depth);
    uint32_t number = trace_stacks_find_in(hash);
    if (likely(number != 0))
        return number;
    (void)trace_modules_see(frames, depth, &count);
    return trace_stacks_add_to(hash, frames, depth, cut);
}

/* Holds the cache of a thread.
 *
 * Returns: NULL if another thread, or this one, holds it. */
static struct trace_stack_cache *trace_stacks_hold_cache(const struct traced_thread *own)
{
    struct trace_stack_cache *cache = &trace_stack_caches[own->number % TRACE_STACK_CACHES];
    uint32_t free = 0;
    bool held = load_relaxed(&cache->held) == 0 &&
                /* pairs with the release in trace_stacks_find_again */
                compare_swap_if_threaded(&cache->held, &free, 1u);
    return held ? cache : NULL;
}

/* Checks the modules of the innermost steps that were not checked yet. If a step was checked, so
 * were all steps further out. */
static void trace_stacks_see_modules(struct unwind_step *innermost, const uintptr_t *frames,
                                     unsigned depth)
{
    unsigned fresh = 0;
    for (const struct unwind_step *step = innermost; fresh < depth && !step->seen;
         step = step->outer)
        fresh++;
    if (fresh == 0 || !trace_modules_see(frames, fresh, &count))
        return;
    for (struct unwind_step *step = innermost; fresh > 0; step = step->outer, fresh--)
        step->seen = true;
}

/* Finds or makes the number of a stack that the cache has found. */
static no_inline uint32_t trace_stacks_number_steps(struct unwind_step *innermost)
{
    uint64_t hash = trace_stacks_plain_hash(innermost->hash);
    uint32_t number = trace_stacks_find_in(hash);
    if (number != 0)
        return number;
    bool cut = innermost->depth > TRACE_DEPTH;
    uintptr_t frames[TRACE_DEPTH];
    unsigned kept = cut ? (unsigned)TRACE_DEPTH : innermost->depth;
    const struct unwind_step *step = innermost;
    for (unsigned i = 0; i < kept; i++, step = step->outer)
        frames[i] = step->address;
    trace_stacks_see_modules(innermost, frames, kept);
    return trace_stacks_add_to(hash, frames, kept, cut);
}

/* Finds the number of the calling thread's stack with its cache.
 *
 * Returns: 0 if the cache cannot find the stack. */
static uint32_t trace_stacks_find_again(const struct traced_thread *own)
{
    struct trace_stack_cache *cache = trace_stacks_hold_cache(own);
    if (cache == NULL)
        return 0;
    struct unwind_step *innermost = unwind_cached(&cache->stack, own->number);
    uint32_t number = innermost ? innermost->number : 0;
    if (unlikely(number == 0) && innermost && innermost->depth > 0)
        number = innermost->number = trace_stacks_number_steps(innermost);
    store_release(&cache->held, 0u); /* pairs with trace_stacks_hold_cache */
    return number;
}

/* Finds the number of the calling thread's stack without a cache. */
static no_inline uint32_t trace_stacks_find_anew(void)
{
    uintptr_t frames[TRACE_DEPTH + 1];
    unsigned depth = unwind_stack(frames, TRACE_DEPTH + 1, 0);
    bool cut = depth > TRACE_DEPTH;
    return trace_stacks_number(frames, cut ? (unsigned)TRACE_DEPTH : depth, cut);
}

uint32_t trace_stacks_find(struct traced_thread *own)
{
    if (unlikely(own == NULL || own->inside))
        return 0;
    own->inside = true;
    uint32_t number = trace_stacks_find_again(own);
    if (unlikely(number == 0))
        number = trace_stacks_find_anew();
    own->inside = false;
    return number;
}
