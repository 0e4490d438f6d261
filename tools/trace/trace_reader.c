// Reads traces of both forms. The order of chunks in the file makes one pass sufficient, as
// TRACE-FORMAT.md explains. `bound` is the least order that another lane or the rest of the file
// can have. Up to it the current lane is read without examining the others.
#include "trace_reader.h"

#include "trace_columns.h"
#include "trace_decode.h"
#include "trace_input.h"
#include "trace_stacks.h"
#include "trace_unpack.h"

#include <stdlib.h>
#include <string.h>

// The shortest record of a stack or of a thread. Numbers are given in turn, so the file bounds them
// by the number of its records, also the tables by number here and in the tools.
enum { RECORD_BYTES_LEAST = 3, STACKS_MOST = (1 << 30) - 1, THREADS_MOST = (1 << 24) - 1 };

struct thread {
    uint32_t id;       // kernel's number
    uint64_t resizing; // address of a TRACE_RESIZE_FROM without its end; 0: none
};

struct trace {
    struct trace_header header;
    struct trace_input input;
    char *error;
    uint64_t chunks_read;
    struct trace_lane lanes[TRACE_LANES]; // open lanes have their next event decoded
    unsigned char *spare[TRACE_LANES];    // buffers of chunks
    unsigned spares;
    struct trace_lane *current; // NULL: to be chosen
    uint64_t bound;
    unsigned char *next;       // the chunk read but not opened; NULL: the file has ended
    struct unpacker *unpacker; // of the second form; NULL: the trace has the first
    uint32_t unpacked;         // remaining events of the block
    bool ended;                // the last block was read
    struct trace_stacks stacks;
    struct thread *threads; // by number
    uint64_t threads_most;  // a larger number is damage
    uint32_t thread_room, thread_count;
    char *text;
    size_t text_bytes;
    uint64_t event_bytes;
};

static struct trace_chunk *head_of(unsigned char *chunk) { return (void *)chunk; }

static void damaged(struct trace *trace, const char *what)
{
    if (trace->error == NULL)
        trace->error = sentence("%s, in %s %llu", what, trace->unpacker ? "block" : "chunk",
                                (unsigned long long)trace->chunks_read);
}

static unsigned char *take_buffer(struct trace *trace)
{
    return trace->spares > 0 ? trace->spare[--trace->spares] : more_memory(NULL, TRACE_CHUNK_BYTES);
}

static void give_buffer(struct trace *trace, unsigned char *buffer)
{
    if (trace->spares < TRACE_LANES)
        trace->spare[trace->spares++] = buffer;
    else
        free(buffer);
}

// Reads the next used chunk to trace->next, NULL at the end. A file that was copied while it grew
// may have only a part of its last chunk.
static void read_chunk(struct trace *trace)
{
    if (trace->next)
        give_buffer(trace, trace->next);
    trace->next = NULL;
    while (trace->chunks_read < trace->header.chunks && trace->error == NULL) {
        unsigned char *chunk = take_buffer(trace);
        ssize_t got = input_read(&trace->input, chunk, TRACE_CHUNK_BYTES);
        trace->chunks_read++;
        uint32_t used = got >= (ssize_t)sizeof(struct trace_chunk) ? head_of(chunk)->used : 0;
        if (got < 0)
            damaged(trace, strerror((int)-got));
        else if (used > TRACE_CHUNK_BYTES || (ssize_t)used > got || got == 0)
            damaged(trace, "the file is truncated");
        else if (used >= sizeof(struct trace_chunk) && head_of(chunk)->kind != TRACE_UNUSED) {
            trace->next = chunk;
            return;
        }
        give_buffer(trace, chunk);
    }
}

static void close_lane(struct trace *trace, struct trace_lane *lane)
{
    give_buffer(trace, lane->chunk);
    lane->chunk = NULL;
}

// Decodes the lane's next event, which stays in the lane until it is returned.
static void advance(struct trace *trace, struct trace_lane *lane)
{
    enum lane_result result = lane_decode(lane);
    if (result == LANE_EVENT)
        return;
    if (result == LANE_DAMAGED)
        damaged(trace, "an event is damaged");
    close_lane(trace, lane);
}

static void open_events(struct trace *trace)
{
    struct trace_chunk *head = head_of(trace->next);
    if (head->lane >= TRACE_LANES) {
        damaged(trace, "an event names a lane that does not exist");
        return;
    }
    struct trace_lane *lane = &trace->lanes[head->lane];
    if (lane->chunk) {
        damaged(trace, "two chunks of a lane overlap");
        return;
    }
    trace->event_bytes += head->used - sizeof *head;
    lane_begin(lane, trace->next);
    trace->next = NULL;
    advance(trace, lane);
}

