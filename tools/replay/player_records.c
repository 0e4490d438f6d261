// The player's loop over the records of a thread; program.h defines them.
//
// A chunk is read into the thread's own buffer and played. The loop exists in three forms: with the
// allocator under test; with the allocator and work between the records; and without allocator,
// where each block is the scratch page, which measures the cost of the player itself.
#include "player.h"

#include "sites.h"
#include "touch.h"
#include "work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct chunk_reader {
    struct player *player;
    uint32_t thread;
    uint64_t played; // number of records
    char *scratch;   // the thread's page of player.scratch
    uint64_t work;   // current value of the chain of work
    uint64_t zero;   // 0, unknown to the compiler and the processor
    uint64_t words[CHUNK_WORDS + RECORD_WORDS];
};

// Without an allocator: makes the same number of writes, all to the scratch page.
static void touch_scratch(char *scratch, uint64_t from, uint64_t size, bool pages)
{
    *(volatile uint64_t *)(void *)scratch = size;
    for (uint64_t at = from / PAGE * PAGE + PAGE; pages && at < size; at += PAGE)
        *(volatile char *)scratch = 1;
}

static ALWAYS_INLINE void touch(const struct player *player, bool empty, char *block, uint64_t from,
                                uint64_t size, bool zeroed)
{
    enum player_touch how = player->options.touch;
    if (!empty)
        touch_block(how, block, from, size, zeroed);
    else if (how != TOUCH_NOTHING) {
        touch_scratch(block, from, size, touches_pages(how, zeroed));
        if (how == TOUCH_FILL && !zeroed)
            fill(block, from, size);
    }
}

// Touches the new bytes after a resize that made the block larger.
static ALWAYS_INLINE void touch_grown(const struct player *player, bool empty, char *block,
                                      uint64_t before, uint64_t size)
{
    enum player_touch how = player->options.touch;
    if (!empty) {
        touch_more(how, block, before, size);
        return;
    }
    if (how != TOUCH_NOTHING)
        touch_scratch(block, before, size, touches_pages(how, false));
    if (how == TOUCH_FILL)
        append(block, PAGE - ELEMENT, before, size);
}

static _Noreturn void out_of_memory(uint64_t size)
{
    player_fail("the allocator is out of memory: %llu bytes refused", (unsigned long long)size);
}

static ALWAYS_INLINE void *allocate(const struct chunk_reader *reader, bool empty,
                                    enum record_kind kind, uint64_t size, uint64_t alignment)
{
    void *block;
    if (empty)
        return reader->scratch;
    if (kind == RECORD_ALLOC)
        block = malloc(size);
    else if (kind == RECORD_ZERO)
        block = calloc(1, size);
    else if (alignment < sizeof(void *) || posix_memalign(&block, alignment, size) != 0)
        block = NULL;
    if (__builtin_expect(!block, 0))
        out_of_memory(size);
    return block;
}

// Returns: the slot of a record that uses an object; the object must exist.
static ALWAYS_INLINE void **used_slot(const struct player *player, uint64_t word)
{
    uint32_t number = record_number(word);
    if (__builtin_expect(number >= player->header.slots || !player->slots[number], 0))
        player_damaged(player, "it uses a block that does not exist");
    return &player->slots[number];
}

static ALWAYS_INLINE void **empty_slot(const struct player *player, uint64_t word)
{
    uint32_t number = record_number(word);
    if (__builtin_expect(number >= player->header.slots || player->slots[number], 0))
        player_damaged(player, "it allocates a block that exists");
    return &player->slots[number];
}

static ALWAYS_INLINE void resize(const struct player *player, bool empty, void **slot,
                                 uint64_t size, uint64_t before)
{
    if (!empty) {
        // Some allocators free the block for a size of 0.
        void *block = realloc(*slot, size ? size : 1);
        if (__builtin_expect(!block, 0))
            out_of_memory(size);
        *slot = block;
    }
    if (size > before)
        touch_grown(player, empty, *slot, before, size);
}

