/* The persistent heap's headers, mark, heads of the logs and chunks; making the log durable; and
 * the sentences that say why a heap is refused. The layout is described in persist_format.h.
 *
 * Headers. A header is one sector. A header is written in turn to two places 32 KiB apart, and an
 * fdatasync follows, so a write that is cut only damages the older one. Reading takes the sound
 * header with the higher turn. A crash may leave one header that is not sound; the next write
 * replaces it. If a header was damaged otherwise, the log shows it: see log_end.later.
 *
 * Mark. The mark holds a commit that was acknowledged. The mark is written after the fdatasync that
 * made the commit durable and before any caller learns of it, without an fdatasync of its own. So
 * the mark never claims more than the log held, and a log that holds less was cut or replaced. A
 * program that ends or is killed leaves the mark of its last acknowledged commit. After a power
 * loss the mark may be older, but at least as new as the last checkpoint, whose fdatasync covers
 * it. A mark that is not sound counts as none: no crash causes it, and alone it loses nothing.
 *
 * Heads of the logs. A head names the heap, the opening, and the commit that the heap's file held
 * at that time. Both heads are durable before the header asks for the logs, and no commit is
 * written to a log before that header is durable. So, whatever crash happens:
 *   - While the header says PERSIST_LOGGING, each log has the head of the header's opening.
 *   - If the header asks for no log, a log of a later opening shows that the heap's file was
 *     replaced, if it holds a commit or was begun with a later commit than the header's.
 *
 * Writing chunks. Pages are copied into a buffer, and the checksum and the write use the buffer, so
 * a thread that writes to the page at the same time cannot spoil the checksum. Each chunk is one
 * write. The disk gets the chunks of a large commit one by one, and those of a small commit with
 * the fdatasync.
 *
 * Reading chunks. A row of whole commits with consecutive numbers begins at PERSIST_LOG_START and
 * ends at the first chunk that is not whole or does not follow. Behind it there may be parts of a
 * commit that failed, and older contents of the segment with lower numbers. A whole chunk with a
 * higher number, whose writer knew that a commit which is now missing was durable, is damage that
 * no crash causes. Damage to the last commit, and the loss of the file's end, look like a commit
 * that a crash cut off. The mark distinguishes them.
 *
 * Flushing. One thread flushes without the lock, for all commits that were written when it began.
 * Other threads wait for its end, and then flush themselves if that is still necessary. Thus
 * many commits share one fdatasync. The kernel reports a failed write-back of a file to one
 * fdatasync only. So two of them must not run at a time on one file, or the successful one would
 * report as durable what the other one lost. `flushing` ensures this for the log; header_lock and
 * file_error ensure it for the heap's file.
 *
 * Threads: those functions that need a lock say so in persist_heap.h.
 */
#include "base/atomic.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/host.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"
#include "region/persist_heap.h"

#include <errno.h>

static uint64_t persist_header_sum(const struct persist_header *header)
{
    return checksum_of(header, offsetof(struct persist_header, checksum), PERSIST_MAGIC);
}

static bool persist_is_sound(const struct persist_header *header)
{
    return header->magic == PERSIST_MAGIC && header->checksum == persist_header_sum(header);
}

/* The sentences are static, because they outlive the open to which they belong, and the library has
 * no memory for each thread. */
const char *persist_sentence(const char *format, ...)
{
    enum { SENTENCES = 16, SENTENCE_BYTES = 256 };
    static char sentences[SENTENCES][SENTENCE_BYTES];
    static unsigned count; /* atomic: number of calls */
    char *sentence = sentences[fetch_add_relaxed(&count, 1u) % SENTENCES];
    va_list arguments;
    va_start(arguments, format);
    (void)format_text_list(sentence, SENTENCE_BYTES, format, arguments);
    va_end(arguments);
    return sentence;
}

