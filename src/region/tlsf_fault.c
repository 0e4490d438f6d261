/* The messages of TLSF's misuse: see tlsf_fault.h. No state. */
#include "region/tlsf_fault.h"

#include "base/check.h"

cold no_return void die_of_pointer(const struct cairn_tlsf *heap, const void *pointer,
                                   const char *verb)
{
    place at = place_of(heap, pointer) - BLOCK_WORD_BYTES;
    struct bounds bounds;
    if (region_of(heap, at, &bounds)) {
        uint64_t word = block_at(heap, at)->word;
        bool is_free = word_matches(word, at, BLOCK_FREE, BLOCK_FREE);
        size_t size = word_size(word) - BLOCK_WORD_BYTES;
        if (is_free && verb[0] == 'f')
            die("TLSF double free of %p (%zu-byte block)", pointer, size);
        if (is_free)
            die("TLSF %s of freed block %p (%zu-byte block)", verb, pointer, size);
    }
    die("TLSF %s of %p, which is not a block of heap %p", verb, pointer, (const void *)heap);
}

cold no_return void die_of_overrun(const struct cairn_tlsf *heap, place at)
{
    struct block *block = block_at(heap, at);
    die("TLSF block %p (%zu-byte block) was overrun: the header behind it is gone",
        block_memory(block), word_size(block->word) - BLOCK_WORD_BYTES);
}

cold no_return void die_of_free_block(const struct cairn_tlsf *heap, place at)
{
    die("TLSF free block %p was written to", block_memory(block_at(heap, at)));
}

cold no_return void die_of_boundary_tag(const struct cairn_tlsf *heap, place at)
{
    die("TLSF free memory in front of block %p was written to", block_memory(block_at(heap, at)));
}

cold no_return void die_of_damage(const struct cairn_tlsf *heap, place at)
{
    die("TLSF heap %p is damaged at %p", (const void *)heap, block_memory(block_at(heap, at)));
}
