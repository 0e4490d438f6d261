/* Hardened slab blocks: see harden.h. */
#include "heap/harden.h"

#include "base/check.h"
#include "base/random.h"
#include "heap/checked.h"
#include "heap/fast.h"
#include "os/os.h"

#include <string.h>

enum { SLACK_SHIFT = 48 };
static_check(MEDIUM_MAX < 1 << (64 - SLACK_SHIFT), "the slack has room above the canary");

struct secrets {
    uint64_t factor; /* odd */
    uint64_t mask;
};
static struct secrets secrets_of_process[sealed_count(struct secrets, 1)] sealed_data; /* const */
sealed_fills(secrets_of_process);

static uint64_t canary_of(const void *block)
{
    const struct secrets *secrets = &secrets_of_process[0];
    return (((uintptr_t)block * secrets->factor) ^ secrets->mask) | 1;
}

static uint64_t load_word(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static void place_canaries(char *block, size_t block_bytes, size_t size_bytes)
{
    uint64_t canary = canary_of(block);
    size_t slack = block_bytes - CANARY_BYTES - size_bytes;
    uint64_t last = canary ^ (uint64_t)slack << SLACK_SHIFT;
    memcpy(block + size_bytes, &canary, sizeof canary);
    memcpy(block + block_bytes - sizeof last, &last, sizeof last);
}

/* The block's slack; above every possible one when a canary is damaged. */
inline_always size_t slack_of(const char *block, size_t block_bytes)
{
    uint64_t canary = canary_of(block);
    size_t most = block_bytes - CANARY_BYTES;
    uint64_t last = load_word(block + most) ^ canary;
    size_t slack = (size_t)(last >> SLACK_SHIFT);
    if (unlikely((last & (((uint64_t)1 << SLACK_SHIFT) - 1)) != 0 || slack > most))
        return SIZE_MAX;
    if (slack == 0)
        return 0;
    uint64_t first = load_word(block + most - slack) ^ canary;
    if (slack < sizeof first)
        first <<= 64 - 8 * slack; /* little-endian: the rest is the last word's */
    return likely(first == 0) ? slack : SIZE_MAX;
}
static_check(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first bytes are a word's lowest");

static _Noreturn cold void damaged(const struct span *slab, const void *block)
{
    unsigned slot = (unsigned)slab_slot(slab, block);
    /* Another thread may have freed it since it was found in use. */
    if (!link_shows_use(load_relaxed(slab_link(slab, slot))))
        die("double free of %p (%u-byte block)", block, slab->size_bytes);
    die("overflow of %p (%u-byte block)", block, slab->size_bytes);
}

/* What a fork copied of another thread's block may be older than the pointer to it. */
static size_t checked_slack(const struct span *slab, const char *block)
{
    size_t slack = slack_of(block, slab->size_bytes);
    if (likely(slack != SIZE_MAX))
        return slack;
    if (!slab_is_frozen(slab))
        damaged(slab, block);
    return 0;
}

size_t harden_size(struct span *slab, const void *block)
{
    if (slab_is_void(slab))
        return 0;
    return slab->size_bytes - CANARY_BYTES - checked_slack(slab, block);
}

void harden_set_size(struct span *slab, void *block, size_t size_bytes)
{
    place_canaries(block, slab->size_bytes, size_bytes);
}

inline_always void take_back(const struct span *slab, char *block)
{
    if (unlikely(slab_is_void(slab)))
        return;
    (void)checked_slack(slab, block);
    if (config_zero_freed)
        memset(block, 0, slab->size_bytes);
}

void harden_take_back(struct span *slab, unsigned slot) { take_back(slab, slab_block(slab, slot)); }

void harden_wipe(struct span *slab, unsigned slot)
{
    if (config_zero_freed && !slab_is_void(slab))
        memset(slab_block(slab, slot), 0, slab->size_bytes);
}

typedef uint64_t words __attribute__((vector_size(16), aligned(8), may_alias));

inline_always words words_at(const char *block, size_t at)
{
    return *(const words *)(const void *)(block + at);
}

/* Few branches, since sizes come mixed: the last words are looked at from the end. Sizes are
 * multiples of 8. */
inline_always bool is_zero(const char *block, size_t size_bytes)
{
    if (unlikely(size_bytes < sizeof(words)))
        return load_word(block) == 0;
    words any = words_at(block, 0) | words_at(block, size_bytes - 16);
    if (size_bytes > 32)
        any |= words_at(block, 16) | words_at(block, size_bytes - 32);
    for (size_t at = 32; at + 32 < size_bytes; at += 32)
        any |= words_at(block, at) | words_at(block, at + 16);
    return (any[0] | any[1]) == 0;
}

inline_always void *hand_out(char *block, size_t block_bytes, size_t size_bytes)
{
    if (config_zero_freed && unlikely(!is_zero(block, block_bytes)))
        die("write after free to %p (%zu-byte block)", (void *)block, block_bytes);
    place_canaries(block, block_bytes, size_bytes);
    return block;
}

void *harden_hand_out(void *block, size_t size_bytes)
{
    return hand_out(block, page_map_find(block)->size_bytes, size_bytes);
}

/* Random order. */

void harden_shuffle(struct heap *heap, struct span *slab)
{
    /* Fisher and Yates, inside out: Knuth, The Art of Computer Programming, volume 2, 3.4.2. */
    uint8_t order[CAPACITY_MAX];
    uint64_t random = 0;
    unsigned count = slab->capacity;
    for (unsigned i = 0; i < count; i++, random >>= 16) {
        if (i % 4 == 0)
            random = random_next(&heap->random);
        unsigned place = (unsigned)((random & 0xffff) * (i + 1) >> 16);
        order[i] = order[place];
        order[place] = (uint8_t)(i + 1);
    }
    for (unsigned i = 0; i + 1 < count; i++)
        *slab_link(slab, order[i]) = order[i + 1];
    *slab_link(slab, order[count - 1]) = LINK_END;
    slab->head = order[0];
    slab->top = slab_block(slab, order[0]);
    store_relaxed(&slab->limit, (uint64_t)count + 1);
}

/* In front of the list or behind its first, by `random`; without a branch, which would be mistaken
 * half of the times. */
inline_always void insert(struct span *slab, unsigned slot, uint64_t random)
{
    uint8_t *links = slab_link(slab, 0);
    uintptr_t front = (uintptr_t)&slab->head; /* its low byte, which comes first */
    uintptr_t behind = (uintptr_t)&links[slab->head];
    uintptr_t choice = config_random_frees ? random & (slab->head != LINK_END) : 0;
    uint8_t *place = (uint8_t *)(front ^ ((front ^ behind) & (0 - choice)));
    store_relaxed(&links[slot], *place);
    store_relaxed(place, (uint8_t)slot);
    slab->top = slab_block(slab, slab->head);
}

inline_always void release(struct heap *heap, struct span *slab, unsigned slot, uint64_t random)
{
    insert(slab, slot, random);
    if (unlikely(--slab->until == 0))
        heap_attend(heap, slab);
}

/* Quarantine: an entry is a slab with the slot number in the upper 16 bits, 0 when empty. */

enum { ENTRY_SHIFT = 48 };
static_check((int)ADDRESS_BITS <= (int)ENTRY_SHIFT, "the slot number has room above the address");

inline_always void release_entry(struct heap *heap, uint64_t entry, uint64_t random)
{
    struct span *slab = (struct span *)(uintptr_t)(entry & (((uint64_t)1 << ENTRY_SHIFT) - 1));
    release(heap, slab, (unsigned)(entry >> ENTRY_SHIFT), random);
}

inline_always void retain(struct heap *heap, struct span *slab, unsigned slot)
{
    if (!config_quarantine) {
        release(heap, slab, slot, config_random_frees ? random_next(&heap->random) : 0);
        return;
    }
    uint64_t random = random_next(&heap->random);
    store_relaxed(slab_link(slab, slot), (uint8_t)LINK_QUARANTINED);
    bool small = slab->size_bytes <= SMALL_MAX;
    uint64_t *entries = heap->quarantine + (small ? 0 : QUARANTINE_SMALL);
    uint64_t *entry =
        &entries[(random >> 32) * (small ? QUARANTINE_SMALL : QUARANTINE_MEDIUM) >> 32];
    uint64_t replaced = *entry;
    *entry = (uint64_t)(uintptr_t)slab | (uint64_t)slot << ENTRY_SHIFT;
    if (likely(replaced != 0))
        release_entry(heap, replaced, random);
}

void harden_retain(struct heap *heap, struct span *slab, unsigned slot)
{
    retain(heap, slab, slot);
}

void harden_flush(struct heap *heap)
{
    if (!config_quarantine)
        return;
    for (size_t i = 0; i < countof(heap->quarantine); i++) {
        uint64_t entry = heap->quarantine[i];
        heap->quarantine[i] = 0;
        if (entry != 0)
            release_entry(heap, entry, random_next(&heap->random));
    }
}

void harden_start(void)
{
    secrets_of_process[0] = (struct secrets){.factor = os_entropy() | 1, .mask = os_entropy()};
    if (config_sealed)
        (void)os_protect(secrets_of_process, sizeof secrets_of_process, OS_READ);
}

void harden_seed(struct heap *heap) { heap->random = os_entropy(); }

/* Fast paths: fast.h's, step for step, with the hardening between. */

void *harden_malloc(size_t size_bytes, void *(*slow)(size_t))
{
    if (unlikely(size_bytes > SMALL_MOST))
        return slow(size_bytes);
    struct heap *heap = thread_heap;
    struct span *slab = heap->current[heap->small_class[size_bytes + CANARY_BYTES]];
    unsigned slot = slab->head;
    if (unlikely(slot == LINK_END))
        return slow(size_bytes);
    void *block = slab->top;
    uint8_t *link = slab_link(slab, slot);
    slab->head = load_relaxed(link);
    slab->top = slab_block(slab, slab->head);
    store_relaxed(link, (uint8_t)LINK_LIVE);
    return hand_out(block, slab->size_bytes, size_bytes);
}

void harden_free(void *pointer)
{
    if (unlikely(!page_map_reaches((uintptr_t)pointer))) {
        free_foreign(pointer);
        return;
    }
    struct span *slab = page_map_find(pointer);
    if (unlikely(load_relaxed(&slab->owner) != (uintptr_t)thread_heap)) {
        free_slow(pointer, slab);
        return;
    }
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slot >= load_relaxed(&slab->limit) ||
                 load_relaxed(slab_link(slab, slot)) != LINK_LIVE)) {
        free_reject(slot, slab);
        return;
    }
    take_back(slab, pointer);
    retain(thread_heap, slab, slot);
}
