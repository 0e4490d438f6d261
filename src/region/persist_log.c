/* The persistent heap's log: commits written, read and judged. persist_format.h has the layout.
 *
 * Writing: pages are copied into a buffer, summed there and written from there, so that a page that
 * another thread writes meanwhile cannot spoil its checksum; one write a chunk. Of a commit of many
 * chunks the disk is given each one at once; of a small one, all with the fdatasync.
 *
 * Reading: a row of whole commits with consecutive numbers, from the start of the file on. It ends
 * at the first chunk that is not whole or does not follow. Behind it there may be anything: parts
 * of a commit that failed, and what the segment held before, whose numbers are lower. A whole chunk
 * with a higher number whose writer knew that a commit in front of it, missing now, was durable is
 * damage: no crash leaves that. What cannot be told from a commit that was cut off by a crash is
 * damage to the last commit itself, or the loss of the file's end.
 */
#include "base/checksum.h"
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

size_t bit_find(const uint64_t *words, size_t from, size_t end)
{
    while (from < end) {
        uint64_t word = words[from / 64] >> from % 64;
        if (word != 0)
            return smaller_of(from + lowest_bit(word), end);
        from = (from / 64 + 1) * 64;
    }
    return end;
}

static uint64_t chunk_sum(const struct persist_chunk *chunk, size_t page_bytes, uint64_t seed)
{
    return checksum_of((const char *)chunk + PERSIST_CHUNK_SUMMED_FROM,
                       chunk_bytes(chunk->pages, page_bytes) - PERSIST_CHUNK_SUMMED_FROM, seed);
}

/* A chunk under construction. The images lie where they do in a full chunk; fewer pages move the
 * numbers and the head up to them. */
struct builder {
    struct cairn_persist *heap;
    struct segment *segment;
    uint64_t offset;  /* where the chunk goes */
    uint64_t started; /* up to there the disk was given the commit */
    struct persist_chunk head;
};

/* But for the last block, to which the next chunk adds. */
static void start_writing(struct builder *builder)
{
    uint64_t end = builder->offset / builder->heap->page_bytes * builder->heap->page_bytes;
    if (end > builder->started)
        os_file_start_writing(builder->segment->file, builder->started, end - builder->started);
    builder->started = end;
}

static int write_chunk(struct builder *builder)
{
    struct cairn_persist *heap = builder->heap;
    size_t page = heap->page_bytes;
    uint32_t most = chunk_pages_written(page);
    uint32_t pages = builder->head.pages;
    uint64_t *numbers = (uint64_t *)(void *)(heap->buffer + sizeof(struct persist_chunk));
    char *images = heap->buffer + chunk_image_offset(most, 0, page);
    char *start = images - chunk_image_offset(pages, 0, page);
    __builtin_memmove(start + sizeof(struct persist_chunk), numbers, pages * sizeof *numbers);
    struct persist_chunk *chunk = (struct persist_chunk *)(void *)start;
    *chunk = builder->head;
    chunk->checksum = chunk_sum(chunk, page, log_seed(&heap->header));
    size_t room = chunk_room(pages, page);
    __builtin_memset(start + chunk_bytes(pages, page), 0, room - chunk_bytes(pages, page));
    int error = os_file_write(builder->segment->file, start, room, builder->offset);
    builder->offset += room;
    if (error == 0 && !builder->head.is_last)
        start_writing(builder);
    builder->head.before = chunk->checksum;
    builder->head.number++;
    builder->head.pages = 0;
    return error;
}

/* Other threads may write to the page meanwhile: persist.h says what comes of it. */
unseen_by_tsan void page_copy(void *to, const void *page, size_t page_bytes)
{
    if (!config_tsan) {
        __builtin_memcpy(to, page, page_bytes);
        return;
    }
    for (size_t i = 0; i < page_bytes / 8; i++)
        ((uint64_t *)to)[i] = ((const volatile uint64_t *)page)[i];
}

