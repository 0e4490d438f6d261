/* The slab: a run of pages that is cut into equal slots. All that is known of the slots is stored
 * outside the run.
 *
 * Free slots form a LIFO list of slot numbers, with one link byte for each slot, in the cold area
 * behind the header. A block in use contains no metadata, and its link byte shows a double free.
 * Slots that were never handed out are not in the list: `fresh_slot` counts up through them, and
 * neither their memory nor their link bytes are touched before.
 *
 * The owner of a slab is the holder of its heap (thread_heap.h). Only the owner calls functions
 * that change the slab of a heap, unless a tag says otherwise.
 *
 * Invariants (slab_verify), where a block that another thread freed is in use until it is
 * collected, and quarantined slots are in use:
 *   slots in use + listed == fresh_slot - 1, listed == length of the list from head;
 *   top == the block of slot head, unless that is the end;
 *   frees_to_attention is what the table of states says (slab_lists_verify).
 *
 * The states of a slab that a heap has, and what `frees_to_attention` counts in each. A free by the
 * owner subtracts one; collecting subtracts the collected slots, except from a small current slab.
 * At 0 free_attend or heap_count_expired acts. The owner changes state and count (slab_lists.c,
 * refill.c). Packed slabs count differently: see packed.h.
 *
 *   state           where           frees_to_attention counts   at 0
 *   SMALL CURRENT   heap->current   frees until the next check  starts again, due work is done
 *   MEDIUM CURRENT  heap->current   slots that are not free     stays, or is retired
 *   LISTED          its class's     slots that are not free     is retired, unless it is in a
 *                   bin                                         mailbox or being purged
 *   FULL            no list, next   slab_relist_after, less     becomes LISTED
 *                   is itself       the slots freed since
 *
 *   new -> CURRENT      heap_refill
 *   new -> LISTED       private_heap_take_block
 *   CURRENT -> FULL     heap_leave_current, or heap_put_aside without a free slot
 *   CURRENT -> LISTED   heap_put_aside
 *   FULL -> LISTED      heap_count_expired, or mailbox_collect: slab_relist_after slots are free
 *   LISTED -> CURRENT   heap_refill
 *   LISTED -> gone      heap_retire_listed, all its slots are free
 *   CURRENT -> gone     heap_count_expired, of a medium class, all its slots are free
 *   any -> gone         private_heap_end, with all slabs of the private heap
 *   any -> LISTED, FULL heap_move_slab, the slab becomes another heap's
 *
 * The values of a link byte, and the threads that change it:
 *   LIVE         in use, or never handed out
 *   PROFILED     in use, and its free is reported to the profiler or the tracer: see hooks.h
 *   REMOTE       freed by another thread, not collected yet
 *   BORROWED     freed by another thread, borrowed by a third one that will hand it out: borrow.h
 *   QUARANTINED  freed, full hardened builds: waits to be listed
 *   TAKEN        freed by another thread, full hardened builds: that thread is wiping it
 *   a slot, END  free, and the next slot in the list
 *
 *   LIVE -> a slot, END, QUARANTINED    owner, the block is freed
 *   LIVE -> PROFILED                    owner, the block is handed out
 *   LIVE -> PROFILED                    the thread that resizes the block, compare-and-swap
 *   PROFILED -> LIVE                    any thread, compare-and-swap: it frees or resizes the
 *                                       block next
 *   LIVE -> REMOTE                      any other thread, compare-and-swap: the block is freed
 *   LIVE -> TAKEN -> REMOTE             any other thread in full hardened builds, two
 *                                       compare-and-swaps: the block is freed
 *   REMOTE -> a slot, END, QUARANTINED  owner, the slot is collected
 *   REMOTE -> BORROWED                  borrower, compare-and-swap, the slab is out of the mailbox
 *   BORROWED -> LIVE                    borrower, the block is handed out
 *   BORROWED -> REMOTE                  holder of the supply's lock, the block is given back
 *   QUARANTINED -> a slot, END          owner
 *   a slot, END -> LIVE                 owner, the block is handed out
 *
 * The values of the use word, which says what other threads may do with a slab. The slabs of
 * private heaps stay IDLE. The word contains the process number next to PURGED and EMPTIED. With
 * the number of another process it counts as ASIDE, because the purging thread does not exist in
 * the child of a fork.
 *
 *   IDLE     new, kept in a run cache, given back, or of a private heap; or its owner takes it or
 *            moves it to another heap
 *   CURRENT  its heap allocates from it, and none of its pages is purged and uncounted
 *   ASIDE    it is LISTED or FULL: its owner hands out no block of it
 *   PURGED   it is aside, and one thread purges free pages of it (sweep.h) or borrows blocks
 *   EMPTIED  it is PURGED, and its last block was freed meanwhile: the purging thread posts it
 *
 *   IDLE -> CURRENT     owner
 *   CURRENT -> ASIDE    owner
 *   ASIDE -> IDLE       owner, compare-and-swap: purges happen before the next use of their pages.
 *                       The slab is made current, moved to another heap, or, when empty, retired.
 *                       Back to ASIDE if the hard limit refuses the purged pages, or if the slab
 *                       is in a mailbox and cannot be moved or retired
 *   CURRENT -> IDLE     owner
 *   ASIDE -> PURGED     any thread, compare-and-swap
 *   PURGED -> EMPTIED   owner, compare-and-swap
 *   PURGED -> ASIDE     the purging thread, exchange
 *   EMPTIED -> ASIDE    the purging thread, exchange; afterwards it posts the slab
 *
 * remote.c has the protocol of remote frees and of the mailboxes. */
