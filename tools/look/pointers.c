// Lists the pointers to a block: each aligned word that points into it, in a live block, in other
// memory that counts as a root, in a register or in the kernel.
#include "marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct pointing {
    struct marks marks;
    uint64_t start, bytes; // the block, or one byte outside all blocks
    uint64_t count, shown_most;
};

static bool points_there(const struct pointing *search, uint64_t word)
{
    return word - search->start < search->bytes;
}

static bool is_stack(const struct target *target, const struct mapping *mapping)
{
    for (size_t i = 0; i < target->thread_count; i++)
        if (target->stack_pointers[i] >= mapping->start && target->stack_pointers[i] < mapping->end)
            return true;
    return strcmp(mapping->path, "[stack]") == 0;
}

static void print_place(const struct pointing *search, const char *kind, uint64_t place,
                        uint64_t word)
{
    printf("pointer\tkind=%s\tplace=%#" PRIx64 "\toffset=%" PRIu64, kind, place,
           word - search->start);
}

static void see_root(struct marks *marks, uint64_t word, uint64_t place, void *context)
{
    struct pointing *search = context;
    if (!points_there(search, word) || search->count++ >= search->shown_most)
        return;
    const struct mapping *mapping = mapping_of(marks->look->target, place);
    spend(marks->look->target, marks->look->target->thread_count);
    bool stands_in_stack = mapping && is_stack(marks->look->target, mapping);
    print_place(search, stands_in_stack ? "stack" : "memory", place, word);
    printf("\tname=");
    print_clean(mapping ? mapping->path : "");
    if (mapping && mapping->path[0] == '/')
        printf("+%#" PRIx64, place - mapping->start + mapping->file_offset);
    putchar('\n');
}

static void see_block_word(struct marks *marks, uint64_t word, uint64_t place, void *context)
{
    struct pointing *search = context;
    struct block_span *span;
    if (!points_there(search, word) || search->count++ >= search->shown_most)
        return;
    int64_t block = block_at(&marks->index, place, &span);
    if (block == NO_BLOCK)
        return;
    uint64_t start = span->start + ((size_t)block - span->first) * span->slot_bytes;
    print_place(search, "block", place, word);
    printf("\tholder=%#" PRIx64 "\tsize_bytes=%" PRIu64, start, span->slot_bytes);
    print_contents(marks->look, start, span->slot_bytes);
    putchar('\n');
}

static void see_range(struct marks *marks, uint64_t start, uint64_t end, void *context)
{
    see_words(marks, start, end - start, see_root, context);
}

static void see_words_kept(struct pointing *search, const char *kind, const uint64_t *words,
                           size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (points_there(search, words[i]) && search->count++ < search->shown_most) {
            print_place(search, kind, 0, words[i]);
            putchar('\n');
        }
}

// Searches all live blocks. Adjacent ones are read together.
static void see_blocks(struct pointing *search)
{
    struct marks *marks = &search->marks;
    for (size_t i = 0; i < marks->index.span_count; i++) {
        const struct block_span *span = &marks->index.spans[i];
        for (uint64_t slot = 0; slot < span->slots && !span->is_empty_blocks; slot++) {
            uint64_t first = slot;
            while (slot < span->slots && is_set(marks->index.live, span->first + slot))
                slot++;
            if (slot > first)
                see_words(marks, span->start + first * span->slot_bytes,
                          (slot - first) * span->slot_bytes, see_block_word, search);
        }
    }
}

void pointers(struct look *look, uint64_t address, bool every)
{
    enum { SHOWN = 100 };
    static struct pointing search;
    struct target *target = look->target;
    struct block_span *span;
    search.marks.look = look;
    search.shown_most = every ? UINT64_MAX : SHOWN;
    if (target->pid != 0)
        read_threads(target, false);
    read_kernel_pointers(target);
    make_index(look, &search.marks.index);
    int64_t block = block_at(&search.marks.index, address, &span);
    search.start = address;
    search.bytes = 1;
    if (block != NO_BLOCK) {
        search.start = span->start + ((size_t)block - span->first) * span->slot_bytes;
        search.bytes = span->slot_bytes;
    }
    print_target(look);
    printf("block\tstart=%#" PRIx64 "\tsize_bytes=%" PRIu64 "\tis_live=%d", search.start,
           block != NO_BLOCK && !span->is_empty_blocks ? search.bytes : 0, block != NO_BLOCK);
    if (block != NO_BLOCK && !span->is_empty_blocks)
        print_contents(look, search.start, search.bytes);
    putchar('\n');
    see_words_kept(&search, "register", target->registers, target->register_words);
    see_words_kept(&search, "kernel", target->kernel_words, target->kernel_count);
    each_root(&search.marks, see_range, &search);
    see_blocks(&search);
    printf("pointers\tcount=%" PRIu64 "\tunread_bytes=%" PRIu64 "\n", search.count,
           search.marks.unread_bytes);
}
