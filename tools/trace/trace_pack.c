// Encodes a trace in columns.
#include "trace_pack.h"

#include "trace_columns.h"
#include "trace_frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 4096, FRAME_PLACES = 1 << 12 };

struct bytes {
    unsigned char *start;
    size_t used, room;
};

struct packer {
    struct trace *trace;
    FILE *to;
    struct trace_model *model;
    struct trace_event events[BATCH];
    struct bytes columns[COLUMNS];
    uint32_t count;          // of the current block
    uint32_t extra_at;       // the count after the last event with an extra
    uint64_t all, row_bytes; // sums up to the last block
    uint64_t order, time_ns; // of the previous event
    uint32_t thread;
    struct model_thread *model_thread; // of that thread
    uint32_t stack_most;               // largest number in COLUMN_STACK
    size_t text_bytes;                 // bytes of text written
    unsigned char *stack_done;         // by stack number
    uint32_t stacks_known;
    struct trace_frames frames;
    uint32_t *frame_table; // open addressing by address: numbers of frames
    uint32_t frame_room;
    uint64_t new_frame;
};

static void put(struct bytes *column, unsigned value)
{
    if (column->used + 16 > column->room) {
        column->room = column->room ? column->room * 2 : 4096;
        column->start = more_memory(column->start, column->room);
    }
    column->start[column->used++] = (unsigned char)value;
}

static void put_varint(struct bytes *column, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put(column, (unsigned)(value & 127) | 128);
    put(column, (unsigned)value);
}

static void put_signed(struct bytes *column, uint64_t value)
{
    put_varint(column, value << 1 ^ (uint64_t)-(int64_t)(value >> 63));
}

static void write_block(struct packer *packer, enum block_kind kind, uint64_t row_bytes)
{
    struct block_head head = {.kind = kind, .count = packer->count, .row_bytes = row_bytes};
    for (unsigned i = 0; i < COLUMNS; i++)
        head.bytes[i] = (uint32_t)packer->columns[i].used;
    fwrite(&head, sizeof head, 1, packer->to);
    for (unsigned i = 0; i < COLUMNS; i++) {
        if (packer->columns[i].used > 0)
            fwrite(packer->columns[i].start, 1, packer->columns[i].used, packer->to);
        packer->columns[i].used = 0;
    }
    packer->count = 0;
}

static void pack_extra(struct packer *packer, const struct trace_event *event)
{
    struct bytes *columns = packer->columns;
    unsigned extra = 0;
    if (event->order != packer->order + 1) {
        extra |= EXTRA_ORDER;
        put_varint(&columns[COLUMN_ORDER], event->order - packer->order);
    }
    packer->order = event->order;
    if (event->thread != packer->thread) {
        packer->model_thread = model_thread(packer->model, event->thread);
        extra |= EXTRA_THREAD;
        put_varint(&columns[COLUMN_THREAD], event->thread);
        if (!packer->model_thread->named)
            put_varint(&columns[COLUMN_THREAD], trace_thread_id(packer->trace, event->thread));
        packer->model_thread->named = true;
    }
    packer->thread = event->thread;
    struct model_thread *thread = packer->model_thread;
    if (event->time_ns != thread->time_ns) {
        extra |= EXTRA_TIME;
        put_signed(&columns[COLUMN_TIME], event->time_ns - packer->time_ns);
        packer->time_ns = thread->time_ns = event->time_ns;
    }
    if (extra == 0)
        return;
    put(&columns[COLUMN_EXTRA], extra);
    put_varint(&columns[COLUMN_GAP], packer->count - packer->extra_at);
    packer->extra_at = packer->count + 1;
}

static unsigned pack_kind(struct packer *packer, struct model_thread *thread,
                          const struct trace_event *event)
{
    unsigned what = event->operation | (event->zeroed ? WHAT_ZEROED : 0) |
                    (event->alignment_log2 ? WHAT_ALIGNED : 0);
    uint64_t kind = what | (uint64_t)event->stack << 8;
    unsigned guess = 0;
    while (guess < KIND_GUESSES && model_kind(packer->model, thread, guess) != kind)
        guess++;
    if (guess == KIND_GUESSES) {
        put(&packer->columns[COLUMN_WHAT], what);
        put_signed(&packer->columns[COLUMN_STACK],
                   (uint64_t)packer->stack_most - (uint64_t)event->stack);
        if (event->stack > packer->stack_most)
            packer->stack_most = event->stack;
    }
    model_kind_was(packer->model, thread, kind);
    if (event->alignment_log2)
        put(&packer->columns[COLUMN_ALIGNMENT], event->alignment_log2);
    return guess;
}

static unsigned pack_size(struct packer *packer, struct model_thread *thread,
                          const struct trace_event *event)
{
    unsigned guess = 0;
    while (guess < SIZE_GUESSES &&
           model_size(packer->model, thread, event->stack, guess) != event->size)
        guess++;
    if (guess == SIZE_GUESSES)
        put_varint(&packer->columns[COLUMN_SIZE], event->size);
    model_size_was(packer->model, thread, event->stack, event->size);
    return guess;
}