#ifndef CAIRN_HEAP_SLAB_H
#define CAIRN_HEAP_SLAB_H

#include "heap/size_class.h"
#include "page/page.h"

enum {
    LINK_LIVE = 0,
    LINK_END = 255,
    LINK_REMOTE = 254,
    LINK_PROFILED = 253,
    LINK_BORROWED = 252,    /* only in builds without hardening */
    LINK_QUARANTINED = 252, /* only in full hardened builds, where no slot has this number */
    LINK_TAKEN = 251,       /* only in full hardened builds, where no slot has this number */
};

/* A tag in the owner word of packed slabs: the word is then no heap's address, so no fast path
 * takes their blocks. The other bits are the heap, 0 for a slab without one. */
enum { OWNER_PACKED = 2 };
/* A tag in the owner word of a private heap's large block. The word of other large blocks is 0. */
enum { OWNER_LARGE = 4 };
/* The bits of the owner word that are the address of a heap. */
#define OWNER_HEAP_MASK (~(uintptr_t)63)

/* The most frees until the current slab of a small class needs attention. */
enum { FREES_MAX = 64 };

/* The words that the owner writes with each malloc and free, behind the header and on the line of
 * the first links: span.h has the reason. */
struct slab_hot_line {
    void *top;     /* owner: the block of `head`, if that is a slot, so that an allocation need not
                      compute it; not used in packed slabs */
    uint32_t head; /* owner: first free slot; of a packed slab the word that blocks are taken from.
                      Four bytes, because a single byte that was stored just now takes longer to
                      read */
    uint8_t frees_to_attention; /* owner: frees until the slab needs attention, see above */
};

/* The words that are rarely accessed, at the end of the cold area behind the links. */
struct slab_cold_area {
    struct span *prev; /* owner: previous in its bin; undefined for the first one */
    uint32_t use;      /* atomic, see above: enum slab_use, and the process from USE_BITS on */
    struct { /* slab of a private heap, lock: its neighbours in the list of all slabs of the heap */
        struct span *next, *prev;
    } of_heap;
    struct {
        uint64_t given;  /* atomic: a bit for each page that is purged and not counted. The thread
                            that holds the use word at PURGED sets bits, the owner clears them:
                            see sweep.h */
        uint64_t looked; /* atomic: state of the slab at its last sweep, see sweep.c */
    } swept;
};

