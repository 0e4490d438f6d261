/* The span: a run of whole pages with one header, which is not in the run.
 *
 * The header is one cache line. In a slab it hardly changes while blocks are allocated and freed: a
 * thread that frees another thread's block reads it and accesses one link byte. The fields that the
 * owner of a slab writes often are behind the header, with the link bytes, in its cold area.
 *
 * One header type serves free spans, slabs and large blocks. `tag` says which, and the comments of
 * the unions say which kind of span uses which word. Headers are metadata memory that is never
 * given back or used otherwise, so a stray pointer can find a stale header and nothing else.
 * Threads: the lock of its shard protects all fields of a free span. In a slab all fields except
 * `owner` and `mail_state` belong to the owner of the slab (heap/slab.h); other threads read the
 * fields that are constant while the slab exists. */
#ifndef CAIRN_PAGE_SPAN_H
#define CAIRN_PAGE_SPAN_H

#include "base/compiler.h"

enum {
    PAGE_SHIFT = 12, /* size of a map page; a system page may consist of several */
    PAGE_BYTES = 1 << PAGE_SHIFT,
};

/* The regions of the page map (page_map.h). */
enum {
    REGION_COUNT = 1 << 18,
    REGION_SHIFT = ADDRESS_BITS - 18,
    REGION_PAGES = 1 << (REGION_SHIFT - PAGE_SHIFT),
};

/* Values of `tag`. The null span has tag 0, so it needs no initialiser. */
enum {
    SPAN_NONE,
    SPAN_FREE,   /* in the bins of free_spans.c */
    SPAN_MOVING, /* in no list: on its way into the bins, or its memory is being purged */
    SPAN_KEPT,   /* a freed run that is kept for another block: heap/run_cache.h, kept_mappings.h */
    SPAN_LARGE,  /* one block, in pages of an arena */
    SPAN_HUGE,   /* one block, in a mapping of its own */
    SPAN_RUN,    /* a run of an allocator other than the heap, in an arena */
    SPAN_RUN_HUGE,  /* a run of an allocator other than the heap, in a mapping of its own */
    SPAN_GUARDED,   /* a block of option `guard` between inaccessible pages: watch/guards.h */
    SPAN_REVOKED,   /* hardened: a freed guarded block, whose addresses fault */
    SPAN_RESIZED,   /* large or huge, while a thread resizes it: heap/large.h */
    SPAN_SLAB = 16, /* and above: a slab of size class tag - SPAN_SLAB */
};

struct span {
    uintptr_t owner; /* atomic: in slabs and in large blocks of private heaps see heap/slab.h; 0 in
                        all others */
    char *base; /* const in use: first byte of the run; in a slab one block earlier, because slots
                   count from 1 */
    union {
        uint32_t size_inverse; /* slab, const: multiplier that divides by the block size */
        uint32_t behind_pages; /* guarded huge, owner: inaccessible pages behind the run */
        uint32_t purger; /* being purged, shard's lock: bits of the purging thread's identity */
    };
    uint8_t shard; /* const: the number of the header's shard, see state.h */
    union {
        uint64_t fresh_slot; /* slab, atomic, owner writes: 1 + number of slots that were handed out
                           at least once */
        size_t dirty_pages;  /* free, shard's lock, stored atomically (grow.h): pages that may not
                                read zero; revoked, the thread that took it: pages of kept memory */
        struct {       /* never in a slab's header: those have a cold area, and blocks' have none */
            bool zero; /* large, huge, owner: each byte read zero when the span was taken */
            bool grew; /* huge, owner: the block has grown, see kept_mappings.h */
            bool longer; /* huge, owner: a resize failed and left it longer than its size needs */
        };
    };
    uintptr_t mail_state; /* slab, atomic: the heap, 0 for none; see heap/remote.c. Resized, atomic:
                       the span's other tag and the process, see heap/thread_heap.h */
    struct span *next; /* slab that is not current, owner: next in its bin; free, shard's lock: next
                          in its bin; kept run: next of its place, see heap/run_cache.h */
    union {
        struct span *prev; /* free, shard's lock: previous in its bin; being purged, shard's lock:
                              next span that is being purged */
        struct span *mail_next; /* slab: next in the mailbox; written by the posting thread until
                                   the slab is there, then by the thread that takes it out */
        size_t asked_bytes;     /* full hardened, large and huge, owner: requested size */
    };
    union {
        uint32_t size_bytes; /* slab, const: size of a block; guarded: requested size */
        uint32_t pages;      /* all others, owner or shard's lock: length of the run */
    };
    uint8_t mark; /* not used in slabs. Large and guarded, owner: mark of heap/hooks.h; free, page
                      lock: see free_spans.h; kept mapping, page lock: see kept_mappings.c */
    uint8_t side_units; /* const: size of the cold area behind the header in units of 64 bytes */
    uint8_t tag;        /* atomic, written by the owner of the span: SPAN_... */
    uint8_t capacity;   /* slab, const: number of slots */
};

static_check(sizeof(struct span) == 64, "a header is one cache line");
static_check(offsetof(struct span, owner) == 0, "the page map reads it first");

/* A function that walks call for each span, with the first byte of its run. */
typedef void span_visit(struct span *span, char *start, void *context);

/* The end of the run of a span that is not a slab. */
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
