/* The slab: a run of pages cut into equal slots, with all that is known of them outside the run.
 *
 * Free slots form a LIFO list of slot numbers, one link byte a slot, kept in the header's cold
 * area: the block freed last is still in the cache and is handed out first, and a block in use
 * holds nothing of ours. A link byte is 0 while its slot is in use (or was never handed out), so
 * one byte tells a double free. The block of the first free slot is kept at hand: to compute it is
 * what the next allocation would wait for. Slots never handed out are not in the list: `limit`
 * counts up through them, and neither their memory nor their link bytes are touched before.
 *
 * Invariants (slab_verify), where a block that another thread freed is live until it is collected:
 *   live + listed == limit - 1, listed == length of the list from head;
 *   top == the block of slot head, unless that is the end;
 *   and of `until` what the table of its states says.
 *
 * The state of a slab that a heap has, and what `until` counts in it; each free of the owner's
 * takes one off, and at 0 calls heap_attend. The holder changes both (slab_lists.c). Not of packed
 * slabs, whose `until` packed.h explains; of a large or guarded block it is a mark, see
 * profiling.h.
 */
/* clang-format off */
/*   state           where                until counts               at 0
 *   SMALL CURRENT   heap->current        frees, to the next look    starts anew; asks what is due
 *   MEDIUM CURRENT  heap->current        slots that are not free    stays, and counts as spare
 *   LISTED          its class's bin      slots that are not free    goes, unless it is posted
 *   FULL            next is the slab     slab_patience, less the    becomes LISTED
 *                                        slots freed since
 *
 *   new -> CURRENT      heap_refill
 *   new -> LISTED       heap_add_slab, of a first-class heap
 *   CURRENT -> FULL     heap_leave_current, or heap_put_aside, without a free slot
 *   CURRENT -> LISTED   heap_put_aside
 *   FULL -> LISTED      heap_attend or heap_drain, slab_patience slots were freed
 *   LISTED -> CURRENT   heap_refill
 *   LISTED -> gone      heap_retire_listed, all its slots are free
 *   CURRENT -> gone     retire_spares, of a medium class, all its slots are free
 */
/* clang-format on */
/* What a link byte says, and who changes it:
 *   LIVE         in use, or never handed out
 *   PROFILED     in use, a sample of the profiler: its free is reported, see profiling.h
 *   REMOTE       freed by another thread, not collected yet
 *   QUARANTINED  freed, full hardened builds: waits to be listed
 *   TAKEN        freed by another thread, full hardened builds: that thread wipes it
 *   a slot, END  free, and the next in the list
 *
 *   LIVE -> a slot, END, QUARANTINED    owner, the block is freed
 *   LIVE -> PROFILED                    owner, hands the block out
 *   LIVE -> PROFILED                    who resizes it, compare-and-swap
 *   PROFILED -> LIVE                    any thread, compare-and-swap: frees the block next
 *   LIVE -> REMOTE                      any other thread, compare-and-swap: the block is freed
 *   LIVE -> TAKEN -> REMOTE             the same in full hardened builds, by two
 *   REMOTE -> a slot, END, QUARANTINED  owner, collects
 *   QUARANTINED -> a slot, END          owner
 *   a slot, END -> LIVE                 owner, the block is handed out
 *
 * What other threads may do with a slab, its use word, and who changes it: CURRENT as above, ASIDE
 * while it is LISTED or FULL. Not of packed slabs; one of a first-class heap stays IDLE:
 *   IDLE     no heap has it: new, kept in a run cache, or given back
 *   CURRENT  its heap allocates from it
 *   ASIDE    waits, full or in its bin's list: no block of it is handed out
 *   PURGED   aside, and some thread gives free pages of it back: see heap_sweep.c
 *   EMPTIED  likewise, and its last block was freed meanwhile: the owner wants to hear when it ends
 *
 *   IDLE -> CURRENT    owner
 *   CURRENT -> ASIDE   owner
 *   ASIDE -> CURRENT   owner, compare-and-swap: the block handed out next has its page. And back,
 *                      where the hard limit does not admit its pages that were given back
 *   ASIDE -> IDLE      owner, compare-and-swap: the slab is empty and goes
 *   CURRENT -> IDLE    owner
 *   ASIDE -> PURGED    any thread, compare-and-swap
 *   PURGED -> EMPTIED  owner, compare-and-swap
 *   PURGED -> ASIDE    who purges, exchange; so EMPTIED -> ASIDE, and then it posts the slab
 *
 * Only a block that says LIVE can be freed, so the second of two frees in a row dies, whichever
 * threads they are of. Remote frees, and how the owner hears of them: remote.c.
 *
 * Which operations may run together: the owner's with remote frees of other threads; remote frees
 * with one another. Owner here is whoever holds the heap: its thread, or the thread that borrowed
 * an orphan.
 */