/* A header with the words of its cold area, but without links: the empty slab has this type. */
struct slab_header_parts {
    struct span header;
    struct slab_hot_line hot_line;
    struct slab_cold_area cold_area;
};
static_check(sizeof(struct slab_hot_line) == LINKS_AT + 1, "the links come next; no slot is 0");
static_check(sizeof(struct slab_cold_area) == SLAB_COLD_BYTES, "the cold area has room for it");
static_check((int)CAPACITY_MAX < (config_quarantine ? (int)LINK_TAKEN : (int)LINK_BORROWED),
             "no slot has the number of a state");

static_check((LINKS_AT + CAPACITY_MAX + 1 + SLAB_COLD_BYTES + 7 + 63) / 64 < SIDE_UNIT_KINDS,
             "the page layer knows the cold area's size");

/* The number of forks on the way from the first process to this one. A word with the number of
 * another process is void. The child of a fork writes it, before it has threads. Every remote free
 * reads it, so no variable that other threads write often shares its cache line. */
extern hidden_data uint32_t heap_generation;

/* The states of the use word. */
enum slab_use { SLAB_IDLE, SLAB_CURRENT, SLAB_ASIDE, SLAB_PURGED, SLAB_EMPTIED };
/* Bits of the state in the use word; the process is stored above them. */
enum { USE_BITS = 3 };

inline_always bool slab_is_packed(const struct span *slab)
{
    return class_is_packed(slab_class(slab));
}

inline_always struct slab_hot_line *slab_hot(const struct span *slab)
{
    return (struct slab_hot_line *)(uintptr_t)(slab + 1);
}

inline_always struct slab_cold_area *slab_cold(const struct span *slab)
{
    return (struct slab_cold_area *)(uintptr_t)(slab + 1 + slab->side_units) - 1;
}

inline_always struct span **slab_prev(struct span *slab) { return &slab_cold(slab)->prev; }

/* The link byte of a slot. Slots count from 1. */
inline_always uint8_t *slab_link(const struct span *slab, size_t slot)
{
    return (uint8_t *)(uintptr_t)(slab + 1) + LINKS_AT + slot;
}

/* A word of a packed slab, which has no links: a bit for each of the 64 blocks of a slot, set while
 * the block is free. Words count from 0, slots from 1. */
inline_always uint64_t *packed_word(const struct span *slab, size_t word)
{
    return (uint64_t *)(void *)slab_link(slab, 1) + word;
}

/* The bit of a packed slab's block in its word; `index` counts the blocks of the slab from 0. */
inline_always uint64_t packed_bit(size_t index) { return (uint64_t)1 << index % 64; }

/* The first byte of the block of a slot. */
inline_always char *slab_block(const struct span *slab, unsigned slot)
{
    return slab->base + (size_t)slot * slab->size_bytes;
}

/* The first byte of the slab's run: `base` is one block before it. */
inline_always char *slab_start(const struct span *slab) { return slab->base + slab->size_bytes; }

/* The number of free slots from which on a full slab is listed again. One is not worth the return
 * to the slab; at most a sixteenth stays unused. */
inline_always uint8_t slab_relist_after(const struct span *slab)
{
    return (uint8_t)(1 + slab->capacity / 16);
}

/* Whether the slab is FULL: it is then linked to itself. */
inline_always bool slab_is_waiting(const struct span *slab) { return slab->next == slab; }

/* Makes the slab FULL: none of its slots is free, and it is in no list. */
inline_always void slab_wait(struct span *slab)
{
    slab_hot(slab)->frees_to_attention = slab_relist_after(slab);
    slab->next = slab;
}

/* The heap that has the slab, or the private heap that has the large block. NULL if there is none.
 * Acquire: pairs with slab_set_owner, because nothing else orders the caller's reads of a heap that
 * is younger than its block. */
inline_always struct heap *slab_heap(const struct span *slab)
{
    return (struct heap *)(load_acquire(&slab->owner) & OWNER_HEAP_MASK);
}

/* Gives the slab to the heap. Release: pairs with slab_heap. */
inline_always void slab_set_owner(struct span *slab, struct heap *heap)
{
    uintptr_t tag = slab_is_packed(slab) ? OWNER_PACKED : 0;
    store_release(&slab->owner, (uintptr_t)heap | tag);
}

