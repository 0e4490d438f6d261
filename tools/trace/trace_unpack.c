// Decodes a trace in columns.
#include "trace_unpack.h"

#include "trace_columns.h"
#include "trace_frames.h"

#include <stdlib.h>
#include <string.h>

struct part {
    const unsigned char *at, *end;
};

struct unpacker {
    struct trace_model *model;
    unsigned version;
    unsigned char *bytes; // of the block
    size_t room;
    struct part columns[COLUMNS];
    uint64_t all, order, time_ns;
    uint64_t gap;          // number of events before the next with an extra
    uint64_t threads_most; // a larger number of a thread is damage
    uint32_t thread, thread_id;
    struct model_thread *model_thread; // of that thread
    uint32_t stack_most;               // largest number in COLUMN_STACK
    struct trace_frames frames;
    uint64_t new_frame;
};

struct unpacker *unpack_new(const struct trace_header *header, uint64_t threads_most)
{
    struct unpacker *unpacker = more_memory(NULL, sizeof *unpacker);
    memset(unpacker, 0, sizeof *unpacker);
    unpacker->model = model_new(header->start_ns, header->version);
    unpacker->version = header->version;
    unpacker->threads_most = threads_most;
    unpacker->time_ns = header->start_ns;
    unpacker->order = UINT64_MAX; // the first event is expected to have order 0
    return unpacker;
}

void unpack_free(struct unpacker *unpacker)
{
    if (unpacker == NULL)
        return;
    model_free(unpacker->model);
    free(unpacker->frames.addresses);
    free(unpacker->bytes);
    free(unpacker);
}

static inline bool take(struct part *part, uint64_t *value)
{
    if (part->at < part->end && *part->at < 128) {
        *value = *part->at++;
        return true;
    }
    return take_varint(&part->at, part->end, value);
}

static inline bool take_byte(struct part *part, unsigned most, unsigned *value)
{
    if (part->at == part->end || *part->at > most)
        return false;
    *value = *part->at++;
    return true;
}

static bool unpack_thread(struct unpacker *unpacker)
{
    uint64_t number, id;
    struct part *column = &unpacker->columns[COLUMN_THREAD];
    if (!take(column, &number) || number == 0 || number > unpacker->threads_most)
        return false;
    unpacker->thread = (uint32_t)number;
    struct model_thread *thread = model_thread(unpacker->model, unpacker->thread);
    if (!thread->named) {
        if (!take(column, &id))
            return false;
        thread->named = true;
        thread->id = (uint32_t)id;
    }
    unpacker->thread_id = thread->id;
    unpacker->model_thread = thread;
    return true;
}

// Reads the number of events before the next one with an extra.
static bool unpack_gap(struct unpacker *unpacker)
{
    struct part *column = &unpacker->columns[COLUMN_GAP];
    unpacker->gap = UINT64_MAX;
    return column->at == column->end || take(column, &unpacker->gap);
}

static bool unpack_extra(struct unpacker *unpacker)
{
    unsigned extra;
    uint64_t step;
    if (!take_byte(&unpacker->columns[COLUMN_EXTRA], EXTRA_MOST, &extra) || !unpack_gap(unpacker))
        return false;
    if (extra & EXTRA_ORDER) {
        if (!take(&unpacker->columns[COLUMN_ORDER], &step) || step == 0 ||
            step - 1 > UINT64_MAX - unpacker->order)
            return false;
        unpacker->order += step - 1;
    }
    if ((extra & EXTRA_THREAD) && !unpack_thread(unpacker))
        return false;
    if (extra & EXTRA_TIME) {
        if (unpacker->thread == 0 || !take(&unpacker->columns[COLUMN_TIME], &step))
            return false;
        unpacker->time_ns += (uint64_t)signed_of(step);
        unpacker->model_thread->time_ns = unpacker->time_ns;
    }
    return true;
}

static bool unpack_kind(struct unpacker *unpacker, struct model_thread *thread, unsigned guess,
                        struct trace_event *event)
{
    uint64_t kind, step;
    unsigned what, alignment = 0;
    if (guess < KIND_GUESSES) {
        kind = model_kind(unpacker->model, thread, guess);
    } else {
        if (!take_byte(&unpacker->columns[COLUMN_WHAT], WHAT_MOST, &what) ||
            !take(&unpacker->columns[COLUMN_STACK], &step))
            return false;
        uint32_t stack = unpacker->stack_most - (uint32_t)signed_of(step);
        if (stack > unpacker->stack_most)
            unpacker->stack_most = stack;
        kind = what | (uint64_t)stack << 8;
    }
    model_kind_was(unpacker->model, thread, kind);
    if ((kind & WHAT_ALIGNED) &&
        !take_byte(&unpacker->columns[COLUMN_ALIGNMENT], TRACE_MANNER_ALIGNMENT, &alignment))
        return false;
    event->operation = kind & WHAT_OPERATION;
    event->zeroed = (kind & WHAT_ZEROED) != 0;
    event->alignment_log2 = (uint8_t)alignment;
    event->stack = (uint32_t)(kind >> 8);
    return event->operation != TRACE_NOTHING && event->operation != TRACE_ALLOCATE_OTHERWISE;
}