/* The reason why a sound header is not for this library or this machine; NULL if it is. */
static const char *persist_foreign(const struct persist_header *header)
{
    if (header->byte_order != PERSIST_BYTE_ORDER)
        return "the heap was written by a machine of another byte order";
    if (header->version != PERSIST_VERSION)
        return persist_sentence("the heap's format is version %u, and this library knows %u only",
                                header->version, (unsigned)PERSIST_VERSION);
    if (header->page_bytes != os_page_size())
        return "the heap was written by a machine with another page size";
    return NULL;
}

int header_read(int file, struct persist_header *header, const char **why)
{
    struct persist_header twins[2];
    int64_t size = os_file_size(file);
    if (size < 0)
        return (int)size;
    if (size < PERSIST_DATA_OFFSET) {
        *why = "the file is too short for a heap";
        return -ENOTSUP;
    }
    for (unsigned i = 0; i < 2; i++) {
        int error = os_file_read(file, &twins[i], sizeof twins[i],
                                 (uint64_t)i * PERSIST_HEADER_SPACING_BYTES);
        if (error != 0)
            return error;
    }
    bool sound[2] = {persist_is_sound(&twins[0]), persist_is_sound(&twins[1])};
    if (!sound[0] && !sound[1]) {
        bool ours = twins[0].magic == PERSIST_MAGIC || twins[1].magic == PERSIST_MAGIC;
        *why = ours ? "both headers of the heap are damaged" : "the file is not a heap";
        return ours ? -EBADMSG : -ENOTSUP;
    }
    unsigned newer = sound[1] && (!sound[0] || twins[1].turn > twins[0].turn);
    *header = twins[newer];
    *why = persist_foreign(header);
    if (*why)
        return -ENOTSUP;
    if (header->data_bytes > (uint64_t)size - PERSIST_DATA_OFFSET) {
        *why = "the heap's file is shorter than it was";
        return -EBADMSG;
    }
    return 0;
}

int header_write(int file, struct persist_header *header)
{
    header->turn++;
    header->checksum = persist_header_sum(header);
    int error = os_file_write(file, header, sizeof *header,
                              header->turn % 2 * PERSIST_HEADER_SPACING_BYTES);
    return error != 0 ? error : os_file_sync(file);
}

static uint64_t persist_mark_sum(const struct persist_mark *mark)
{
    return checksum_of(mark, offsetof(struct persist_mark, checksum), PERSIST_MARK_MAGIC);
}

uint64_t mark_read(const struct cairn_persist *heap)
{
    struct persist_mark mark;
    bool sound = os_file_read(heap->file, &mark, sizeof mark, PERSIST_MARK_OFFSET) == 0 &&
                 mark.magic == PERSIST_MARK_MAGIC && mark.checksum == persist_mark_sum(&mark) &&
                 mark.identity == heap->header.identity;
    return larger_of(sound ? mark.acknowledged : 0, heap->header.checkpoint);
}

void mark_write(int file, uint64_t identity, uint64_t acknowledged)
{
    struct persist_mark mark = {
        .magic = PERSIST_MARK_MAGIC, .identity = identity, .acknowledged = acknowledged};
    mark.checksum = persist_mark_sum(&mark);
    (void)os_file_write(file, &mark, sizeof mark, PERSIST_MARK_OFFSET);
}

static uint64_t persist_head_sum(const struct persist_log_head *head)
{
    return checksum_of(head, offsetof(struct persist_log_head, checksum), PERSIST_LOG_MAGIC);
}

int log_head_write(const struct cairn_persist *heap, unsigned index)
{
    struct persist_log_head head = {.magic = PERSIST_LOG_MAGIC,
                                    .identity = heap->header.identity,
                                    .session = heap->header.session,
                                    .opening = heap->header.opening,
                                    .index = index,
                                    .begun = heap->header.checkpoint};
    head.checksum = persist_head_sum(&head);
    int file = heap->segments[index].file;
    int error = os_file_truncate(file, 0);
    if (error == 0)
        error = os_file_write(file, &head, sizeof head, 0);
    return error != 0 ? error : os_file_sync(file);
}