static ALWAYS_INLINE struct site_record site_record(const struct chunk_reader *reader,
                                                    uint64_t word, uint64_t site)
{
    const struct program_header *header = &reader->player->header;
    if (__builtin_expect(
            site_policy(site) >= header->policies || site_thread(site) >= header->threads, 0))
        player_damaged(reader->player, "it names a policy that does not exist");
    return (struct site_record){
        .slot = record_number(word), .thread = reader->thread, .site = site};
}

static ALWAYS_INLINE void allocate_of_site(const struct chunk_reader *reader, bool empty,
                                           uint64_t word, uint64_t size, uint64_t site)
{
    struct player *player = reader->player;
    struct site_record record = site_record(reader, word, site);
    void **slot = empty_slot(player, word);
    if (empty) {
        *slot = reader->scratch;
        touch(player, true, *slot, 0, size, site_zero(site));
    } else if (!sites_allocate(player->sites, record, size, slot))
        out_of_memory(size);
}

static ALWAYS_INLINE void free_of_site(const struct chunk_reader *reader, bool empty, uint64_t word,
                                       uint64_t site)
{
    struct site_record record = site_record(reader, word, site);
    void **slot = used_slot(reader->player, word);
    if (empty)
        *slot = NULL;
    else
        sites_free(reader->player->sites, record, slot);
}

static void resize_of_site(const struct chunk_reader *reader, bool empty, uint64_t word,
                           uint64_t size, const uint64_t *more)
{
    struct player *player = reader->player;
    struct site_record record = site_record(reader, word, more[0]);
    void **slot = used_slot(player, word);
    if (empty && size > more[1])
        touch_grown(player, true, *slot, more[1], size);
    else if (!empty && !sites_resize(player->sites, record, size, more[1], slot))
        out_of_memory(size);
}

// Plays a record of a rare kind. Returns: the place of the next record.
static const uint64_t *play_rare(struct chunk_reader *reader, bool empty, uint64_t word,
                                 uint64_t size, const uint64_t *more)
{
    struct player *player = reader->player;
    uint32_t number = record_number(word);
    switch (record_kind(word)) {
    case RECORD_START:
    case RECORD_WAIT:
        if (number >= player->header.threads || number == reader->thread)
            player_damaged(player, "it names a thread that does not exist");
        if (record_kind(word) == RECORD_WAIT) {
            player_wait_for(player, number, *more);
            return more + 1;
        }
        player_start_thread(player, number);
        return more;
    case RECORD_SITE_RESIZE:
        resize_of_site(reader, empty, word, size, more);
        return more + 2;
    default:
        player_damaged(player, "it has a record of an unknown kind");
    }
}

// Does the work before a record. Returns: 0, to be added to its size; the value depends on the
// work.
static ALWAYS_INLINE uint64_t work_before(struct chunk_reader *reader)
{
    reader->work = work(reader->work, reader->player->work_steps);
    return reader->player->options.work == WORK_IN_LINE ? reader->work & reader->zero : 0;
}

// Makes the chain of work depend on the record's block, if it has one, or on a byte of its
// contents.
static ALWAYS_INLINE void work_after(struct chunk_reader *reader, uint64_t word, uint64_t read)
{
    const struct player *player = reader->player;
    // The number of these two kinds is a thread's, and the slot with that number may be used by
    // another thread.
    bool block = record_kind(word) != RECORD_START && record_kind(word) != RECORD_WAIT;
    if (player->options.work == WORK_IN_LINE && block)
        reader->work += ((uintptr_t)player->slots[record_number(word)] + read) << 1;
}

