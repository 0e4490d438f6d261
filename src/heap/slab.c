/* Making, collecting and verifying slabs: see slab.h. */
#include "heap/slab.h"

#include "base/check.h"
#include "base/test_delay.h"
#include "heap/checked.h"
#include "heap/harden.h"

#include <string.h>

struct span *slab_make(struct heap *heap, unsigned class)
{
    const struct size_class *shape = &size_classes[class];
    struct span *slab = class_is_void(class) ? pages_take_void_slab(class) : pages_take_slab(class);
    if (slab == NULL)
        return NULL;
    /* A header that served a slab before has link bytes of then; those of a new one are zero and
     * stay untouched. */
    if (slab->capacity != 0)
        memset(slab->links, 0, (size_t)shape->cold_64 * 64);
    slab->base -= shape->size_bytes;
    slab->inverse = shape->inverse;
    store_relaxed(&slab->limit, (uint64_t)1);
    slab->size_bytes = shape->size_bytes;
    slab->until = 0;
    slab->head = LINK_END;
    slab->capacity = shape->capacity;
    if (config_random_slots)
        harden_shuffle(heap, slab);
    store_release(&slab->owner, (uintptr_t)heap); /* pairs with load_acquire in is_settled */
    return slab;
}

void slab_retire(struct span *slab)
{
    store_relaxed(&slab->owner, (uintptr_t)0);
    slab->base = slab_start(slab);
    if (slab_is_void(slab))
        pages_give_void_slab(slab);
    else
        pages_give_slab(slab);
}

/* The slots of one remote word. Like slab_push, with the list's head in a register. */
static unsigned collect_word(struct span *slab, unsigned first, uint64_t bits)
{
    uint8_t *links = slab_link(slab, first);
    unsigned head = slab->head;
    unsigned collected = 0;
    for (; bits != 0; bits &= bits - 1, collected++) {
        unsigned slot = lowest_bit(bits);
        if (unlikely(links[slot] != LINK_LIVE)) {
            slab->head = LINK_END; /* a handler of the abort may allocate */
            die_freed(slab_block(slab, first + slot), slab, "free");
        }
        links[slot] = (uint8_t)head;
        head = first + slot;
    }
    slab->head = head;
    slab->top = slab_block(slab, head);
    return collected;
}

/* In hardened builds: they are counted when they leave quarantine. */
static void retain_word(struct span *slab, unsigned first, uint64_t bits)
{
    for (; bits != 0; bits &= bits - 1) {
        unsigned slot = first + lowest_bit(bits);
        if (unlikely(*slab_link(slab, slot) != LINK_LIVE))
            die_freed(slab_block(slab, slot), slab, "free");
        harden_retain(slab_heap(slab), slab, slot);
    }
}

unsigned slab_collect(struct span *slab)
{
    struct remote *remote = slab_remote(slab);
    unsigned collected = 0;
    uintptr_t words = 0;
    for (unsigned i = 0; i < REMOTE_WORDS; i++) {
        if (load_relaxed(&remote->words[i]) == 0)
            continue;
        uint64_t bits =
            exchange_acquire(&remote->words[i], (uint64_t)0); /* pairs with the sum in mark_freed */
        words++;
        if (config_hardened)
            retain_word(slab, i * 64 + 1, bits);
        else
            collected += collect_word(slab, i * 64 + 1, bits);
    }
    test_delay();
    if (words != 0)
        fetch_sub_acq_rel(&slab->owner, words << OWNER_POST_SHIFT);
    return collected;
}

unsigned slab_live(const struct span *slab)
{
    unsigned handed_out = (unsigned)load_relaxed(&slab->limit) - 1;
    unsigned live = 0;
    for (unsigned slot = 1; slot <= handed_out; slot++)
        live += *slab_link(slab, slot) == LINK_LIVE;
    return live;
}

unsigned slab_used(const struct span *slab)
{
    unsigned used = slab_live(slab);
    if (config_quarantine)
        for (unsigned slot = 1; slot <= slab->capacity; slot++)
            used += *slab_link(slab, slot) == LINK_QUARANTINED;
    return used;
}

void slab_verify(const struct span *slab)
{
    if (!config_debug)
        return;
    unsigned limit = (unsigned)load_relaxed(&slab->limit);
    check_internal(limit >= 1 && limit - 1 <= slab->capacity);
    unsigned listed = 0;
    check_internal(slab->head == LINK_END || slab->top == slab_block(slab, slab->head));
    for (unsigned slot = slab->head; slot != LINK_END; slot = *slab_link(slab, slot)) {
        check_internal(slot != LINK_LIVE && slot < limit);
        check_internal(++listed <= slab->capacity);
    }
    check_internal(listed + slab_used(slab) == limit - 1);
}