unseen_by_tsan bool page_differs(const void *image, const void *page, size_t page_bytes)
{
    if (!config_tsan)
        return __builtin_memcmp(image, page, page_bytes) != 0;
    for (size_t i = 0; i < page_bytes / 8; i++)
        if (((const uint64_t *)image)[i] != ((const volatile uint64_t *)page)[i])
            return true;
    return false;
}

static void add_page(struct builder *builder, size_t page)
{
    struct cairn_persist *heap = builder->heap;
    size_t size = heap->page_bytes;
    uint64_t *numbers = (uint64_t *)(void *)(heap->buffer + sizeof(struct persist_chunk));
    uint32_t index = builder->head.pages++;
    numbers[index] = page;
    page_copy(heap->buffer + chunk_image_offset(chunk_pages_written(size), index, size),
              heap->base + page * size, size);
}

static size_t next_live(const struct cairn_persist *heap, size_t from)
{
    size_t end = persist_pages(heap);
    size_t page = bit_find(heap->dirty, from, end);
    while (page < end && bit_is_set(heap->dead, page))
        page = bit_find(heap->dirty, page + 1, end);
    return page;
}

/* Once the commit is in the log: where each page's image lies. */
static void note_places(struct cairn_persist *heap, struct segment *segment, size_t pages)
{
    size_t size = heap->page_bytes;
    uint32_t most = chunk_pages_written(size);
    uint64_t chunk = segment->length;
    size_t page = next_live(heap, 0);
    for (size_t left = pages; left > 0;) {
        uint32_t count = (uint32_t)smaller_of(left, most);
        for (uint32_t i = 0; i < count; i++, page = next_live(heap, page + 1)) {
            segment->where[page] = chunk + chunk_image_offset(count, i, size);
            bitmap_set(segment->logged, page, 1);
        }
        chunk += chunk_room(count, size);
        left -= count;
    }
}

int log_append(struct cairn_persist *heap, uint64_t sequence, size_t pages, uint64_t *bytes)
{
    struct segment *segment = &heap->segments[heap->current];
    struct builder builder = {
        .heap = heap, .segment = segment, .offset = segment->length, .started = segment->length};
    builder.head = (struct persist_chunk){.magic = PERSIST_CHUNK_MAGIC,
                                          .before = log_seed(&heap->header),
                                          .sequence = sequence,
                                          .durable = heap->durable};
    uint32_t most = chunk_pages_written(heap->page_bytes);
    size_t page = next_live(heap, 0);
    for (size_t left = pages; left > 0; left--, page = next_live(heap, page + 1)) {
        add_page(&builder, page);
        builder.head.is_last = left == 1;
        builder.head.total_pages = left == 1 ? pages : 0;
        int error = left == 1 || builder.head.pages == most ? write_chunk(&builder) : 0;
        if (error != 0)
            return error;
    }
    note_places(heap, segment, pages);
    *bytes = builder.offset - segment->length;
    segment->length = builder.offset;
    segment->last = sequence;
    return 0;
}

int log_read_image(const struct cairn_persist *heap, size_t page, char *to)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct segment *segment = &heap->segments[heap->current ^ i];
        if (bit_is_set(segment->logged, page))
            return os_file_read(segment->file, to, heap->page_bytes, segment->where[page]);
    }
    return os_file_read(heap->file, to, heap->page_bytes,
                        PERSIST_DATA_OFFSET + page * heap->page_bytes);
}

struct walk {
    int file;
    uint64_t seed;
    size_t page_bytes;
    uint64_t end; /* of what may be read */
    char *buffer; /* of PERSIST_CHUNK_MOST_BYTES */
};