static void pack_new(struct packer *packer, const struct trace_event *event)
{
    struct trace_model *model = packer->model;
    unsigned guess = 0;
    while (guess < NEW_GUESSES &&
           model_new_address(model, event->thread, event->size, guess) != event->address)
        guess++;
    put(&packer->columns[COLUMN_PLACE], guess);
    if (guess == PLACE_NEW_FULL)
        put_signed(&packer->columns[COLUMN_ADDRESS],
                   event->address - model_near(model, event->thread, event->size));
    model_allocated(model, event->thread, event->stack, event->size, event->address);
}

// Returns: 1 + the way that predicts the block, or 0. The most frequent ways are tried first.
static unsigned find_way(const struct trace_model *model, const struct model_thread *thread,
                         const struct trace_event *event)
{
    static const unsigned char ways[] = {
        WAY_RANK_STEP,  WAY_FREER_BELOW, WAY_STEP + 1, WAY_STEP + 4,   WAY_NEWEST,
        WAY_RANK_ABOVE, WAY_FREER_ABOVE, WAY_STEP + 3, WAY_SITE_BELOW, WAY_RANK_BELOW,
    };
    for (unsigned i = 0; i < sizeof ways; i++)
        if (model_old_address(model, thread, event->stack, ways[i]) == event->address)
            return ways[i] + 1;
    return 0;
}

static void pack_old(struct packer *packer, struct model_thread *thread,
                     const struct trace_event *event)
{
    struct trace_model *model = packer->model;
    uint8_t *right = model_right_way(model, thread);
    unsigned which = 0;
    uint64_t step = 0;
    if (*right == 0 ||
        model_old_address(model, thread, event->stack, *right - 1) != event->address) {
        which = find_way(model, thread, event);
        if (which != 0)
            *right = (uint8_t)which;
        else if (model_rank_step(model, thread, event->address, &step))
            which = WHICH_RANK;
        else if (model_step(model, event->stack, event->address, &step))
            which = WHICH_STEP;
        else
            which = WHICH_FULL;
    }
    put(&packer->columns[COLUMN_WHICH], which);
    if (which == WHICH_RANK)
        put_signed(&packer->columns[COLUMN_RANK], step);
    else if (which == WHICH_STEP)
        put_signed(&packer->columns[COLUMN_STEP], step);
    else if (which == WHICH_FULL)
        put_signed(&packer->columns[COLUMN_ADDRESS], event->address - thread->freed);
    model_touched(model, thread, event->thread, event->stack, event->address,
                  event->operation != TRACE_RESIZE);
}

static void pack_event(struct packer *packer, const struct trace_event *event)
{
    pack_extra(packer, event);
    struct model_thread *thread = packer->model_thread;
    unsigned code = pack_kind(packer, thread, event);
    if (has_size(event->operation))
        code |= pack_size(packer, thread, event) << CODE_SIZE_SHIFT;
    put(&packer->columns[COLUMN_CODE], code);
    if (takes_block(event->operation))
        pack_new(packer, event);
    else if (event->operation != TRACE_RESIZE_FAILED)
        pack_old(packer, thread, event);
    packer->count++;
}