#ifndef CAIRN_HEAP_SLAB_H
#define CAIRN_HEAP_SLAB_H

#include "heap/size_class.h"
#include "page/page.h"

enum {
    LINK_LIVE = 0,
    LINK_END = 255,
    LINK_REMOTE = 254,
    LINK_PROFILED = 253,
    LINK_QUARANTINED = 252,     /* full hardened builds, where no slot has this number, nor */
    LINK_TAKEN = 251,           /* this one: harden.h */
    PACKED_CLASS = CLASS_COUNT, /* of packed slabs, which the rest of this file does not hold for */
};

/* The owner word is the heap, 0 of a slab without one, with this tag in packed slabs, so that no
 * fast path takes their blocks. */
enum { OWNER_PACKED = 2 };
/* A large block's word, which is 0 unless a first-class heap has it, has this one. */
enum { OWNER_LARGE = 4 };
#define OWNER_HEAP_MASK (~(uintptr_t)63)

/* Behind the header, on the line of the first links: what the owner writes with each malloc and
 * free. So other threads that free blocks of the slab find the header in their caches. */
struct own_line {
    union {
        void *top;        /* owner: the block of `head`, while that is a slot */
        char *claimed_at; /* packed slab, atomic, holder writes: first block of the word claimed */
    };
    uint32_t head; /* owner: first free slot. A word, because a byte that was stored just now takes
                      twice as long to be read */
    uint8_t until; /* owner: frees until the slab needs attention */
};

enum { REMOTE_WORDS = 4 };

/* Behind the links, at the end: what is seldom looked at. */
struct remote {
    struct span *prev; /* owner: in the bin's list */
    union {
        uint32_t serial; /* packed slab, atomic, holder writes: odd while it claims */
        uint32_t use;    /* all others, atomic: enum slab_use, and of which process; see above */
    };
    uint32_t generation; /* atomic: of the process whose frees a frozen slab's words hold */
    union {
        uint64_t words[REMOTE_WORDS]; /* atomic: packed slab: its summary; frozen slab: a bit a slot
                                         that was freed in this process */
        struct {
            struct span *next, *prev; /* first-class heap, lock: all its slabs. By atomic accesses:
                                         late frees of a frozen slab may still look at a word */
        } of_heap;
        struct {
            uint64_t summary[2]; /* packed slab: `words` */
            uint64_t given;      /* atomic: pages given back while aside. Whoever purges sets bits,
                                    the holder clears them; none while current. See heap_sweep.c
                                    and, of packed slabs, packed_sweep.c */
            uint64_t looked;     /* atomic, holder writes: what it saw when it looked last */
        } swept;                 /* not of a frozen slab */
    };
};

/* A header with what lies behind it, without the links: those of a slab without slots. */
struct slab_parts {
    struct span header;
    struct own_line own;
    struct remote remote;
};
static_check(sizeof(struct own_line) == LINKS_AT + 1, "the links come next; no slot is 0");
static_check(sizeof(struct remote) == SLAB_REMOTE_BYTES, "the cold area has room for it");
static_check(CAPACITY_MAX <= REMOTE_WORDS * 64, "a bit for each slot");
static_check((int)CAPACITY_MAX < (config_quarantine ? (int)LINK_TAKEN : (int)LINK_PROFILED),
             "no slot has the number of a state");

