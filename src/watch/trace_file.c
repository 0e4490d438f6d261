/* Making the file of a trace, mapping its chunks, and ending it: see trace_file.h. */
#include "watch/trace_file.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"

#include <errno.h>
#include <string.h>

enum {
    ORDER_BITS = 40, /* low bits of `begun`; the number of chunks is above */
    NUMBERS_MAX = 10000,
    OWN_BYTES = 32, /* room in a path for .PROCESS.NUMBER */
};

struct trace_file trace_file = {.file = {.number = -1}};

bool trace_file_place(const char *path, size_t length_bytes, uint64_t limit_bytes)
{
    if (length_bytes + OWN_BYTES > sizeof trace_file.path)
        return false;
    memcpy(trace_file.path, path, length_bytes);
    trace_file.path_bytes = length_bytes;
    trace_file.limit_bytes = limit_bytes;
    return true;
}

/* Maps the page of the state, which reads zero in a child of fork.
 *
 * Returns: 0 or a negative errno; -EOPNOTSUPP if the kernel cannot wipe it. */
static int trace_file_make_state(void)
{
    uint32_t *state = os_map(os_page_size());
    if (state == NULL)
        return -ENOMEM;
    if (os_wipe_in_children(state, os_page_size()) != 0) {
        (void)os_unmap(state, os_page_size());
        return -EOPNOTSUPP;
    }
    trace_file.state = state;
    return 0;
}

void trace_file_set_state(uint32_t state)
{
    store_release(trace_file.state, state); /* pairs with trace_file_state */
}

/* Makes the next file whose name is free, and stores its number.
 *
 * Returns: a descriptor or a negative errno. */
static int trace_file_open_new(uint32_t *number)
{
    char *own = trace_file.path + trace_file.path_bytes;
    int file = -EEXIST;
    for (*number = 1; *number <= NUMBERS_MAX; ++*number) {
        (void)format_text(own, OWN_BYTES, ".%u.%u", trace_file.process, *number);
        file = os_file_open(trace_file.path, OS_FILE_NEW_SECRET);
        if (file != -EEXIST)
            break;
    }
    return file;
}

uint64_t trace_file_now_ns(void) { return os_now_ns() / TRACE_TIME_STEP_NS * TRACE_TIME_STEP_NS; }

static void trace_file_fill_header(struct trace_header *header, uint32_t number, uint32_t parent,
                                   uint64_t fork_order)
{
    header->version = TRACE_VERSION;
    header->chunk_bytes = TRACE_CHUNK_BYTES;
    header->process = trace_file.process;
    header->number = number;
    header->parent = parent;
    header->machine = ELF_MACHINE;
    header->fork_order = fork_order;
    header->start_ns = trace_file_now_ns();
    header->start_date_s = os_date_s();
    header->limit_bytes = trace_file.limit_bytes;
    header->time_step_ns = TRACE_TIME_STEP_NS;
    header->flags = TRACE_FREE_STACKS;
    memcpy(header->magic, TRACE_MAGIC, sizeof header->magic);
}

int trace_file_begin(uint32_t parent, uint64_t fork_order)
{
    int error = trace_file.state == NULL ? trace_file_make_state() : 0;
    if (error != 0)
        return error;
    os_file_close_own(&trace_file.file); /* inherited, in the child of a fork */
    trace_file.process = os_process_id();
    store_relaxed(&trace_file.order.value, (uint64_t)0);
    store_relaxed(&trace_file.begun, (uint64_t)0);
    store_relaxed(&trace_file.ends, 0u);
    uint32_t number;
    error = os_file_own(&trace_file.file, trace_file_open_new(&number));
    int file = load_relaxed(&trace_file.file.number);
    if (error == 0)
        error = os_file_allot(file, 0, TRACE_HEADER_BYTES);
    void *header = error == 0 ? os_file_share(file, 0, TRACE_HEADER_BYTES) : NULL;
    if (header == NULL) {
        os_file_close_own(&trace_file.file);
        return error != 0 ? error : -ENOMEM;
    }
    trace_file.header = header;
    trace_file_fill_header(header, number, parent, fork_order);
    return 0;
}