int log_head_read(const struct cairn_persist *heap, unsigned index, struct persist_log_head *head)
{
    int error = os_file_read(heap->segments[index].file, head, sizeof *head, 0);
    if (error != 0)
        return error == -ENODATA ? 0 : error;
    return head->magic == PERSIST_LOG_MAGIC && head->checksum == persist_head_sum(head);
}

bool log_head_fits(const struct cairn_persist *heap, unsigned index,
                   const struct persist_log_head *head)
{
    const struct persist_header *header = &heap->header;
    return head->identity == header->identity && head->session == header->session &&
           head->opening == header->opening && head->index == index;
}

int persist_refusal(const struct cairn_persist *heap)
{
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return EROFS;
    if (os_process_id() != heap->process)
        return EPERM;
    return heap->error;
}

/* The arguments of a flush. The arguments are copied with the lock held, because growth writes the
 * header while a flush runs without the lock. */
struct flush {
    int log, file;
    uint64_t identity;
    uint64_t covered; /* number of the last commit that it makes durable */
};

static struct flush persist_flush_of(const struct cairn_persist *heap)
{
    return (struct flush){heap->segments[heap->current].file, heap->file, heap->header.identity,
                          heap->written};
}

/* Does steps C2 and C3 of persist_commit.c: flushes the log and writes the mark. */
static int persist_flush_do(const struct flush *flush)
{
    int error = os_file_sync(flush->log);
    if (error == 0)
        mark_write(flush->file, flush->identity, flush->covered);
    return error;
}

int persist_flush(struct cairn_persist *heap)
{
    if (heap->durable == heap->written)
        return 0;
    struct flush flush = persist_flush_of(heap);
    int error = persist_flush_do(&flush);
    heap->syncs++;
    if (error == 0)
        heap->durable = heap->written;
    else
        heap->error = -error;
    return error;
}

void persist_end_busy(struct cairn_persist *heap, bool *mark)
{
    *mark = false;
    fetch_add_acq_rel(&heap->generation, 1u); /* pairs with persist_wait_busy */
    host_wake(&heap->generation, UINT32_MAX);
}

void persist_wait_busy(struct cairn_persist *heap)
{
    uint32_t seen = load_acquire(&heap->generation); /* pairs with persist_end_busy */
    fork_lock_release(&heap->lock);
    host_wait(&heap->generation, seen);
    fork_lock_acquire(&heap->lock);
}

/* Makes all commits durable that are written at its start.
 * Locking: lock held, and released during the fdatasync; `flushing` is not set. */
static void persist_flush_unlocked(struct cairn_persist *heap)
{
    heap->flushing = true;
    struct flush flush = persist_flush_of(heap);
    fork_lock_release(&heap->lock);
    int error = persist_flush_do(&flush);
    fork_lock_acquire(&heap->lock);
    heap->syncs++;
    if (error != 0 && heap->error == 0)
        heap->error = -error;
    if (error == 0 && heap->durable < flush.covered)
        heap->durable = flush.covered;
    persist_end_busy(heap, &heap->flushing);
}

int persist_wait_durable(struct cairn_persist *heap, uint64_t sequence)
{
    fork_lock_acquire(&heap->lock);
    while (heap->error == 0 && heap->durable < sequence) {
        if (heap->flushing)
            persist_wait_busy(heap);
        else
            persist_flush_unlocked(heap);
    }
    int error = heap->durable >= sequence ? 0 : heap->error;
    fork_lock_release(&heap->lock);
    return error;
}

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

static uint64_t persist_chunk_sum(const struct persist_chunk *chunk, size_t page_bytes,
                                  uint64_t seed)
{
    return checksum_of((const char *)chunk + PERSIST_CHUNK_SUMMED_FROM,
                       chunk_bytes(chunk->pages, page_bytes) - PERSIST_CHUNK_SUMMED_FROM, seed);
}

/* A chunk under construction, in heap->buffer. The images are at their places in a full chunk. If
 * there are fewer pages, the head and the page numbers move up to them. */
struct builder {
    struct cairn_persist *heap;
    struct segment *segment;
    uint64_t offset;  /* offset of the chunk in the segment's file */
    uint64_t started; /* offset up to which the kernel was made to begin writing */
    struct persist_chunk head;
};

