// Makes a replay program. prepare.h describes the functions, program.h the order to be kept.
#include "prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MOST = 1 << 20 };

void prepare_start(struct prepare *prepare, const char *path, struct site_policies *policies)
{
    *prepare = (struct prepare){.policies = policies};
    streams_start(&prepare->streams, path);
    if (policies)
        prepare->streams.header.policies = policies->count;
    live_start(&prepare->live);
}

// Returns: the thread of the trace, with a number in the program. A new thread is started by the
// thread of the previous event.
static struct prepare_thread *enter(struct prepare *prepare, uint32_t number)
{
    if (number >= THREADS_MOST) {
        fprintf(stderr, "cairn-replay-prepare: the trace has more than %d threads\n", THREADS_MOST);
        exit(1);
    }
    if (number >= prepare->thread_capacity) {
        uint32_t capacity = (number + 1) * 2;
        prepare->threads = resize_array(prepare->threads, capacity, sizeof *prepare->threads);
        memset(prepare->threads + prepare->thread_capacity, 0,
               (capacity - prepare->thread_capacity) * sizeof *prepare->threads);
        prepare->thread_capacity = capacity;
    }
    struct prepare_thread *thread = &prepare->threads[number];
    if (thread->number)
        return thread;
    uint32_t new = streams_add_thread(&prepare->streams);
    thread->number = new + 1;
    if (new > 0) {
        uint64_t word = record_word(RECORD_START, 0, new);
        streams_put(&prepare->streams, prepare->last_thread, &word, 1);
    }
    return thread;
}

static void put(struct prepare *prepare, struct prepare_thread *thread, const uint64_t *words,
                size_t count)
{
    streams_put(&prepare->streams, thread->number - 1, words, count);
}

// Makes the thread wait for the record that used the block last, unless that record is known to be
// played.
static void wait_for_last_use(struct prepare *prepare, struct prepare_thread *thread,
                              const struct live_block *block)
{
    if (block->thread == thread->number - 1 ||
        block->window + 2 <= streams_window(&prepare->streams))
        return;
    uint32_t at = block->thread % WAITS_KNOWN;
    if (thread->waited[at].thread == block->thread && thread->waited[at].ordinal >= block->ordinal)
        return;
    thread->waited[at].thread = block->thread;
    thread->waited[at].ordinal = block->ordinal;
    put(prepare, thread, (uint64_t[]){record_word(RECORD_WAIT, 0, block->thread), block->ordinal},
        2);
    prepare->streams.header.waits++;
}

// Notes the last use of the block. Called after the record was put.
static void note_use(struct prepare *prepare, const struct prepare_thread *thread,
                     struct live_block *block)
{
    block->thread = thread->number - 1;
    block->ordinal = prepare->streams.threads[block->thread].records;
    block->window = streams_window(&prepare->streams);
}

// Writes the first word of a record, and a large size as a second word. Returns: the number of
// words.
static size_t begin_record(uint64_t *words, enum record_kind kind, uint64_t size, uint32_t slot)
{
    words[0] = record_word(kind, size, slot);
    if (size < RECORD_SIZE_FOLLOWS)
        return 1;
    words[1] = size;
    return 2;
}

static uint64_t site_of(const struct live_block *block, const struct replay_event *event)
{
    return site_word(block->policy - 1, block->owner, event->align_log2, event->zeroed);
}

static void allocate(struct prepare *prepare, struct prepare_thread *thread,
                     const struct replay_event *event)
{
    uint32_t slot = slots_take(&prepare->slots, thread->number - 1);
    struct live_block *block = live_block_at(&prepare->live, slot);
    *block = (struct live_block){.size = event->size, .owner = thread->number - 1};
    if (prepare->policies)
        block->policy = site_policy_of(prepare->policies, event->stack);
    uint64_t words[RECORD_WORDS];
    size_t count = begin_record(words,
                                block->policy       ? RECORD_SITE_ALLOC
                                : event->align_log2 ? RECORD_ALIGNED
                                : event->zeroed     ? RECORD_ZERO
                                                    : RECORD_ALLOC,
                                event->size, slot);
    if (block->policy)
        words[count++] = site_of(block, event);
    else if (event->align_log2)
        words[count++] = (uint64_t)1 << event->align_log2;
    put(prepare, thread, words, count);
    note_use(prepare, thread, block);
    live_add(&prepare->live, event->address, slot);
    prepare->live_bytes += event->size;
    prepare->live_blocks++;
    prepare->window_bytes += event->size;
}

static void release(struct prepare *prepare, struct prepare_thread *thread, uint32_t slot)
{
    struct live_block *block = live_block_at(&prepare->live, slot);
    wait_for_last_use(prepare, thread, block);
    uint64_t words[2] = {
        record_word(block->policy ? RECORD_SITE_FREE : RECORD_FREE, block->size != 0, slot)};
    if (block->policy)
        words[1] = site_word(block->policy - 1, block->owner, 0, 0);
    put(prepare, thread, words, block->policy ? 2 : 1);
    prepare->live_bytes -= block->size;
    prepare->live_blocks--;
    slots_give(&prepare->slots, thread->number - 1, slot);
}