/* Returns a descriptor of the trace's file. If the program closed it, perhaps to use its number for
 * a file of its own, the file is opened again. When two threads do so at once, one of the two
 * descriptors stays open without use. */
static int trace_file_find_file(void)
{
    if (likely(os_file_is_own(&trace_file.file)))
        return load_relaxed(&trace_file.file.number);
    struct os_own_file again = {os_file_open(trace_file.path, OS_FILE_WRITE),
                                trace_file.file.identity};
    if (!os_file_is_own(&again)) {
        os_file_close(again.number);
        return again.number < 0 ? again.number : -ENOENT;
    }
    int file = os_file_move_up(again.number);
    store_relaxed(&trace_file.file.number, file);
    return file;
}

/* Counts one more chunk, and stores its number and the least order of its events.
 *
 * Returns: false if the limit allows no more, or a counter is full. */
static bool trace_file_begin_chunk(uint64_t *number, uint64_t *first_order)
{
    uint64_t seen = load_relaxed(&trace_file.begun);
    uint64_t mask = ((uint64_t)1 << ORDER_BITS) - 1;
    uint64_t bound;
    do {
        *number = seen >> ORDER_BITS;
        uint64_t end = TRACE_HEADER_BYTES + (*number + 1) * TRACE_CHUNK_BYTES;
        if (trace_file.limit_bytes != 0 && end > trace_file.limit_bytes)
            return false;
        bound = larger_of(load_relaxed(&trace_file.order.value), seen & mask);
    } while (!compare_swap_acq_rel(&trace_file.begun, &seen, (*number + 1) << ORDER_BITS | bound));
    *first_order = bound;
    return bound < mask && *number < ((uint64_t)1 << (64 - ORDER_BITS)) - 2;
}

/* Raises the number of chunks in the header to `count`. */
static void trace_file_show_count(uint64_t count)
{
    uint64_t *chunks = &trace_file.header->chunks;
    uint64_t seen = load_relaxed(chunks);
    while (seen < count && !compare_swap_acq_rel(chunks, &seen, count))
        pause_processor();
}

struct trace_chunk *trace_file_chunk(uint64_t *first_order)
{
    uint64_t number;
    if (!trace_file_begin_chunk(&number, first_order)) {
        trace_file_end(TRACE_CUT, TRACE_LIMIT);
        return NULL;
    }
    uint64_t offset = TRACE_HEADER_BYTES + number * TRACE_CHUNK_BYTES;
    int file = trace_file_find_file();
    if (file < 0 || os_file_allot(file, offset, TRACE_CHUNK_BYTES) != 0) {
        trace_file_end(TRACE_CUT, TRACE_DISK);
        return NULL;
    }
    void *chunk = os_file_share(file, offset, TRACE_CHUNK_BYTES);
    if (chunk == NULL) {
        trace_file_end(TRACE_CUT, TRACE_MEMORY);
        return NULL;
    }
    /* One call costs less than a fault for each page. */
    (void)os_populate(chunk, TRACE_CHUNK_BYTES);
    trace_file_show_count(number + 1);
    return chunk;
}

struct trace_chunk *trace_file_next_chunk(struct trace_chunk **chunk, uint64_t *first_order)
{
    struct trace_chunk *full = *chunk;
    /* Before the unmapping: a fork in between leaves the child nothing to unmap. */
    *chunk = NULL;
    trace_file_unmap(full);
    return trace_file_chunk(first_order);
}

void trace_file_unmap(struct trace_chunk *chunk)
{
    if (chunk)
        os_file_unshare(chunk, TRACE_CHUNK_BYTES);
}

void trace_file_end(uint32_t state, uint32_t reason)
{
    uint32_t none = 0;
    if (!compare_swap_acq_rel(&trace_file.ends, &none, 1u))
        return;
    trace_file_set_state(TRACE_FILE_OFF);
    struct trace_header *header = trace_file.header;
    header->reason = reason;
    header->end_ns = os_now_ns();
    header->end_order = load_relaxed(&trace_file.order.value);
    store_release(&header->state, state); /* pairs with the readers of the file */
}