static_check((LINKS_AT + CAPACITY_MAX + 1 + SLAB_REMOTE_BYTES + 7 + 63) / 64 < COLD_KINDS,
             "the page layer knows the cold area's size");

/* Counts forks on the way to this process: what a word of another process says is void. Written in
 * the child, before it has threads. On a line that nobody writes else: every remote free reads it.
 */
extern hidden_data uint32_t heap_generation;

enum slab_use { SLAB_IDLE, SLAB_CURRENT, SLAB_ASIDE, SLAB_PURGED, SLAB_EMPTIED };
enum { USE_BITS = 3 }; /* the process above them: a thread that purged is not there after a fork */

inline_always bool slab_is_packed(const struct span *slab)
{
    return slab_class(slab) == PACKED_CLASS;
}

inline_always struct own_line *slab_own(const struct span *slab)
{
    return (struct own_line *)(uintptr_t)(slab + 1);
}

inline_always struct remote *slab_remote(const struct span *slab)
{
    return (struct remote *)(uintptr_t)(slab + 1 + slab->cold_64) - 1;
}

inline_always struct span **slab_prev(struct span *slab) { return &slab_remote(slab)->prev; }

inline_always uint8_t *slab_link(const struct span *slab, size_t slot)
{
    return (uint8_t *)(uintptr_t)(slab + 1) + LINKS_AT + slot;
}

inline_always char *slab_block(const struct span *slab, unsigned slot)
{
    return slab->base + (size_t)slot * slab->size_bytes;
}

inline_always char *slab_start(const struct span *slab) { return slab->base + slab->size_bytes; }

/* A slab that ran full waits outside its bin's list until so many of its slots were freed: a slab
 * with one free slot is not worth going back to. Bounds the free slots out of reach to a sixteenth.
 */
inline_always uint8_t slab_patience(const struct span *slab)
{
    return (uint8_t)(1 + slab->capacity / 16);
}

/* Such a slab is linked to itself. */
inline_always bool slab_is_waiting(const struct span *slab) { return slab->next == slab; }

inline_always void slab_wait(struct span *slab)
{
    slab_own(slab)->until = slab_patience(slab);
    slab->next = slab;
}

/* Of a large block, too: NULL of one that no first-class heap has. */
inline_always struct heap *slab_heap(const struct span *slab)
{
    return (struct heap *)(load_relaxed(&slab->owner) & OWNER_HEAP_MASK);
}

/* Number of the slot at `address`, which lies in the slab's pages, 1 up; a number of at least
 * `limit` when no block that was ever handed out starts there. One multiplication: for a block size
 * odd * 2^k, `inverse` is the inverse of odd, shifted so that a multiple of the size becomes its
 * quotient after the rotation, and anything else a number beyond every quotient (Hacker's Delight,
 * section 10-17). The arithmetic is modulo 2^(32 - INVERSE_SHIFT + k), at least 2^21; no offset in
 * a slab comes near that. */
inline_always uint64_t slab_slot(const struct span *slab, const void *address)
{
    return rotate_right_32((uint32_t)((uintptr_t)address - (uintptr_t)slab->base) * slab->inverse,
                           INVERSE_SHIFT);
}

/* What the link byte of a block in use says that nobody has freed. */
inline_always bool link_shows_use(uint8_t link)
{
    return link == LINK_LIVE || link == LINK_PROFILED;
}

/* Whether the slot, as slab_slot computed it, was handed out and nobody has freed it since; but not
 * of the profiler's samples. */
inline_always bool slab_shows_live(const struct span *slab, unsigned slot)
{
    return slot < load_relaxed(&slab->limit) && load_relaxed(slab_link(slab, slot)) == LINK_LIVE;
}

inline_always bool slab_is_void(const struct span *slab) { return class_is_void(slab_class(slab)); }

/* Whatever it was used for, the slab is current, or no heap's. The holder's. */
inline_always void slab_set_use(struct span *slab, enum slab_use use)
{
    store_release(&slab_remote(slab)->use, (uint32_t)use);
}

