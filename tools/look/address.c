// Describes one address: the block, slab, span or mapping that contains it.
#include "look.h"

#include <inttypes.h>
#include <stdio.h>

struct guarded_search {
    uint64_t address;
    bool found;
};

static void print_block(const char *state, uint64_t start, uint64_t bytes, uint64_t address)
{
    printf("block\tstate=%s\tstart=%#" PRIx64 "\tsize_bytes=%" PRIu64 "\toffset=%" PRId64 "\n",
           state, start, bytes, (int64_t)(address - start));
}

static void see_guarded(struct look *look, uint64_t block, uint64_t bytes, bool live, void *context)
{
    struct guarded_search *search = context;
    uint64_t page = look->target->page_bytes;
    if (search->address < block / page * page || search->address >= block + (bytes ? bytes : 1))
        return;
    search->found = true;
    print_block(live ? "live (guarded)" : "freed (guarded)", block, bytes, search->address);
}

static void print_slot(struct look *look, const struct span_view *slab, uint64_t address)
{
    static const char *const words[SLOT_STATES] = {
        [SLOT_IS_LIVE] = "live",           [SLOT_IS_FREE] = "free",
        [SLOT_IS_REMOTE] = "remote-freed", [SLOT_IS_QUARANTINED] = "in quarantine",
        [SLOT_IS_BORROWED] = "free",       [SLOT_IS_UNUSED] = "never used",
    };
    static struct slab_slots slots;
    if (!read_slots(look, slab, &slots)) {
        printf("block\tstate=unknown: the slab's links cannot be read\n");
        return;
    }
    printf("slab\tstart=%#" PRIx64 "\tbytes=%" PRIu64 "\theader=%#" PRIx64 "\tslots=%" PRIu64
           "\tlive=%" PRIu64 "\tpacked=%d\theap=%#" PRIx64 "\tkept=%d\tinherited=%d\n",
           slab->start, slab->bytes, slab->header, slots.count, slots.counts[SLOT_IS_LIVE],
           slab->packed, slab->heap, slab->owner == 0, heap_is_inherited(look, slab->heap));
    uint64_t slot = (address - slab->start) / slots.size_bytes;
    if (slot >= slots.count) {
        printf("block\tstate=none: the rest of the slab behind its last slot\n");
        return;
    }
    bool is_void = slab->size_class == look->library->heap.zero_size_class;
    print_block(words[slots.states[slot]], slab->start + slot * slots.size_bytes,
                is_void ? 0 : slots.size_bytes, address);
}

static void print_span(struct look *look, const struct span_view *span, uint64_t address)
{
    static const char *const words[SPAN_KINDS] = {
        [SPAN_IS_LARGE] = "live (large)",
        [SPAN_IS_HUGE] = "live (huge)",
        [SPAN_IS_FREE] = "free run of pages",
        [SPAN_IS_KEPT] = "freed, and kept",
        [SPAN_IS_RUN] = "pages of another allocator of Cairn",
        [SPAN_IS_REVOKED] = "freed, its addresses fault",
    };
    if (span->kind == SPAN_IS_SLAB)
        print_slot(look, span, address);
    else if (span->kind != SPAN_IS_GUARDED)
        print_block(words[span->kind], span->start, span->bytes, address);
}

static void print_foreign(struct look *look, uint64_t address)
{
    const struct mapping *mapping = mapping_of(look->target, address);
    unsigned char byte;
    if (mapping) {
        printf("foreign\tmapping=%#" PRIx64 "-%#" PRIx64 "\tname=", mapping->start, mapping->end);
        print_clean(mapping->path);
        putchar('\n');
    } else if (read_small(look->target, address, &byte, 1))
        printf("foreign\tname=\n");
    else
        printf("foreign\tunmapped=1\n");
}

void address_report(struct look *look, uint64_t address)
{
    struct guarded_search search = {address, false};
    struct span_view span;
    print_target(look);
    walk_guarded(look, see_guarded, &search);
    if (search.found)
        return;
    if (find_span(look, address, &span))
        print_span(look, &span, address);
    else
        print_foreign(look, address);
}