static bool unpack_size(struct unpacker *unpacker, struct model_thread *thread, unsigned guess,
                        struct trace_event *event)
{
    if (guess < SIZE_GUESSES)
        event->size = model_size(unpacker->model, thread, event->stack, guess);
    else if (!take(&unpacker->columns[COLUMN_SIZE], &event->size))
        return false;
    model_size_was(unpacker->model, thread, event->stack, event->size);
    return true;
}

static bool unpack_new_place(struct unpacker *unpacker, struct trace_event *event)
{
    struct trace_model *model = unpacker->model;
    unsigned guess;
    uint64_t step;
    if (!take_byte(&unpacker->columns[COLUMN_PLACE], PLACE_NEW_FULL, &guess))
        return false;
    if (guess < PLACE_NEW_FULL)
        event->address = model_new_address(model, event->thread, event->size, guess);
    else if (take(&unpacker->columns[COLUMN_ADDRESS], &step))
        event->address = model_near(model, event->thread, event->size) + (uint64_t)signed_of(step);
    else
        return false;
    model_allocated(model, event->thread, event->stack, event->size, event->address);
    return true;
}

// Reads the way that predicts the block: an enum old_way, or OLD_WAYS and above for a coded
// address.
static bool unpack_which(struct unpacker *unpacker, const struct model_thread *thread,
                         unsigned *which)
{
    if (unpacker->version == COLUMNS_VERSION_BEFORE) {
        if (!take_byte(&unpacker->columns[COLUMN_PLACE], PLACE_FULL, which))
            return false;
        if (*which >= PLACE_STEP)
            *which += WHICH_STEP - 1 - PLACE_STEP;
        return true;
    }
    uint8_t *right = model_right_way(unpacker->model, thread);
    if (!take_byte(&unpacker->columns[COLUMN_WHICH], WHICH_FULL, which))
        return false;
    if (*which > OLD_WAYS) {
        --*which;
        return true;
    }
    if (*which > 0)
        *right = (uint8_t)*which;
    *which = *right - 1U;
    return *right > 0 && (WAYS_TAKEN >> *which & 1) != 0;
}

static bool unpack_old_place(struct unpacker *unpacker, struct model_thread *thread,
                             struct trace_event *event)
{
    struct trace_model *model = unpacker->model;
    unsigned which;
    uint64_t step = 0;
    if (!unpack_which(unpacker, thread, &which))
        return false;
    static const unsigned char columns[] = {COLUMN_RANK, COLUMN_STEP, COLUMN_ADDRESS};
    if (which >= OLD_WAYS && !take(&unpacker->columns[columns[which - OLD_WAYS]], &step))
        return false;
    step = (uint64_t)signed_of(step);
    if (which < OLD_WAYS)
        event->address = model_old_address(model, thread, event->stack, which);
    else if (which == WHICH_RANK - 1)
        event->address = model_by_rank_step(model, thread, step);
    else if (which == WHICH_STEP - 1)
        event->address = model_by_step(model, event->stack, step);
    else
        event->address = thread->freed + step;
    model_touched(model, thread, event->thread, event->stack, event->address,
                  event->operation != TRACE_RESIZE);
    return true;
}

bool unpack_event(struct unpacker *unpacker, struct trace_event *event)
{
    unsigned code;
    if (!take_byte(&unpacker->columns[COLUMN_CODE], CODE_MOST, &code))
        return false;
    unpacker->order++;
    if (unpacker->gap-- == 0 && !unpack_extra(unpacker))
        return false;
    if (unpacker->thread == 0)
        return false;
    struct model_thread *thread = unpacker->model_thread;
    *event = (struct trace_event){
        .order = unpacker->order, .time_ns = thread->time_ns, .thread = unpacker->thread};
    if (!unpack_kind(unpacker, thread, code & CODE_FULL, event))
        return false;
    if (has_size(event->operation) &&
        !unpack_size(unpacker, thread, code >> CODE_SIZE_SHIFT & CODE_FULL, event))
        return false;
    if (event->operation == TRACE_RESIZE_FAILED)
        return true;
    return takes_block(event->operation) ? unpack_new_place(unpacker, event)
                                         : unpack_old_place(unpacker, thread, event);
}