/* The chunk at `offset` into the buffer: 1 when it is whole, 0 when not, or a negative errno. */
static int read_chunk(const struct walk *walk, uint64_t offset)
{
    struct persist_chunk *chunk = (struct persist_chunk *)(void *)walk->buffer;
    if (walk->end < offset || walk->end - offset < sizeof *chunk)
        return 0;
    int error = os_file_read(walk->file, chunk, sizeof *chunk, offset);
    if (error != 0)
        return error;
    if (chunk->magic != PERSIST_CHUNK_MAGIC || chunk->pages == 0 || chunk->is_last > 1 ||
        chunk->pages > chunk_pages_most(walk->page_bytes))
        return 0;
    size_t size = chunk_bytes(chunk->pages, walk->page_bytes);
    if (walk->end - offset < size)
        return 0;
    error = os_file_read(walk->file, chunk + 1, size - sizeof *chunk, offset + sizeof *chunk);
    if (error != 0)
        return error;
    return chunk->checksum == chunk_sum(chunk, walk->page_bytes, walk->seed);
}

static int visit_chunk(const struct walk *walk, uint64_t offset, log_visit *visit, void *context)
{
    const struct persist_chunk *chunk = (const struct persist_chunk *)(const void *)walk->buffer;
    const uint64_t *numbers = (const uint64_t *)(const void *)(chunk + 1);
    for (uint32_t i = 0; i < chunk->pages; i++) {
        size_t image = chunk_image_offset(chunk->pages, i, walk->page_bytes);
        int error = visit(context, numbers[i], walk->buffer + image, offset + image);
        if (error != 0)
            return error;
    }
    return 0;
}

/* What the whole chunk at `offset` knows, if there is one. */
static int look_at(const struct walk *walk, uint64_t offset, struct log_end *found)
{
    const struct persist_chunk *chunk = (const struct persist_chunk *)(const void *)walk->buffer;
    int whole = read_chunk(walk, offset);
    if (whole > 0 && chunk->durable > found->later)
        found->later = chunk->durable;
    return whole < 0 ? whole : 0;
}

/* What whole chunks behind the end of the row know. */
static int look_beyond(const struct walk *walk, struct log_end *found)
{
    enum { STEP_SECTORS = 32 };
    uint64_t words[STEP_SECTORS * PERSIST_SECTOR_BYTES / 8];
    for (uint64_t at = found->length; at < walk->end; at += sizeof words) {
        size_t size = smaller_of(walk->end - at, sizeof words);
        int error = os_file_read(walk->file, words, size, at);
        for (size_t i = 0; error == 0 && i < size; i += PERSIST_SECTOR_BYTES)
            if (size - i >= sizeof *words && words[i / 8] == PERSIST_CHUNK_MAGIC)
                error = look_at(walk, at + i, found);
        if (error != 0)
            return error;
    }
    return 0;
}

int log_walk(int file, uint64_t seed, size_t page_bytes, char *buffer, uint64_t most_bytes,
             struct log_end *end, log_visit *visit, void *context)
{
    int64_t size = os_file_size(file);
    if (size < 0)
        return (int)size;
    struct walk walk = {file, seed, page_bytes, (uint64_t)size, buffer};
    walk.end = smaller_of(walk.end, most_bytes);
    const struct persist_chunk *chunk = (const struct persist_chunk *)(const void *)buffer;
    struct log_end found = {0};
    uint64_t before = seed;
    uint64_t offset = 0;
    uint32_t number = 0;
    for (;;) {
        int whole = read_chunk(&walk, offset);
        if (whole < 0)
            return whole;
        if (offset == 0 && whole && chunk->number == 0 && chunk->sequence != 0) {
            found.first = chunk->sequence;
            found.last = found.first - 1;
        }
        if (!whole || found.first == 0 || chunk->sequence != found.last + 1 ||
            chunk->number != number || chunk->before != before)
            break;
        int error = visit ? visit_chunk(&walk, offset, visit, context) : 0;
        if (error != 0)
            return error;
        before = chunk->is_last ? seed : chunk->checksum;
        number = chunk->is_last ? 0 : number + 1;
        offset += chunk_room(chunk->pages, page_bytes);
        if (chunk->is_last) {
            found.last = chunk->sequence;
            found.length = offset;
        }
    }
    *end = found;
    return visit ? 0 : look_beyond(&walk, end);
}