static void add_text(struct trace *trace, const unsigned char *from, size_t bytes)
{
    trace->text = more_memory(trace->text, trace->text_bytes + bytes + 1);
    memcpy(trace->text + trace->text_bytes, from, bytes);
    trace->text_bytes += bytes;
    trace->text[trace->text_bytes] = '\0';
}

static void open_chunk(struct trace *trace)
{
    struct trace_chunk *head = head_of(trace->next);
    const unsigned char *from = trace->next + sizeof *head;
    const unsigned char *end = trace->next + head->used;
    if (head->kind == TRACE_EVENTS)
        open_events(trace);
    else if (head->kind == TRACE_STACKS && !stacks_decode(&trace->stacks, from, end))
        damaged(trace, "a stack is damaged");
    else if (head->kind == TRACE_TEXT)
        add_text(trace, from, (size_t)(end - from));
    read_chunk(trace);
}

// Chooses the lane with the least order, after opening every chunk that might have a smaller one.
static void choose(struct trace *trace)
{
    for (;;) {
        struct trace_lane *first = NULL;
        uint64_t second = UINT64_MAX;
        for (unsigned i = 0; i < TRACE_LANES; i++) {
            struct trace_lane *lane = &trace->lanes[i];
            if (lane->chunk == NULL)
                continue;
            if (first == NULL || lane->event.order < first->event.order) {
                second = first ? first->event.order : second;
                first = lane;
            } else if (lane->event.order < second) {
                second = lane->event.order;
            }
        }
        uint64_t rest = trace->next ? head_of(trace->next)->first_order : UINT64_MAX;
        trace->current = first;
        trace->bound = second < rest ? second : rest;
        if (trace->next == NULL || (first && first->event.order < rest) || trace->error)
            return;
        open_chunk(trace);
    }
}

static struct thread *thread_of(struct trace *trace, uint32_t number, uint32_t id)
{
    if (number >= trace->thread_room) {
        uint32_t room = number < 32 ? 64 : 2 * number;
        trace->threads = more_memory(trace->threads, room * sizeof *trace->threads);
        memset(trace->threads + trace->thread_room, 0,
               (room - trace->thread_room) * sizeof *trace->threads);
        trace->thread_room = room;
    }
    if (number > trace->thread_count)
        trace->thread_count = number;
    trace->threads[number].id = id;
    return &trace->threads[number];
}

static void join_resizes(struct trace *trace, struct trace_event *event)
{
    struct thread *thread = &trace->threads[event->thread];
    if (event->operation == TRACE_RESIZE_FROM) {
        thread->resizing = event->address;
        return;
    }
    event->old_address = thread->resizing;
    if (event->operation == TRACE_RESIZE_FAILED)
        event->address = thread->resizing;
    thread->resizing = 0;
}

static void read_block(struct trace *trace)
{
    struct unpacked_block block;
    const char *wrong = unpack_block(trace->unpacker, &trace->input, &trace->stacks, &block);
    trace->chunks_read++;
    if (wrong)
        damaged(trace, wrong);
    else if (block.text)
        add_text(trace, block.text, block.text_bytes);
    trace->unpacked = wrong ? 0 : block.events;
    trace->event_bytes += wrong ? 0 : block.row_bytes;
    trace->ended = block.end;
}

static bool next_of_columns(struct trace *trace, struct trace_event *event)
{
    while (trace->unpacked == 0 && !trace->ended && trace->error == NULL)
        read_block(trace);
    if (trace->unpacked == 0)
        return false;
    trace->unpacked--;
    if (!unpack_event(trace->unpacker, event) ||
        (trace->unpacked == 0 && !unpack_ends(trace->unpacker))) {
        damaged(trace, "an event is damaged");
        trace->unpacked = 0;
        return false;
    }
    uint32_t id = unpack_thread_id(trace->unpacker);
    if (event->thread >= trace->thread_room || trace->threads[event->thread].id != id)
        (void)thread_of(trace, event->thread, id);
    if (event->operation >= TRACE_RESIZE_FROM)
        join_resizes(trace, event);
    return true;
}

