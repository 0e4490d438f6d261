/* Hardening of slab blocks: canaries, zeroed and checked memory, random order, quarantine.
 *
 * A canary is stored behind the requested bytes. The last word of the block is a canary too, with
 * the number of bytes between (the slack) in its upper 16 bits:
 *   | requested bytes ... | canary | not checked | canary ^ slack << 48 |
 *                          `----------- slack -----´
 *
 * If the slack is below 8 bytes, the last word covers the rest of the first canary. So an overflow
 * by one byte damages a canary, and the exact size is known when the block is freed, resized or its
 * size is requested. A canary is the block's address times one secret number, xor another one, made
 * odd, so that the terminator of a string damages it too.
 *
 * In full hardened builds a block that is freed is zeroed, canaries included, and marked in its
 * link byte. The block waits in the heap's quarantine until another freed block takes its place,
 * chosen at random. Only then its slot enters its slab's list, at the front or behind the first one
 * by a random bit. When it is handed out it must still be zero. So every free block of a slab is
 * zero, and so is a fresh slab.
 * Threads: as in slab.h. The freeing thread checks the block, then marks it as freed, then zeroes
 * it. In another order a second free at the same instant would take the zeroes for an overflow, and
 * would zero a block that was handed out again meanwhile. The quarantine belongs to the holder of
 * the heap. */
#ifndef CAIRN_HEAP_HARDEN_H
#define CAIRN_HEAP_HARDEN_H

#include "base/check.h"
#include "heap/thread_heap.h"

#include <string.h>

/* Zeroes a block that is freed, in full hardened builds. The function does not check the block,
 * because in the child of a fork another thread may have stopped in the middle of a free. */
void harden_wipe(struct span *slab, unsigned slot);

/* Prepares a free block to be handed out: checks that it is still zero, and places its canaries.
 * Dies if the block was written since its free. `block` is not NULL. */
void *harden_hand_out(void *block, size_t size_bytes);

/* The requested size of a block in use. Dies if the canaries are damaged, so the freeing thread
 * calls this first. */
size_t harden_size(struct span *slab, const void *block);

/* Links all slots of a new slab in random order, each drawn from the next slots around the slab.
 * Locking: heap held. */
void harden_shuffle(struct heap *heap, struct span *slab);

/* Seeds the heap's random numbers from the system. */
void harden_seed(struct heap *heap);

/* In light builds the first word of a block that its own thread has freed: no processor takes it
 * for an address. So a call through a freed object, or an access through its first pointer, ends in
 * SIGSEGV. Another thread's free does not touch the block: it could have a new owner by then. */
#define FREED_WORD UINT64_C(0xf1eeb10cf1eeb10c)

/* Spoils the first word of a block that is freed. */
inline_always void block_spoil(char *block)
{
    const uint64_t word = FREED_WORD;
    memcpy(block, &word, sizeof word);
}

/* The place of the slack in the last word of a block. */
enum { SLACK_SHIFT = 48 };
static_check(MEDIUM_BLOCK_MAX < 1 << (64 - SLACK_SHIFT), "the slack has room above the canary");

struct secrets {
    uint64_t factor; /* const after init, odd */
    uint64_t mask;   /* const after init */
};
/* The secrets of this process. Const after canary_start. */
extern hidden_data struct secrets secrets_of_process[sealed_count(struct secrets, 1)];

inline_always uint64_t canary_of(const void *block)
{
    const struct secrets *secrets = &secrets_of_process[0];
    return (((uintptr_t)block * secrets->factor) ^ secrets->mask) | 1;
}