static uint32_t *frame_slot(struct packer *packer, uint64_t address)
{
    uint32_t at = (uint32_t)((address * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
    for (;; at++) {
        uint32_t *slot = &packer->frame_table[at & (packer->frame_room - 1)];
        if (*slot == 0 || packer->frames.addresses[*slot] == address)
            return slot;
    }
}

static void grow_frame_table(struct packer *packer)
{
    if (packer->frames.count < packer->frame_room / 2)
        return;
    packer->frame_room = packer->frame_room ? packer->frame_room * 2 : FRAME_PLACES;
    size_t bytes = packer->frame_room * sizeof *packer->frame_table;
    packer->frame_table = memset(more_memory(packer->frame_table, bytes), 0, bytes);
    for (uint32_t id = 1; id <= packer->frames.count; id++)
        *frame_slot(packer, packer->frames.addresses[id]) = id;
}

static void pack_frame(struct packer *packer, unsigned depth, uint64_t address)
{
    struct trace_frames *frames = &packer->frames;
    grow_frame_table(packer);
    uint32_t *slot = frame_slot(packer, address);
    struct bytes *column = &packer->columns[STACK_FRAME];
    if (*slot == 0) {
        put(column, FRAME_NEW);
        put_signed(&packer->columns[STACK_ADDRESS], address - packer->new_frame);
        packer->new_frame = address;
        *slot = frames_add(frames, address);
    } else {
        unsigned guess = 0;
        while (guess < FRAME_GUESSES && frames_guess(frames, depth, guess) != *slot)
            guess++;
        put_varint(column, guess < FRAME_GUESSES ? guess : FRAME_KNOWN + frames->count - *slot);
    }
    frames_was(frames, depth, *slot);
}

struct stack {
    uint32_t number;
    unsigned depth;
    uint64_t frames[TRACE_DEPTH]; // outermost first
};

static void pack_stack(struct packer *packer, const struct stack *before, const struct stack *stack,
                       bool cut)
{
    unsigned shared = 0;
    while (shared < before->depth && shared < stack->depth &&
           before->frames[shared] == stack->frames[shared])
        shared++;
    put_signed(&packer->columns[STACK_NUMBER],
               (uint64_t)stack->number - (uint64_t)before->number - 1);
    put_varint(&packer->columns[STACK_SHARED], before->depth - shared);
    put_varint(&packer->columns[STACK_OWN], 2 * (stack->depth - shared) + cut);
    for (unsigned i = shared; i < stack->depth; i++)
        pack_frame(packer, i, stack->frames[i]);
    packer->count++;
}

// Writes the stacks that were read since the last call.
static void write_stacks(struct packer *packer)
{
    uint32_t count = trace_stack_count(packer->trace);
    if (count > packer->stacks_known) {
        packer->stack_done = more_memory(packer->stack_done, count + 1);
        memset(packer->stack_done + packer->stacks_known + 1, 0, count - packer->stacks_known);
        packer->stacks_known = count;
    }
    struct stack stacks[2] = {{0}};
    unsigned now = 1;
    for (uint32_t number = 1; number <= count; number++) {
        if (packer->stack_done[number])
            continue;
        uint64_t frames[TRACE_DEPTH];
        bool cut;
        struct stack *stack = &stacks[now];
        stack->number = number;
        stack->depth = trace_stack(packer->trace, number, frames, &cut);
        if (stack->depth == 0)
            continue;
        for (unsigned i = 0; i < stack->depth; i++)
            stack->frames[i] = frames[stack->depth - 1 - i];
        packer->stack_done[number] = 1;
        pack_stack(packer, &stacks[!now], stack, cut);
        now = !now;
    }
    if (packer->count > 0)
        write_block(packer, BLOCK_OF_STACKS, 0);
}

static void write_text(struct packer *packer)
{
    const char *text = trace_text(packer->trace);
    size_t bytes = strlen(text + packer->text_bytes);
    for (size_t i = 0; i < bytes; i++)
        put(&packer->columns[0], (unsigned char)text[packer->text_bytes + i]);
    packer->text_bytes += bytes;
    if (bytes > 0)
        write_block(packer, BLOCK_OF_TEXT, 0);
}

static char *pack_blocks(struct packer *packer)
{
    for (size_t got = BATCH; got > 0 && !ferror(packer->to);) {
        struct bytes events[COLUMNS];
        uint32_t count;
        packer->extra_at = 0;
        while (packer->count < BLOCK_EVENTS_MOST &&
               (got = trace_read(packer->trace, packer->events, BATCH)) > 0)
            for (size_t i = 0; i < got; i++)
                pack_event(packer, &packer->events[i]);
        // Stacks and text that events refer to are written before the events.
        memcpy(events, packer->columns, sizeof events);
        count = packer->count;
        memset(packer->columns, 0, sizeof packer->columns);
        packer->count = 0;
        write_text(packer);
        write_stacks(packer);
        for (unsigned i = 0; i < COLUMNS; i++)
            free(packer->columns[i].start);
        memcpy(packer->columns, events, sizeof events);
        packer->count = count;
        uint64_t row_bytes = trace_bytes(packer->trace);
        write_block(packer, BLOCK_OF_EVENTS, row_bytes - packer->row_bytes);
        packer->row_bytes = row_bytes;
        packer->all += count;
    }
    write_block(packer, BLOCK_END, packer->all);
    if (trace_error(packer->trace))
        return sentence("the trace is damaged: %s", trace_error(packer->trace));
    if (fflush(packer->to) != 0 || ferror(packer->to))
        return sentence("cannot write the copy: %s", strerror(errno));
    return NULL;
}

char *trace_pack(struct trace *trace, FILE *to)
{
    struct packer *packer = more_memory(NULL, sizeof *packer);
    memset(packer, 0, sizeof *packer);
    packer->trace = trace;
    packer->to = to;
    struct trace_header header = *trace_head(trace);
    header.version = COLUMNS_VERSION;
    packer->model = model_new(header.start_ns, COLUMNS_VERSION);
    packer->time_ns = header.start_ns;
    packer->order = UINT64_MAX;
    static const char rest[TRACE_HEADER_BYTES - sizeof header];
    fwrite(&header, sizeof header, 1, to);
    fwrite(rest, sizeof rest, 1, to);
    char *error = pack_blocks(packer);
    for (unsigned i = 0; i < COLUMNS; i++)
        free(packer->columns[i].start);
    model_free(packer->model);
    free(packer->stack_done);
    free(packer->frames.addresses);
    free(packer->frame_table);
    free(packer);
    return error;
}
