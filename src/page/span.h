/* The span: a run of whole pages with one header, which lies outside the run.
 *
 * The header is one cache line. In a slab it hardly changes while blocks come and go: who frees
 * another thread's block reads it and one link byte. What the owner writes lies behind it with the
 * links, in the header's cold area. The same header serves free spans, slabs and large blocks;
 * `tag` says which, and the unions name who uses which word. Headers live in metadata memory that
 * is never given back, and serve as headers for ever, so that a stray pointer can read a stale
 * header but never anything else.
 *
 * Threading: in a free span everything belongs to the page lock. In a slab everything but `owner`
 * and `post` belongs to the slab's owner (see heap/slab.h); other threads read the fields that are
 * constant while the slab lives.
 */
#ifndef CAIRN_PAGE_SPAN_H
#define CAIRN_PAGE_SPAN_H

#include "base/compiler.h"

enum {
    PAGE_SHIFT = 12, /* of the page map; the system's pages may be larger */
    PAGE_BYTES = 1 << PAGE_SHIFT,
};

/* Values of `tag`. Zero is nothing, so that the null span needs no initialiser. */
enum {
    SPAN_NONE,
    SPAN_FREE,      /* in the page layer's bins */
    SPAN_MOVING,    /* free, but out of the bins while its memory is purged */
    SPAN_KEPT,      /* freed, and kept for the next: heap/run_cache.h, room.h */
    SPAN_LARGE,     /* one block, pages of an arena */
    SPAN_HUGE,      /* one block, a mapping of its own */
    SPAN_RUN,       /* large, but of another allocator than the heap: no block of it */
    SPAN_RUN_HUGE,  /* huge, likewise */
    SPAN_GUARDED,   /* one sampled block between guard pages, see watch/guarded_blocks.h */
    SPAN_TRAPPED,   /* hardened: freed, its addresses fault */
    SPAN_RESIZED,   /* large or huge, and some thread resizes it just now: heap/large.h */
    SPAN_SLAB = 16, /* and up: a slab of size class tag - SPAN_SLAB */
};

struct span {
    uintptr_t owner; /* atomic: slabs, see heap/slab.h; 0 in all others: it equals no heap */
    char *base;      /* const in use: first byte; of a slab one block before, slots count from 1 */
    union {
        uint32_t inverse;    /* slab, const: times it, an offset is divided by the block size */
        size_t behind_bytes; /* hardened, huge, owner: without permissions behind the run */
        uint64_t claimed;    /* packed slab, atomic, holder writes: see heap/packed.h */
        uintptr_t purger;    /* moving, page lock: the thread that purges it */
    };
    union {
        uint64_t limit;     /* slab, atomic, owner writes: slots handed out at least once, plus 1;
                               others of this union are stored atomically, too: see dense.h */
        size_t dirty_pages; /* free, page lock: pages that may not read zero; trapped, whoever took
                               it from its place: pages kept */
        struct {
            bool zero;     /* large, huge: every byte read zero when the span was taken */
            bool resident; /* hardened, huge, owner: all of it was written */
            bool grew;     /* large, huge, owner: it has grown, see room.h */
        };
    };
    uintptr_t post; /* slab, atomic: the heap, 0 of a slab without one; see heap/remote.c. Resized,
                       atomic: its tag otherwise, and the process, see heap/frozen.h */
    union {
        struct span *next; /* slab aside: owner, its list in the bin; free: page lock */
        struct {
            uint32_t spare_mark; /* current slab of a medium class, owner: see slab_lists.h */
            uint32_t cycles;     /* likewise: until the next look at what is due */
        };
    };
    union {
        struct span *prev;      /* free, page lock; moving, page lock: the next that is purged */
        struct span *mail_next; /* slab: poster, until it is in the mailbox; then owner */
        size_t asked_bytes;     /* full hardened, large and huge: owner */
        size_t swept_pages;     /* moving, was a slab: whoever gives it; then page lock */
    };
    union {
        uint32_t size_bytes; /* slab, const: of a block; guarded: as asked for */
        uint32_t pages;      /* all others: length of the run */
    };
    uint8_t until;    /* not of slabs. Large and guarded, owner: see heap/profiling.h; free, page
                         lock: see page/free_spans.h; room, page lock: see room.c */
    uint8_t cold_64;  /* const: size of the cold area behind it in units of 64 bytes */
    uint8_t tag;      /* atomic, written by whoever owns the span */
    uint8_t capacity; /* slab, const: number of slots */
};

static_check(sizeof(struct span) == 64, "a header is one cache line");
static_check(offsetof(struct span, owner) == 0, "the page map reads it first");

/* For walks over spans: with its first byte. False stops the walk. */
typedef bool span_visit(struct span *span, char *start, void *context);

/* Behind the last byte; not of a slab. */
inline_always char *span_end(const struct span *span)
{
    return span->base + ((size_t)span->pages << PAGE_SHIFT);
}

inline_always bool span_is_slab(const struct span *span) { return span->tag >= SPAN_SLAB; }
inline_always unsigned slab_class(const struct span *slab)
{
    return slab->tag - (unsigned)SPAN_SLAB;
}

#endif