bool trace_next(struct trace *trace, struct trace_event *event)
{
    if (trace->unpacker)
        return next_of_columns(trace, event);
    struct trace_lane *lane = trace->current;
    if (lane == NULL || lane->chunk == NULL || lane->event.order >= trace->bound) {
        choose(trace);
        lane = trace->current;
        if (lane == NULL || trace->error != NULL)
            return false;
    }
    *event = lane->event;
    if (event->thread > trace->threads_most) {
        damaged(trace, "the number of a thread is larger than the file allows");
        return false;
    }
    if (event->thread >= trace->thread_room || trace->threads[event->thread].id != lane->thread_id)
        (void)thread_of(trace, event->thread, lane->thread_id);
    if (event->operation >= TRACE_RESIZE_FROM)
        join_resizes(trace, event);
    const struct trace_header *header = &trace->header;
    if (header->state != TRACE_RUNS && event->order >= header->end_order)
        return false;
    advance(trace, lane);
    return true;
}

size_t trace_read(struct trace *trace, struct trace_event *events, size_t most)
{
    size_t count = 0;
    while (count < most && trace_next(trace, &events[count]))
        count++;
    return count;
}

static char *check_header(const struct trace_header *header, ssize_t got)
{
    if (got < 0)
        return sentence("%s", strerror((int)-got));
    if (got < TRACE_HEADER_BYTES || memcmp(header->magic, TRACE_MAGIC, sizeof header->magic) != 0)
        return sentence("not a trace of Cairn");
    if (header->version < TRACE_VERSION || header->version > COLUMNS_VERSION ||
        header->chunk_bytes != TRACE_CHUNK_BYTES)
        return sentence("it has format version %u, this tool reads %d to %d", header->version,
                        TRACE_VERSION, COLUMNS_VERSION);
    return NULL;
}

struct trace *trace_open(const char *path, char **error)
{
    struct trace *trace = more_memory(NULL, sizeof *trace);
    memset(trace, 0, sizeof *trace);
    *error = input_open(&trace->input, path);
    if (*error == NULL) {
        static union {
            struct trace_header header;
            char bytes[TRACE_HEADER_BYTES];
        } first;
        ssize_t got = input_read(&trace->input, &first, sizeof first);
        trace->header = first.header;
        *error = check_header(&first.header, got);
    }
    if (*error) {
        char *what = *error;
        *error = sentence("cannot read %s: %s", path, what);
        free(what);
        trace_close(trace);
        return NULL;
    }
    add_text(trace, (const unsigned char *)"", 0);
    uint64_t records_most = trace->input.bytes_most / RECORD_BYTES_LEAST;
    trace->stacks.numbers_most = records_most < STACKS_MOST ? records_most : STACKS_MOST;
    trace->threads_most = records_most < THREADS_MOST ? records_most : THREADS_MOST;
    if (trace->header.version >= COLUMNS_VERSION_BEFORE)
        trace->unpacker = unpack_new(&trace->header, trace->threads_most);
    else
        read_chunk(trace);
    return trace;
}

void trace_close(struct trace *trace)
{
    if (trace == NULL)
        return;
    input_close(&trace->input);
    for (unsigned i = 0; i < TRACE_LANES; i++)
        free(trace->lanes[i].chunk);
    while (trace->spares > 0)
        free(trace->spare[--trace->spares]);
    free(trace->next);
    unpack_free(trace->unpacker);
    stacks_free(&trace->stacks);
    free(trace->threads);
    free(trace->text);
    free(trace->error);
    free(trace);
}

const struct trace_header *trace_head(const struct trace *trace) { return &trace->header; }

const char *trace_error(const struct trace *trace) { return trace->error; }

unsigned trace_stack(const struct trace *trace, uint32_t number, uint64_t frames[TRACE_DEPTH],
                     bool *cut)
{
    const struct trace_stacks *stacks = &trace->stacks;
    uint32_t head = number < stacks->count ? stacks->heads[number] : 0;
    unsigned depth = 0;
    for (uint32_t node = head >> 1; node != 0 && depth < TRACE_DEPTH;
         node = stacks->nodes[node].outer)
        frames[depth++] = stacks->nodes[node].frame;
    if (cut)
        *cut = (head & 1) != 0;
    return depth;
}

uint32_t trace_stack_count(const struct trace *trace)
{
    return trace->stacks.count > 0 ? trace->stacks.count - 1 : 0;
}

uint32_t trace_thread_count(const struct trace *trace) { return trace->thread_count; }

uint32_t trace_thread_id(const struct trace *trace, uint32_t thread)
{
    return thread < trace->thread_room ? trace->threads[thread].id : 0;
}

const char *trace_text(const struct trace *trace) { return trace->text; }

uint64_t trace_bytes(const struct trace *trace) { return trace->event_bytes; }