uint32_t unpack_thread_id(const struct unpacker *unpacker) { return unpacker->thread_id; }

bool unpack_ends(const struct unpacker *unpacker)
{
    for (unsigned i = 0; i < COLUMNS; i++)
        if (unpacker->columns[i].at != unpacker->columns[i].end)
            return false;
    return true;
}

static bool unpack_frame(struct unpacker *unpacker, unsigned depth, uint64_t *address)
{
    struct trace_frames *frames = &unpacker->frames;
    uint64_t code, step;
    if (!take(&unpacker->columns[STACK_FRAME], &code))
        return false;
    uint32_t id;
    if (code < FRAME_GUESSES) {
        id = frames_guess(frames, depth, (unsigned)code);
    } else if (code == FRAME_NEW) {
        if (!take(&unpacker->columns[STACK_ADDRESS], &step))
            return false;
        unpacker->new_frame += (uint64_t)signed_of(step);
        id = frames_add(frames, unpacker->new_frame);
    } else {
        id =
            code - FRAME_KNOWN < frames->count ? frames->count - (uint32_t)(code - FRAME_KNOWN) : 0;
    }
    if (id == 0)
        return false;
    frames_was(frames, depth, id);
    *address = frames->addresses[id];
    return true;
}

static bool unpack_stacks(struct unpacker *unpacker, struct trace_stacks *stacks, uint32_t count)
{
    uint32_t before = 0;
    uint64_t number = 0, depth = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t step, less, own, frames[TRACE_DEPTH];
        if (!take(&unpacker->columns[STACK_NUMBER], &step) ||
            !take(&unpacker->columns[STACK_SHARED], &less) ||
            !take(&unpacker->columns[STACK_OWN], &own) || less > depth ||
            own / 2 > TRACE_DEPTH - (depth - less))
            return false;
        number += 1 + (uint64_t)signed_of(step);
        uint64_t shared = depth - less;
        depth = shared + own / 2;
        for (uint64_t j = shared; j < depth; j++)
            if (!unpack_frame(unpacker, (unsigned)j, &frames[j - shared]))
                return false;
        if (!stacks_add(stacks, &before, number, shared, frames, (unsigned)(own / 2), own & 1))
            return false;
    }
    return unpack_ends(unpacker);
}

// Reads the columns of a block. Returns: NULL, or a description of the damage.
static const char *read_columns(struct unpacker *unpacker, struct trace_input *input,
                                const struct block_head *head)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < COLUMNS; i++) {
        if (head->bytes[i] > BLOCK_BYTES_MOST - bytes)
            return "a block has an invalid length";
        bytes += head->bytes[i];
    }
    if (bytes > input->bytes_most)
        return "the file is truncated";
    if (bytes >= unpacker->room) { // a block may be empty, even the first one
        unpacker->bytes = more_memory(unpacker->bytes, bytes + 1);
        unpacker->room = bytes + 1;
    }
    ssize_t got = input_read(input, unpacker->bytes, bytes);
    if (got < 0)
        return strerror((int)-got);
    if ((size_t)got < bytes)
        return "the file is truncated";
    const unsigned char *at = unpacker->bytes;
    for (unsigned i = 0; i < COLUMNS; i++) {
        unpacker->columns[i] = (struct part){at, at + head->bytes[i]};
        at += head->bytes[i];
    }
    return NULL;
}

const char *unpack_block(struct unpacker *unpacker, struct trace_input *input,
                         struct trace_stacks *stacks, struct unpacked_block *block)
{
    struct block_head head;
    *block = (struct unpacked_block){0};
    ssize_t got = input_read(input, &head, sizeof head);
    if (got < 0)
        return strerror((int)-got);
    if ((size_t)got < sizeof head)
        return "the file is truncated";
    const char *wrong = read_columns(unpacker, input, &head);
    if (wrong)
        return wrong;
    switch (head.kind) {
    case BLOCK_OF_EVENTS:
        block->events = head.count;
        block->row_bytes = head.row_bytes;
        unpacker->all += head.count;
        if (head.count > BLOCK_EVENTS_MOST)
            return "a block has too many events";
        return unpack_gap(unpacker) ? NULL : "the start of a block is damaged";
    case BLOCK_OF_STACKS:
        return unpack_stacks(unpacker, stacks, head.count) ? NULL : "a stack is damaged";
    case BLOCK_OF_TEXT:
        block->text = unpacker->bytes;
        block->text_bytes = head.bytes[0];
        return NULL;
    case BLOCK_END:
        block->end = true;
        return head.row_bytes == unpacker->all ? NULL : "events are missing";
    default:
        return "a block has an unknown kind";
    }
}