/* Makes the kernel begin to write the commit, except its last page, to which the next chunk
 * adds. */
static void persist_start_writing(struct builder *builder)
{
    uint64_t end = builder->offset / builder->heap->page_bytes * builder->heap->page_bytes;
    if (end > builder->started)
        os_file_start_writing(builder->segment->file, builder->started, end - builder->started);
    builder->started = end;
}

/* Completes the chunk, writes it, and begins the next one. */
static int persist_write_chunk(struct builder *builder)
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
    chunk->checksum = persist_chunk_sum(chunk, page, log_seed(&heap->header));
    size_t room = chunk_room(pages, page);
    __builtin_memset(start + chunk_bytes(pages, page), 0, room - chunk_bytes(pages, page));
    int error = os_file_write(builder->segment->file, start, room, builder->offset);
    builder->offset += room;
    if (error == 0 && !builder->head.is_last)
        persist_start_writing(builder);
    builder->head.before = chunk->checksum;
    builder->head.number++;
    builder->head.pages = 0;
    return error;
}

/* The thread sanitizer does not see these reads: cairn/persist.h describes the effect of concurrent
 * writes. */
not_instrumented void page_copy(void *to, const void *page, size_t page_bytes)
{
    if (!config_tsan) {
        __builtin_memcpy(to, page, page_bytes);
        return;
    }
    for (size_t i = 0; i < page_bytes / 8; i++)
        ((uint64_t *)to)[i] = ((const volatile uint64_t *)page)[i];
}

not_instrumented bool page_differs(const void *image, const void *page, size_t page_bytes)
{
    if (!config_tsan)
        return __builtin_memcmp(image, page, page_bytes) != 0;
    for (size_t i = 0; i < page_bytes / 8; i++)
        if (((const uint64_t *)image)[i] != ((const volatile uint64_t *)page)[i])
            return true;
    return false;
}

/* Adds a page's number and its image to the chunk. */
static void persist_add_page(struct builder *builder, size_t page)
{
    struct cairn_persist *heap = builder->heap;
    size_t size = heap->page_bytes;
    uint64_t *numbers = (uint64_t *)(void *)(heap->buffer + sizeof(struct persist_chunk));
    uint32_t index = builder->head.pages++;
    numbers[index] = page;
    page_copy(heap->buffer + chunk_image_offset(chunk_pages_written(size), index, size),
              heap->base + page * size, size);
}

size_t persist_next_to_log(const struct cairn_persist *heap, size_t from)
{
    size_t end = persist_pages(heap);
    size_t page = bit_find(heap->dirty, from, end);
    while (page < end && !persist_is_to_log(heap, page))
        page = bit_find(heap->dirty, page + 1, end);
    return page;
}