static void resize(struct prepare *prepare, struct prepare_thread *thread, uint32_t slot,
                   const struct replay_event *event)
{
    struct live_block *block = live_block_at(&prepare->live, slot);
    wait_for_last_use(prepare, thread, block);
    uint64_t words[RECORD_WORDS];
    size_t count =
        begin_record(words, block->policy ? RECORD_SITE_RESIZE : RECORD_RESIZE, event->size, slot);
    if (block->policy)
        words[count++] = site_of(block, event);
    words[count++] = block->size;
    put(prepare, thread, words, count);
    note_use(prepare, thread, block);
    prepare->live_bytes += event->size - block->size;
    prepare->window_bytes += event->size;
    block->size = event->size;
}

// Allocates a block. A block that is already at this address has lost its end in the trace, and is
// released.
static void allocate_anew(struct prepare *prepare, struct prepare_thread *thread,
                          const struct replay_event *event)
{
    uint32_t slot;
    if (live_remove(&prepare->live, event->address, &slot)) {
        prepare->streams.header.lost_events++;
        release(prepare, thread, slot);
    }
    allocate(prepare, thread, event);
}

static void end_resize(struct prepare *prepare, struct prepare_thread *thread,
                       const struct replay_event *event)
{
    uint32_t slot;
    bool known = thread->resizing;
    thread->resizing = false;
    if (event->operation == REPLAY_RESIZE_FAILED) {
        if (known && !live_find(&prepare->live, thread->resizing_address, &slot))
            live_add(&prepare->live, thread->resizing_address, thread->resizing_slot);
        return;
    }
    if (!known) {
        prepare->streams.header.unknown_frees++;
        allocate_anew(prepare, thread, event);
        return;
    }
    if (live_remove(&prepare->live, event->address, &slot)) {
        prepare->streams.header.lost_events++;
        release(prepare, thread, slot);
    }
    resize(prepare, thread, thread->resizing_slot, event);
    live_add(&prepare->live, event->address, thread->resizing_slot);
}

static void end_window(struct prepare *prepare)
{
    struct program_window *window = streams_current(&prepare->streams);
    window->live_bytes = prepare->live_bytes;
    window->live_blocks = prepare->live_blocks;
    window->time_ns = prepare->time_ns;
    prepare->window_bytes = 0;
    streams_end_window(&prepare->streams);
    slots_end_window(&prepare->slots);
}

static void count_event(struct prepare *prepare)
{
    struct program_header *header = &prepare->streams.header;
    header->events++;
    if (prepare->live_bytes > header->peak_live_bytes)
        header->peak_live_bytes = prepare->live_bytes;
    struct program_window *window = streams_current(&prepare->streams);
    window->events++;
    uint64_t most = header->peak_live_bytes / WINDOW_SHARE;
    if (most < WINDOW_LEAST_BYTES)
        most = WINDOW_LEAST_BYTES;
    if (window->events >= WINDOW_EVENTS || (header->threads > 1 && prepare->window_bytes >= most))
        end_window(prepare);
}

void prepare_event(struct prepare *prepare, const struct replay_event *event)
{
    struct prepare_thread *thread = enter(prepare, event->thread);
    uint32_t slot;
    if (event->time_ns > prepare->time_ns) // times of different threads may be out of order
        prepare->time_ns = event->time_ns;
    switch (event->operation) {
    case REPLAY_ALLOC:
        allocate_anew(prepare, thread, event);
        break;
    case REPLAY_FREE:
        if (live_remove(&prepare->live, event->address, &slot))
            release(prepare, thread, slot);
        else
            prepare->streams.header.unknown_frees++;
        break;
    case REPLAY_RESIZE:
        if (live_find(&prepare->live, event->address, &slot))
            resize(prepare, thread, slot, event);
        else {
            prepare->streams.header.unknown_frees++;
            allocate(prepare, thread, event);
        }
        break;
    case REPLAY_RESIZE_FROM:
        thread->resizing = live_remove(&prepare->live, event->address, &thread->resizing_slot) != 0;
        thread->resizing_address = event->address;
        return; // counted with the end of the resize
    case REPLAY_RESIZE_TO:
    case REPLAY_RESIZE_FAILED:
        end_resize(prepare, thread, event);
        break;
    }
    prepare->last_thread = thread->number - 1;
    count_event(prepare);
}

void prepare_finish(struct prepare *prepare)
{
    struct program_header *header = &prepare->streams.header;
    if (prepare->streams.active_count || !header->windows)
        end_window(prepare);
    header->slots = prepare->slots.made;
    header->end_live_bytes = prepare->live_bytes;
    streams_finish(&prepare->streams, prepare->policies ? prepare->policies->list : NULL);
    slots_end(&prepare->slots);
    live_end(&prepare->live);
    free(prepare->threads);
}
