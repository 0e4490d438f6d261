/* The canaries and the zero of a hardened slab block, inline: harden.h says what they are. */
#ifndef CAIRN_HEAP_CANARY_H
#define CAIRN_HEAP_CANARY_H

#include "base/check.h"
#include "heap/frozen.h"

#include <string.h>

enum { SLACK_SHIFT = 48 };
static_check(MEDIUM_MAX < 1 << (64 - SLACK_SHIFT), "the slack has room above the canary");

struct secrets {
    uint64_t factor; /* odd */
    uint64_t mask;
};
extern hidden_data struct secrets secrets_of_process[sealed_count(struct secrets, 1)]; /* const */

inline_always uint64_t canary_of(const void *block)
{
    const struct secrets *secrets = &secrets_of_process[0];
    return (((uintptr_t)block * secrets->factor) ^ secrets->mask) | 1;
}

inline_always uint64_t load_word(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

inline_always void canary_place(char *block, size_t block_bytes, size_t size_bytes)
{
    uint64_t canary = canary_of(block);
    size_t slack = block_bytes - CANARY_BYTES - size_bytes;
    uint64_t last = canary ^ (uint64_t)slack << SLACK_SHIFT;
    memcpy(block + size_bytes, &canary, sizeof canary);
    memcpy(block + block_bytes - sizeof last, &last, sizeof last);
}

/* Of the first canary what the last word does not cover: with a slack below a word the first bytes,
 * which are the lowest; without slack it is the last word again. No branch: sizes come mixed. */
inline_always uint64_t canary_counted(uint64_t first, size_t slack)
{
    size_t all = 0 - (size_t)(slack < sizeof first); /* bits set, or none */
    keep_in_register(all);                           /* else the compiler makes a branch of it */
    return first << ((0 - 8 * (slack & all)) & 63);
}
static_check(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first bytes are a word's lowest");

/* The block's slack; above every possible one when a canary is damaged. */
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

/* Whether the canaries are those of a block of `size_bytes`, which fit it. */
inline_always bool canary_shows(const char *block, size_t block_bytes, size_t size_bytes)
{
    uint64_t canary = canary_of(block);
    size_t most = block_bytes - CANARY_BYTES;
    size_t slack = most - size_bytes;
    uint64_t last = load_word(block + most) ^ canary ^ (uint64_t)slack << SLACK_SHIFT;
    uint64_t first = load_word(block + size_bytes) ^ canary;
    return likely((last | canary_counted(first, slack)) == 0);
}

void canary_start(void); /* draws the secrets */

/* Dies: a canary is not what it was. */
no_return void canary_damaged(const struct span *slab, const void *block) cold;

/* Dies: a free block is not zero. */
no_return void block_written(const void *block, size_t block_bytes) cold;

/* What a fork copied of another thread's block may be older than the pointer to it. */
inline_always size_t harden_slack(const struct span *slab, const char *block)
{
    size_t slack = canary_slack(block, slab->size_bytes);
    if (likely(slack != SIZE_MAX))
        return slack;
    if (!slab_is_frozen(slab))
        canary_damaged(slab, block);
    return 0;
}

typedef uint64_t words __attribute__((vector_size(16), aligned(8), may_alias));

inline_always words words_at(const char *block, size_t at)
{
    return *(const words *)(const void *)(block + at);
}

/* Few branches, since sizes come mixed: the last words are looked at from the end. Sizes are
 * multiples of 16. The first word is read as one that is written, because it will be: a fresh page
 * that is read first would fault twice. */
inline_always bool block_is_zero(char *block, size_t size_bytes)
{
    if (unlikely(!is_zero_to_write(block)))
        return false;
    if (size_bytes == 16)
        return load_word(block + 8) == 0;
    words any = words_at(block, 8) | words_at(block, size_bytes - 16);
    if (size_bytes > 32)
        any |= words_at(block, 16) | words_at(block, size_bytes - 32);
    for (size_t at = 32; at + 32 < size_bytes; at += 32)
        any |= words_at(block, at) | words_at(block, at + 16);
    return (any[0] | any[1]) == 0;
}

/* The same of a block that may be longer than a page: a word of each page as one that is written.
 */
inline_always bool medium_is_zero(char *block, size_t size_bytes)
{
    bool zero = is_zero_to_write(block + size_bytes - sizeof(uint64_t));
    for (size_t at = PAGE_BYTES; at < size_bytes; at += PAGE_BYTES)
        zero &= is_zero_to_write(block + at);
    return zero && block_is_zero(block, size_bytes);
}

inline_always void clear_words_at(char *block, size_t at)
{
    *(words *)(void *)(block + at) = (words){0, 0};
}

/* The same way; a longer block is better left to memset. */
inline_always void block_clear(char *block, size_t size_bytes)
{
    clear_words_at(block, 0);
    clear_words_at(block, size_bytes - 16);
    if (size_bytes > 32) {
        clear_words_at(block, 16);
        clear_words_at(block, size_bytes - 32);
    }
    for (size_t at = 32; at + 32 < size_bytes; at += 32) {
        keep_in_register(at); /* else the compiler calls memset */
        clear_words_at(block, at);
        clear_words_at(block, at + 16);
    }
}

/* Dies when the free block was written since. */
inline_always void *harden_hand_out_at(char *block, size_t block_bytes, size_t size_bytes)
{
    if (config_zero_freed && unlikely(!block_is_zero(block, block_bytes)))
        block_written(block, block_bytes);
    canary_place(block, block_bytes, size_bytes);
    return block;
}

inline_always void *harden_hand_out_medium(char *block, size_t block_bytes, size_t size_bytes)
{
    if (config_zero_freed && unlikely(!medium_is_zero(block, block_bytes)))
        block_written(block, block_bytes);
    canary_place(block, block_bytes, size_bytes);
    return block;
}

#endif