/* The number of the slot at `address`, which is in the slab's pages; slots count from 1. If no
 * block that was ever handed out starts there, the number is at least `fresh_slot`.
 *
 * The number takes one multiplication. A block size is odd * 2^k, and `size_inverse` is the inverse
 * of the odd factor, shifted. The rotation then turns a multiple of the size into its quotient, and
 * every other offset into a number beyond all quotients (Hacker's Delight, section 10-17). The
 * arithmetic is modulo 2^(32 - INVERSE_SHIFT + k), at least 2^21; no offset in a slab is near that.
 */
inline_always uint64_t slab_slot(const struct span *slab, const void *address)
{
    return rotate_right_32(
        (uint32_t)((uintptr_t)address - (uintptr_t)slab->base) * slab->size_inverse, INVERSE_SHIFT);
}

/* Whether the link byte is that of a block in use which no thread has freed. */
inline_always bool link_shows_use(uint8_t link)
{
    return link == LINK_LIVE || link == LINK_PROFILED;
}

/* Whether the slot, as computed by slab_slot, was handed out and its link byte says LIVE. */
inline_always bool slab_shows_live(const struct span *slab, unsigned slot)
{
    return slot < load_relaxed(&slab->fresh_slot) &&
           load_relaxed(slab_link(slab, slot)) == LINK_LIVE;
}

inline_always bool slab_is_zero_size(const struct span *slab)
{
    return class_is_zero_size(slab_class(slab));
}

/* Sets the use word unconditionally, to CURRENT, IDLE or ASIDE. Release: pairs with slab_try_use.
 * Threads: owner only, while the word is not PURGED or EMPTIED. */
inline_always void slab_set_use(struct span *slab, enum slab_use use)
{
    store_release(&slab_cold(slab)->use, (uint32_t)use);
}

/* Sets the use word to ASIDE: from now on, other threads may purge the slab. */
inline_always void slab_put_aside(struct span *slab)
{
    store_relaxed(&slab_cold(slab)->swept.looked, UINT64_MAX);
    slab_set_use(slab, SLAB_ASIDE);
}

/* Whether the slab is aside; another thread may be purging it. Threads: any. */
inline_always bool slab_is_aside(const struct span *slab)
{
    return (load_relaxed(&slab_cold(slab)->use) & ((1 << USE_BITS) - 1)) >= SLAB_ASIDE;
}

/* Changes the use word from ASIDE to `use`. Acquire: pairs with slab_end_purge, so all purges
 * happened before, and with slab_set_use.
 * Returns: false if the slab is not aside, or another thread holds it at PURGED.
 * Threads: any for PURGED, otherwise owner only. */
bool slab_try_use(struct span *slab, enum slab_use use);

/* Changes the use word from ASIDE to CURRENT, with slab_take_given.
 * Returns: false if another thread purges the slab, or if its pages are refused; it stays aside.
 * Locking: heap held, no other lock. */
bool slab_try_current(struct span *slab, bool *refused);

/* Counts the purged pages of a slab again, before its blocks are handed out.
 * Returns: false if the hard limit refuses them; then nothing changes, and *refused becomes true.
 * If it is true already, the limit is not asked.
 * Threads: the one that changed the use word to IDLE or PURGED, no lock held. */
bool slab_take_given(struct span *slab, bool *refused);

/* The number of purged pages of the slab, which do not count for the limits. */
inline_always size_t slab_count_given(const struct span *slab)
{
    return count_bits(load_relaxed(&slab_cold(slab)->swept.given));
}

/* Changes the use word from ASIDE to IDLE, before an empty slab is retired, or from PURGED to
 * EMPTIED.
 * Returns: false if the word is EMPTIED now; the purging thread will post the slab. */
bool slab_try_leave(struct span *slab);

/* Changes the use word from PURGED or EMPTIED to ASIDE. Release: pairs with slab_try_use.
 * Returns: true if it was EMPTIED; then the caller posts the slab.
 * Threads: the one that made it PURGED. */
bool slab_end_purge(struct span *slab);

/* Gives the pages of an empty slab back to the page layer. */
void slab_retire(struct span *slab);

