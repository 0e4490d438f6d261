/* Statistics by size of blocks and by thread heap: see cairn/stats.h. One walk over all spans each,
 * while other threads go on; no state. */
#include "base/bits.h"
#include "heap/heap.h"
#include "heap/packed_words.h"

struct class_rows {
    cairn_heap_class_stats *rows;
    size_t count;
};

static bool see_class(struct span *span, char *start, void *context)
{
    (void)start;
    struct class_rows *wanted = context;
    unsigned tag = load_relaxed(&span->tag);
    if (tag < SPAN_SLAB || tag - SPAN_SLAB >= wanted->count)
        return true;
    cairn_heap_class_stats *row = &wanted->rows[tag - SPAN_SLAB];
    struct slab_count slab = heap_count_slab(span, tag - SPAN_SLAB);
    row->live_blocks += slab.live_blocks;
    row->free_blocks += slab.slots - smaller_of(slab.slots, slab.live_blocks);
    row->slabs++;
    row->slab_bytes += slab.slab_bytes;
    return true;
}

static size_t block_bytes(unsigned class)
{
    if (class == PACKED_CLASS)
        return PACKED_BYTES;
    return class_is_void(class) ? 0 : size_classes[class].size_bytes;
}

/* In the order of classes, that of packed slabs last. */
size_t heap_read_classes(cairn_heap_class_stats *rows, size_t count)
{
    const size_t there = CLASS_COUNT + config_packed;
    struct class_rows wanted = {rows, smaller_of(count, there)};
    for (unsigned class = 0; class < wanted.count; class ++)
        rows[class] = (cairn_heap_class_stats){.block_bytes = block_bytes(class)};
    if (wanted.count > 0)
        pages_each(see_class, &wanted);
    return there;
}

struct heap_rows {
    cairn_heap_thread_stats *rows;
    size_t room;  /* for so many */
    size_t there; /* so many heaps */
    size_t last;  /* the row found last: slabs of one heap come in runs */
};

static void note_heap(struct heap *heap, void *context)
{
    struct heap_rows *wanted = context;
    if (heap->program != NULL)
        return; /* it has statistics of its own */
    if (wanted->there < wanted->room)
        wanted->rows[wanted->there] = (cairn_heap_thread_stats){
            .heap = heap,
            .is_current = heap == thread_heap,
            .is_orphan = load_relaxed(&heap->state) == HEAP_ORPHAN,
        };
    wanted->there++;
}

static cairn_heap_thread_stats *row_of(struct heap_rows *wanted, const struct heap *heap)
{
    size_t given = smaller_of(wanted->there, wanted->room);
    for (size_t i = wanted->last; i < given; i++)
        if (wanted->rows[i].heap == heap)
            return &wanted->rows[wanted->last = i];
    for (size_t i = 0; i < smaller_of(wanted->last, given); i++)
        if (wanted->rows[i].heap == heap)
            return &wanted->rows[wanted->last = i];
    return NULL;
}

static bool see_heap(struct span *span, char *start, void *context)
{
    (void)start;
    unsigned tag = load_relaxed(&span->tag);
    if (tag < SPAN_SLAB || tag - SPAN_SLAB > PACKED_CLASS)
        return true;
    cairn_heap_thread_stats *row = row_of(context, slab_heap(span));
    if (row) {
        struct slab_count slab = heap_count_slab(span, tag - SPAN_SLAB);
        row->live_blocks += slab.live_blocks;
        row->live_bytes += slab.live_bytes;
        row->slabs++;
        row->slab_bytes += slab.slab_bytes;
    }
    return true;
}

size_t heap_read_threads(cairn_heap_thread_stats *rows, size_t count)
{
    struct heap_rows wanted = {rows, count, 0, 0};
    heaps_each(note_heap, &wanted);
    if (count > 0)
        pages_each(see_heap, &wanted);
    return wanted.there;
}
