// Finds pages that few blocks hold. At a low point of live memory, each page whose live bytes are
// at most a quarter counts as pinned. The remaining bytes of such a page are attributed to the
// sites of its blocks, in proportion to their bytes. A site keeps its largest sum of all low
// points.
#include <stdlib.h>

#include "advise.h"

struct piece {
    uint64_t page;
    uint32_t site;
    uint32_t bytes;
};

struct pieces {
    struct piece *piece;
    size_t count, room;
};

static void add(const struct block *block, void *context)
{
    struct pieces *pieces = context;
    uint64_t at = block->address, end = at + (block->size_bytes ? block->size_bytes : 1);
    if (end - at >= ADVISE_PAGE_BYTES / 2) // the block itself holds its pages
        return;
    for (; at < end && pieces->count < pieces->room;
         at = (at / ADVISE_PAGE_BYTES + 1) * ADVISE_PAGE_BYTES) {
        uint64_t stop = (at / ADVISE_PAGE_BYTES + 1) * ADVISE_PAGE_BYTES;
        uint32_t bytes = (uint32_t)((stop < end ? stop : end) - at);
        pieces->piece[pieces->count++] = (struct piece){at / ADVISE_PAGE_BYTES, block->site, bytes};
    }
}

static int by_page(const void *left, const void *right)
{
    const struct piece *one = left, *other = right;
    return one->page < other->page ? -1 : one->page > other->page;
}

static void share(struct advice *advice, const struct piece *piece, size_t count)
{
    uint64_t live = 0;
    for (size_t i = 0; i < count; i++)
        live += piece[i].bytes;
    if (live == 0 || live > ADVISE_PAGE_BYTES / 4)
        return;
    for (size_t i = 0; i < count; i++)
        advice->sites[piece[i].site].pinned_now +=
            (ADVISE_PAGE_BYTES - live) * piece[i].bytes / live;
}

void pages_look(struct advice *advice)
{
    struct pieces pieces = {.room = 2 * blocks_live() + 1};
    pieces.piece = malloc(pieces.room * sizeof *pieces.piece);
    if (pieces.piece == NULL)
        return;
    blocks_visit(add, &pieces);
    qsort(pieces.piece, pieces.count, sizeof *pieces.piece, by_page);
    for (size_t first = 0, last; first < pieces.count; first = last) {
        for (last = first; last < pieces.count; last++)
            if (pieces.piece[last].page != pieces.piece[first].page)
                break;
        share(advice, pieces.piece + first, last - first);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < advice->site_count; i++) {
        struct site *site = &advice->sites[i];
        sum += site->pinned_now;
        if (site->pinned_now > site->pinned_bytes)
            site->pinned_bytes = site->pinned_now;
        site->pinned_now = 0;
    }
    if (sum > advice->pinned_bytes)
        advice->pinned_bytes = sum;
    free(pieces.piece);
}