static ALWAYS_INLINE void play_words(struct chunk_reader *reader, const uint64_t *at,
                                     const uint64_t *end, bool empty, bool working)
{
    struct player *player = reader->player;
    _Atomic uint64_t *played = &player->progress[reader->thread].played;
    while (at < end) {
        uint64_t word = *at++, size = record_size(word), read = 0;
        void **slot;
        if (__builtin_expect(size == RECORD_SIZE_FOLLOWS, 0))
            size = *at++;
        if (working)
            size += work_before(reader);
        switch (record_kind(word)) {
        case RECORD_ALLOC:
            slot = empty_slot(player, word);
            *slot = allocate(reader, empty, RECORD_ALLOC, size, 0);
            touch(player, empty, *slot, 0, size, false);
            break;
        case RECORD_ZERO:
            slot = empty_slot(player, word);
            *slot = allocate(reader, empty, RECORD_ZERO, size, 0);
            touch(player, empty, *slot, 0, size, true);
            break;
        case RECORD_ALIGNED:
            slot = empty_slot(player, word);
            *slot = allocate(reader, empty, RECORD_ALIGNED, size, *at++);
            touch(player, empty, *slot, 0, size, false);
            break;
        case RECORD_FREE:
            slot = used_slot(player, word);
            read = touch_last(player->options.touch, *slot, size);
            if (!empty)
                free(*slot);
            *slot = NULL;
            break;
        case RECORD_SITE_ALLOC:
            allocate_of_site(reader, empty, word, size, *at++);
            break;
        case RECORD_SITE_FREE:
            read = touch_last(player->options.touch, *used_slot(player, word), size);
            free_of_site(reader, empty, word, *at++);
            break;
        case RECORD_RESIZE:
            resize(player, empty, used_slot(player, word), size, *at++);
            break;
        default:
            at = play_rare(reader, empty, word, size, at);
            break;
        }
        if (working)
            work_after(reader, word, read);
        // Pairs with the acquire in player_wait_for.
        atomic_store_explicit(played, ++reader->played, memory_order_release);
    }
    if (at != end)
        player_damaged(player, "it has a record beyond the end of its chunk");
}

static void play_with_allocator(struct chunk_reader *reader, uint32_t words)
{
    play_words(reader, reader->words, reader->words + words, false, false);
}

static void play_with_work(struct chunk_reader *reader, uint32_t words)
{
    play_words(reader, reader->words, reader->words + words, false, true);
}

static void play_empty(struct chunk_reader *reader, uint32_t words)
{
    play_words(reader, reader->words, reader->words + words, true, false);
}

static void check_chunk(const struct chunk_reader *reader, const struct program_chunk *chunk)
{
    const struct player *player = reader->player;
    if (chunk->words > CHUNK_WORDS || chunk->window >= player->header.windows ||
        chunk->thread != reader->thread)
        player_damaged(player, "it has an invalid chunk header");
}

void player_play_thread(struct player *player, uint32_t number)
{
    struct chunk_reader *reader = player_memory(sizeof *reader);
    *reader = (struct chunk_reader){.player = player, .thread = number, .work = 1};
    reader->scratch = player->scratch + (size_t)number * SCRATCH_BYTES;
    struct program_thread thread;
    player_read(player, &thread, sizeof thread,
                player->header.thread_table + number * sizeof thread);
    uint32_t window = UINT32_MAX; // none
    struct program_chunk chunk;
    for (uint64_t place = thread.first_chunk; place; place = chunk.next) {
        player_read(player, &chunk, sizeof chunk, place);
        check_chunk(reader, &chunk);
        if (chunk.next && chunk.next <= place)
            player_damaged(player, "its chunks form a cycle");
        player_read(player, reader->words, chunk.words * sizeof *reader->words,
                    place + sizeof chunk);
        if (chunk.window != window) {
            if (window != UINT32_MAX) {
                if (chunk.window < window)
                    player_damaged(player, "its windows are not in order");
                player_finish_window(player, window);
            }
            window = chunk.window;
            player_begin_window(player, window);
        }
        if (player->options.empty)
            play_empty(reader, chunk.words);
        else if (player->options.work != WORK_NONE)
            play_with_work(reader, chunk.words);
        else
            play_with_allocator(reader, chunk.words);
    }
    if (window != UINT32_MAX)
        player_finish_window(player, window);
    if (player->sites && !player->options.empty)
        sites_end_thread(player->sites, number);
    munmap(reader, sizeof *reader);
}