/* Puts a slot in use into the list of free slots. */
inline_always void slab_push(struct span *slab, unsigned slot)
{
    store_relaxed(slab_link(slab, slot), (uint8_t)slab_hot(slab)->head);
    slab_hot(slab)->head = slot;
    slab_hot(slab)->top = slab_block(slab, slot);
}

/* Takes the first slot of the list, which is `slot`. Size and base are read before the link byte,
 * although they are needed after it, because mixed sizes are faster this way: decision 26. */
inline_always void *slab_pop_first(struct span *slab, size_t slot)
{
    struct slab_hot_line *own = slab_hot(slab);
    void *block = own->top;
    uint32_t size_bytes = slab->size_bytes;
    char *base = slab->base;
    keep_in_register(size_bytes);
    keep_in_register(base);
    uint32_t next = load_folded(slab_link(slab, slot));
    keep_in_register(slot); /* both uses of the link byte address it directly */
    store_relaxed(slab_link(slab, slot), (uint8_t)LINK_LIVE);
    needed_until_here(slot);
    own->head = next;
    own->top = base + next * size_bytes;
    return block;
}

/* Takes a slot that was never handed out. Returns: its block, NULL if there is none. */
inline_always void *slab_pop_fresh(struct span *slab)
{
    unsigned slot = (unsigned)slab->fresh_slot;
    if (slot > slab->capacity)
        return NULL;
    store_relaxed(&slab->fresh_slot, (uint64_t)slot + 1);
    return slab_block(slab, slot);
}

/* Takes a slot from the list, else one that was never handed out. NULL if there is none. */
inline_always void *slab_pop(struct span *slab)
{
    return likely(slab_hot(slab)->head != LINK_END) ? slab_pop_first(slab, slab_hot(slab)->head)
                                                    : slab_pop_fresh(slab);
}

/* Link bytes that slab_remote_links reads at once. */
enum { LINKS_A_WORD = 8 };

/* The slots from `first` on that say REMOTE: the highest bit of the byte of each. Sequentially
 * consistent: see remote.c. Exact: no carry leaves a byte (Hacker's Delight, 2nd edition, 6-1). */
inline_always uint64_t slab_remote_links(const struct span *slab, unsigned first)
{
    const uint64_t sevens = UINT64_MAX / 255 * 0x7f;
    const uint64_t *word = (const uint64_t *)(const void *)slab_link(slab, first);
    uint64_t differ = load_seq_cst(word) ^ UINT64_MAX / 255 * LINK_REMOTE;
    return ~(((differ & sevens) + sevens) | differ | sevens);
}
static_check((LINKS_AT + 1) % LINKS_A_WORD == 0, "the first link begins a word");

/* The number of slots that other threads freed and the owner has not collected. Approximate if the
 * slab may become another one. Threads: any. */
unsigned slab_remote(const struct span *slab);

/* The number of blocks in use, including those that slab_remote counts. */
unsigned slab_live(const struct span *slab);

/* Whether any block is in use, borrowed, or being freed. Sequentially consistent, like remote
 * frees: of two threads that free the last two blocks, at least one finds none in use.
 * Threads: any. */
bool slab_is_in_use(const struct span *slab);

/* The number of slots that are not free, as `frees_to_attention` counts them: slab_live, and the
 * slots in quarantine. Of a packed slab, the number of slots with a block in use. */
unsigned slab_used(const struct span *slab);

/* The number of words of a packed slab that blocks were ever handed out of. A thread that is not
 * the owner may see any value of `fresh_slot`. */
inline_always size_t packed_words(const struct span *slab)
{
    uint64_t limit = load_relaxed(&slab->fresh_slot);
    return smaller_of(limit - (limit != 0), (uint64_t)PACKED_SLOTS);
}

/* The number of slots of a packed slab that have a free block or were never handed out. */
unsigned packed_ready(const struct span *slab);

/* The number of blocks in use of a packed slab; exact while none is freed or handed out. */
size_t packed_live(const struct span *slab);

/* Checks the invariants of a slab, with assertions. Does nothing in builds without config_debug.
 * Threads: owner only. */
void slab_verify(const struct span *slab);

#endif