/* The slab is allocated from no more. */
inline_always void slab_put_aside(struct span *slab)
{
    store_relaxed(&slab_remote(slab)->swept.looked, UINT64_MAX);
    slab_set_use(slab, SLAB_ASIDE); /* release: pairs with slab_try_use */
}

/* From ASIDE; false while another thread purges it, or when it is not aside. Acquire: what that
 * thread gave back comes before. */
bool slab_try_use(struct span *slab, enum slab_use use);

/* From ASIDE to CURRENT, and its pages that were given back count again; false when they would pass
 * the hard limit, too. Then *refused is true, and no other slab that needs pages is asked for any.
 * The holder's, no lock held. */
bool slab_try_current(struct span *slab, bool *refused);

/* The same of one that is the holder's alone. */
bool slab_take_given(struct span *slab, bool *refused);

/* How many pages of it were given back and do not count. */
inline_always size_t slab_count_given(const struct span *slab)
{
    return count_bits(load_relaxed(&slab_remote(slab)->swept.given));
}

/* From ASIDE to IDLE, or from PURGED to EMPTIED and then false. The holder's, aside. */
bool slab_try_leave(struct span *slab);

/* From PURGED; whether it was EMPTIED. */
bool slab_end_purge(struct span *slab);

/* Gives an empty slab's pages back; the second where some may have gone. */
void slab_retire(struct span *slab);
void slab_retire_swept(struct span *slab, size_t given_pages);

/* Puts the slot into the list of free ones; the owner's, and the slot is in use. */
inline_always void slab_push(struct span *slab, unsigned slot)
{
    store_relaxed(slab_link(slab, slot), (uint8_t)slab_own(slab)->head);
    slab_own(slab)->head = slot;
    slab_own(slab)->top = slab_block(slab, slot);
}

/* Takes the first slot of the list, which is not empty. Size and base are read before the link, and
 * not where they are needed: else mixed sizes take a tenth longer, see decision 26. */
inline_always void *slab_pop_first(struct span *slab, size_t slot)
{
    struct own_line *own = slab_own(slab);
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

/* Takes a slot never used. NULL when there is none. */
inline_always void *slab_pop_fresh(struct span *slab)
{
    unsigned slot = (unsigned)slab->limit;
    if (slot > slab->capacity)
        return NULL;
    store_relaxed(&slab->limit, (uint64_t)slot + 1);
    return slab_block(slab, slot);
}

/* Takes a free slot: from the list, else one never used. NULL when there is none. */
inline_always void *slab_pop(struct span *slab)
{
    return likely(slab_own(slab)->head != LINK_END) ? slab_pop_first(slab, slab_own(slab)->head)
                                                    : slab_pop_fresh(slab);
}

enum { LINKS_A_WORD = 8 };

/* The links of a word, from `first` on, that say REMOTE: the highest bit of each such byte. Exact:
 * no carry leaves a byte (Hacker's Delight, 2nd edition, section 6-1). Sequentially consistent, see
 * remote.c. */
inline_always uint64_t slab_remote_links(const struct span *slab, unsigned first)
{
    const uint64_t sevens = UINT64_MAX / 255 * 0x7f;
    const uint64_t *word = (const uint64_t *)(const void *)slab_link(slab, first);
    uint64_t differ = load_seq_cst(word) ^ UINT64_MAX / 255 * LINK_REMOTE;
    return ~(((differ & sevens) + sevens) | differ | sevens);
}
static_check((LINKS_AT + 1) % LINKS_A_WORD == 0, "the first link begins a word");

/* Whether any slot was freed remotely and not collected since. */
bool slab_has_remote(const struct span *slab);

/* Blocks in use, those freed remotely but not collected among them. */
unsigned slab_live(const struct span *slab);

/* Slots that are not free: those and, in hardened builds, those in quarantine. What `until`
 * counts. */
unsigned slab_used(const struct span *slab);

void slab_verify(const struct span *slab);

#endif