/* Reads a word at any alignment. */
inline_always uint64_t load_word(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Places the canaries of a block of `block_bytes` for a request of `size_bytes`: a new block, or
 * one that is resized in place. */
inline_always void canary_place(char *block, size_t block_bytes, size_t size_bytes)
{
    uint64_t canary = canary_of(block);
    size_t slack = block_bytes - CANARY_BYTES - size_bytes;
    uint64_t last = canary ^ (uint64_t)slack << SLACK_SHIFT;
    memcpy(block + size_bytes, &canary, sizeof canary);
    memcpy(block + block_bytes - sizeof last, &last, sizeof last);
}

/* The part of the first canary that the last word does not cover. With a slack below a word these
 * are the first bytes, which are the lowest; without slack the first canary is the last word
 * itself. The code has no branch, because sizes are mixed. */
inline_always uint64_t canary_counted(uint64_t first, size_t slack)
{
    size_t all = 0 - (size_t)(slack < sizeof first); /* all bits, or none */
    keep_in_register(all); /* otherwise the compiler makes a branch of it */
    return first << ((0 - 8 * (slack & all)) & 63);
}
static_check(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first bytes are a word's lowest");

/* The slack of a block. SIZE_MAX if a canary is damaged. */
inline_always size_t canary_slack(const char *block, size_t block_bytes)
{
    uint64_t canary = canary_of(block);
    size_t most = block_bytes - CANARY_BYTES;
    uint64_t last = load_word(block + most) ^ canary;
    size_t slack = (size_t)(last >> SLACK_SHIFT);
    if (unlikely((last & (((uint64_t)1 << SLACK_SHIFT) - 1)) != 0 || slack > most))
        return SIZE_MAX;
    uint64_t first = load_word(block + most - slack) ^ canary;
    return likely(canary_counted(first, slack) == 0) ? slack : SIZE_MAX;
}

/* Whether the canaries are those of a block for a request of `size_bytes`, which fits the block. */
inline_always bool canary_shows(const char *block, size_t block_bytes, size_t size_bytes)
{
    uint64_t canary = canary_of(block);
    size_t most = block_bytes - CANARY_BYTES;
    size_t slack = most - size_bytes;
    uint64_t last = load_word(block + most) ^ canary ^ (uint64_t)slack << SLACK_SHIFT;
    uint64_t first = load_word(block + size_bytes) ^ canary;
    return likely((last | canary_counted(first, slack)) == 0);
}

/* Draws the secrets. Threads: one, at the start. */
void canary_start(void);

/* Dies because a canary is damaged. Reports a double free if another thread freed the block
 * meanwhile. */
no_return void canary_damaged(const struct span *slab, const void *block) cold;

/* Dies because a free block is not zero. */
no_return void block_written(const void *block, size_t block_bytes) cold;

/* The slack of a block in use. Dies if a canary is damaged. */
inline_always size_t harden_slack(const struct span *slab, const char *block)
{
    size_t slack = canary_slack(block, slab->size_bytes);
    if (unlikely(slack == SIZE_MAX))
        canary_damaged(slab, block);
    return slack;
}

/* Two words of a block, for checking and clearing it. */
typedef uint64_t two_words __attribute__((vector_size(16), aligned(8), may_alias));

inline_always two_words words_at(const char *block, size_t at)
{
    return *(const two_words *)(const void *)(block + at);
}

/* Whether a block is zero. The last words are checked from the end, so that there are few branches,
 * because sizes are mixed. Sizes are multiples of 16. The first word is accessed by a write,
 * because the block will be written: a fresh page that is read first would fault twice. */
inline_always bool block_is_zero(char *block, size_t size_bytes)
{
    if (unlikely(!is_zero_to_write(block)))
        return false;
    if (size_bytes == 16)
        return load_word(block + 8) == 0;
    two_words any = words_at(block, 8) | words_at(block, size_bytes - 16);
    if (size_bytes > 32)
        any |= words_at(block, 16) | words_at(block, size_bytes - 32);
    for (size_t at = 32; at + 32 < size_bytes; at += 32)
        any |= words_at(block, at) | words_at(block, at + 16);
    return (any[0] | any[1]) == 0;
}

/* Does that for a block that may be longer than a page, with a write to each of its pages. */
inline_always bool medium_is_zero(char *block, size_t size_bytes)
{
    bool zero = is_zero_to_write(block + size_bytes - sizeof(uint64_t));
    for (size_t at = PAGE_BYTES; at < size_bytes; at += PAGE_BYTES)
        zero &= is_zero_to_write(block + at);
    return zero && block_is_zero(block, size_bytes);
}

inline_always void clear_words_at(char *block, size_t at)
{
    *(two_words *)(void *)(block + at) = (two_words){0, 0};
}

/* Clears a block of a multiple of 16 bytes, with few branches. For long ones memset is faster. */
inline_always void block_clear(char *block, size_t size_bytes)
{
    clear_words_at(block, 0);
    clear_words_at(block, size_bytes - 16);
    if (size_bytes > 32) {
        clear_words_at(block, 16);
        clear_words_at(block, size_bytes - 32);
    }
    for (size_t at = 32; at + 32 < size_bytes; at += 32) {
        keep_in_register(at); /* otherwise the compiler calls memset */
        clear_words_at(block, at);
        clear_words_at(block, at + 16);
    }
}

/* Does what harden_hand_out does. `is_small` says that the class of the block is a small one. */
inline_always void *harden_hand_out_at(char *block, size_t block_bytes, size_t size_bytes,
                                       bool is_small)
{
    if (config_zero_freed && unlikely(is_small ? !block_is_zero(block, block_bytes)
                                               : !medium_is_zero(block, block_bytes)))
        block_written(block, block_bytes);
    canary_place(block, block_bytes, size_bytes);
    return block;
}

#endif
