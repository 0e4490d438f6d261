/* Descriptors, runs and failure: see frame.h. */
#include "frame/frame.h"

#include <errno.h>

/* A free descriptor is linked by a word behind it, so that it keeps what it was given back with: a
 * stale handle finds no owner, no position and no limit there. The head holds its address, a
 * multiple of 64 below 2^48, and in the other 22 bits a number that every change of the head makes
 * new: a descriptor that was taken and given back meanwhile does not pass for the unchanged list.
 */
static uintptr_t heads[CELL_KINDS] cache_aligned; /* atomic */

enum { TAG_STEP = 1 };
#define TAG_MASK ((uintptr_t)0xffff00000000003f)

static const size_t cell_bytes[CELL_KINDS] = {
    [CELL_STACK] = CELL_BYTES, [CELL_STACK_BLOCK] = CELL_BYTES, [CELL_FIFO] = CELL_FIFO_BYTES,
    [CELL_RING] = CELL_BYTES,  [CELL_RING_CHUNK] = CELL_BYTES,
};

/* Atomic: the next free descriptor. */
static uintptr_t *link_of(enum cell_kind kind, void *descriptor)
{
    return (uintptr_t *)(void *)((char *)descriptor + cell_bytes[kind]);
}

static uintptr_t next_tag(uintptr_t head)
{
    uintptr_t low = head & 63;
    uintptr_t high = head >> 48;
    low = (low + TAG_STEP) & 63;
    high = low == 0 ? (high + 1) & 0xffff : high;
    return high << 48 | low;
}

void *cell_take(enum cell_kind kind)
{
    pages_start();
    uintptr_t head = load_acquire(&heads[kind]); /* pairs with the release in cell_give */
    while ((head & ~TAG_MASK) != 0) {
        void *descriptor = (void *)(head & ~TAG_MASK);
        /* May be another's by now; then the exchange fails. Descriptors stay mapped, so reading it
         * is safe. */
        uintptr_t next = load_relaxed(link_of(kind, descriptor));
        if (compare_swap_acq_rel(&heads[kind], &head, next | next_tag(head)))
            return descriptor;
    }
    return meta_take(META_HOT, cell_bytes[kind] + sizeof(uintptr_t));
}

void cell_give(enum cell_kind kind, void *descriptor)
{
    uintptr_t head = load_relaxed(&heads[kind]);
    do {
        store_relaxed(link_of(kind, descriptor), head & ~TAG_MASK);
        /* release: the next owner sees what this one left */
    } while (!compare_swap_acq_rel(&heads[kind], &head, (uintptr_t)descriptor | next_tag(head)));
}

struct span *run_take(size_t size_bytes, size_t alignment_bytes)
{
    size_t granule = os_page_size();
    if (size_bytes > PTRDIFF_MAX - granule)
        return NULL;
    size_t pages = align_up(size_bytes, granule) >> PAGE_SHIFT;
    struct span *span = pages_take(pages, larger_of(alignment_bytes, granule));
    if (span)
        store_relaxed(&span->tag, (uint8_t)SPAN_RUN);
    return span;
}

void run_give(struct span *span)
{
    mark_defined(span->base, run_bytes(span));
    pages_give(span);
}

bool frame_checked(void) { return config_debug || memory_marks_active(); }

bool frame_interval_over(uint64_t *interval_start_ms)
{
    uint64_t now = os_now_ms();
    if (likely(now - *interval_start_ms < FRAME_DECAY_MS))
        return false;
    *interval_start_ms = now;
    return true;
}

bool frame_try_again(bool (*out_of_memory)(void *, size_t), void *context, size_t size_bytes)
{
    if (out_of_memory == NULL)
        return false;
    int saved = errno;
    bool again = out_of_memory(context, size_bytes);
    errno = saved;
    return again;
}

void *frame_no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *frame_invalid(void)
{
    errno = EINVAL;
    return NULL;
}

void frame_copy_name(char *to, const char *name, const char *otherwise)
{
    format_text(to, FRAME_NAME_BYTES, "%s", name ? name : otherwise);
}