/* Notes the places of the images of a commit, which is completely in the log now. */
static void persist_note_places(struct cairn_persist *heap, struct segment *segment, size_t pages)
{
    size_t size = heap->page_bytes;
    uint32_t most = chunk_pages_written(size);
    uint64_t chunk = segment->length;
    size_t page = persist_next_to_log(heap, 0);
    for (size_t left = pages; left > 0;) {
        uint32_t count = (uint32_t)smaller_of(left, most);
        for (uint32_t i = 0; i < count; i++, page = persist_next_to_log(heap, page + 1)) {
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
    size_t page = persist_next_to_log(heap, 0);
    for (size_t left = pages; left > 0; left--, page = persist_next_to_log(heap, page + 1)) {
        persist_add_page(&builder, page);
        builder.head.is_last = left == 1;
        builder.head.total_pages = left == 1 ? pages : 0;
        int error = left == 1 || builder.head.pages == most ? persist_write_chunk(&builder) : 0;
        if (error != 0)
            return error;
    }
    persist_note_places(heap, segment, pages);
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
    uint64_t end; /* end of what may be read */
    char *buffer; /* PERSIST_CHUNK_MAX_BYTES */
};

static const struct persist_chunk *persist_chunk_in(const struct walk *walk)
{
    return (const struct persist_chunk *)(const void *)walk->buffer;
}

/* Reads the chunk at `offset` into the buffer.
 * Returns: 1 when it is whole, 0 when it is not, or a negative errno. */
static int persist_read_chunk(const struct walk *walk, uint64_t offset)
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
    return chunk->checksum == persist_chunk_sum(chunk, walk->page_bytes, walk->seed);
}

/* Visits all images of the chunk in the buffer. */
static int persist_visit_chunk(const struct walk *walk, uint64_t offset, log_visit *visit,
                               void *context)
{
    const struct persist_chunk *chunk = persist_chunk_in(walk);
    const uint64_t *numbers = (const uint64_t *)(const void *)(chunk + 1);
    for (uint32_t i = 0; i < chunk->pages; i++) {
        size_t image = chunk_image_offset(chunk->pages, i, walk->page_bytes);
        int error = visit(context, numbers[i], walk->buffer + image, offset + image);
        if (error != 0)
            return error;
    }
    return 0;
}

/* The smallest number of pages of a heap that has all images of a chunk. */
static uint64_t persist_pages_for(const struct persist_chunk *chunk)
{
    const uint64_t *numbers = (const uint64_t *)(const void *)(chunk + 1);
    uint64_t pages = 0;
    for (uint32_t i = 0; i < chunk->pages; i++)
        if (numbers[i] >= pages)
            pages = numbers[i] == UINT64_MAX ? UINT64_MAX : numbers[i] + 1;
    return pages;
}

/* Updates found->later from the chunk at `offset`, if there is a whole one. */
static int persist_look_at(const struct walk *walk, uint64_t offset, struct log_end *found)
{
    const struct persist_chunk *chunk = persist_chunk_in(walk);
    int whole = persist_read_chunk(walk, offset);
    if (whole > 0 && chunk->durable > found->later)
        found->later = chunk->durable;
    return whole < 0 ? whole : 0;
}

/* Updates found->later from all whole chunks behind the end of the row. */
static int persist_look_beyond(const struct walk *walk, struct log_end *found)
{
    enum { STEP_SECTORS = 32 };
    uint64_t words[STEP_SECTORS * PERSIST_SECTOR_BYTES / 8];
    for (uint64_t at = found->length; at < walk->end; at += sizeof words) {
        size_t size = smaller_of(walk->end - at, sizeof words);
        int error = os_file_read(walk->file, words, size, at);
        for (size_t i = 0; error == 0 && i < size; i += PERSIST_SECTOR_BYTES)
            if (size - i >= sizeof *words && words[i / 8] == PERSIST_CHUNK_MAGIC)
                error = persist_look_at(walk, at + i, found);
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
    const struct persist_chunk *chunk = persist_chunk_in(&walk);
    struct log_end found = {.length = PERSIST_LOG_START};
    uint64_t before = seed;
    uint64_t offset = PERSIST_LOG_START;
    uint64_t pages = 0;
    uint32_t number = 0;
    for (;;) {
        int whole = persist_read_chunk(&walk, offset);
        if (whole < 0)
            return whole;
        if (offset == PERSIST_LOG_START && whole && chunk->number == 0 && chunk->sequence != 0) {
            found.first = chunk->sequence;
            found.last = found.first - 1;
        }
        if (!whole || found.first == 0 || chunk->sequence != found.last + 1 ||
            chunk->number != number || chunk->before != before)
            break;
        int error = visit ? persist_visit_chunk(&walk, offset, visit, context) : 0;
        if (error != 0)
            return error;
        pages = larger_of(pages, persist_pages_for(chunk));
        before = chunk->is_last ? seed : chunk->checksum;
        number = chunk->is_last ? 0 : number + 1;
        offset += chunk_room(chunk->pages, page_bytes);
        if (chunk->is_last) {
            found.last = chunk->sequence;
            found.length = offset;
            found.pages = pages;
        }
    }
    *end = found;
    return visit ? 0 : persist_look_beyond(&walk, end);
}
