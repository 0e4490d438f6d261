// Counts the memory that live blocks pin: the free bytes of slab pages that cannot be returned
// while a block on the page is live. The counts by size are exact; those by site are estimated from
// the profiler's samples.
//
// The free bytes of a page are divided among its live blocks in proportion to their bytes on it. So
// blocks on full pages pin nothing, and the sum over all blocks equals the sum over all pages. A
// sample stands for as many blocks as its weight, which is 1 / P, where P is its probability of
// being sampled. The sum of weight times pinned bytes is an unbiased estimate for all sizes
// (Horvitz and Thompson 1952). The variance of the estimate is about the sum of weight (weight - 1)
// pinned^2.
#include "look.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 257 };

struct class_row {
    uint64_t pages, full_pages, live_bytes, pinned_bytes;
};

struct site_row {
    uint64_t samples;
    double blocks, block_bytes, pages, pinned_bytes, variance;
};

static struct class_row classes[ROWS];
static struct samples samples;
static struct site_row *sites;
static size_t placed; // samples that are live blocks of slabs

static void prepare(struct look *look)
{
    if (sites != NULL)
        return;
    size_t bytes = (look->library->profile.site_count + (size_t)1) * sizeof *sites;
    sites = memset(take_memory(NULL, bytes), 0, bytes);
    read_samples(look, &samples);
}

static void note_sample(const struct sample *sample, uint64_t start, uint64_t bytes,
                        const struct slab_pages *pages)
{
    struct site_row *row = &sites[sample->site];
    double pinned = 0, share = 0;
    for (uint64_t at = start; at < start + bytes;) {
        const struct slab_page *page = &pages->pages[at / SLAB_PAGE_BYTES];
        uint64_t page_end = (at / SLAB_PAGE_BYTES + 1) * SLAB_PAGE_BYTES;
        uint64_t piece = (page_end < start + bytes ? page_end : start + bytes) - at;
        uint64_t dead = SLAB_PAGE_BYTES - page->live_bytes;
        if (page->resident && dead != 0) {
            share += (double)piece / page->live_bytes;
            pinned += (double)dead * (double)piece / page->live_bytes;
        }
        at += piece;
    }
    placed++;
    row->samples++;
    row->blocks += sample->weight;
    row->block_bytes += sample->weight * (double)bytes;
    row->pages += sample->weight * share;
    row->pinned_bytes += sample->weight * pinned;
    row->variance += sample->weight * (sample->weight - 1) * pinned * pinned;
}

void note_pins(struct look *look, const struct span_view *slab, const struct slab_slots *slots,
               const struct slab_pages *pages)
{
    prepare(look);
    struct class_row *row =
        &classes[slab->packed ? look->library->heap.class_count : slab->size_class];
    for (uint64_t i = 0; i < pages->count; i++) {
        const struct slab_page *page = &pages->pages[i];
        if (!page->resident || page->live_bytes == 0)
            continue;
        row->pages += page->live_bytes < SLAB_PAGE_BYTES;
        row->full_pages += page->live_bytes == SLAB_PAGE_BYTES;
        row->live_bytes += page->live_bytes;
        row->pinned_bytes += SLAB_PAGE_BYTES - page->live_bytes;
    }
    for (size_t i = first_sample(&samples, slab->start);
         i < samples.count && samples.list[i].block < slab->start + slab->bytes; i++) {
        uint64_t offset = samples.list[i].block - slab->start;
        uint64_t slot = offset / slots->size_bytes;
        if (pages->count != 0 && slot < slots->count && offset % slots->size_bytes == 0 &&
            slots->states[slot] == SLOT_IS_LIVE)
            note_sample(&samples.list[i], offset, slots->size_bytes, pages);
    }
}

static void print_classes(const struct library *library)
{
    for (uint32_t i = 0; i <= library->heap.class_count; i++) {
        const struct class_row *row = &classes[i];
        bool packed = i == library->heap.class_count;
        if (row->pages + row->full_pages != 0)
            printf("pins\tsize_bytes=%" PRIu64 "\tpacked=%d\tpages=%" PRIu64 "\tfull_pages=%" PRIu64
                   "\tlive_bytes=%" PRIu64 "\tpinned_bytes=%" PRIu64 "\n",
                   packed ? library->heap.packed_bytes : library->class_bytes[i], packed,
                   row->pages, row->full_pages, row->live_bytes, row->pinned_bytes);
    }
}

static void print_site(struct look *look, uint32_t number, bool *is_named)
{
    const struct site_row *row = &sites[number];
    printf("site\tsamples=%" PRIu64 "\tblocks=%.0f\tblock_bytes=%.0f\tpages=%.0f"
           "\tpinned_bytes=%.0f\tvariance=%.0f\t",
           row->samples, row->blocks, row->block_bytes, row->pages, row->pinned_bytes,
           row->variance);
    print_frames(look, number, is_named);
    putchar('\n');
}

void print_pins(struct look *look)
{
    struct target *target = look->target;
    bool *is_named = no_names(target);
    prepare(look);
    print_classes(look->library);
    printf("samples\tinterval_bytes=%" PRIu64 "\tcount=%zu\tin_slabs=%zu\tstacks_lost=%" PRIu64
           "\tblocks_lost=%" PRIu64 "\n",
           samples.interval_bytes, samples.count, placed, samples.stacks_lost, samples.blocks_lost);
    for (uint32_t i = 0; i < look->library->profile.site_count; i++)
        if (sites[i].samples != 0)
            print_site(look, i, is_named);
    print_mappings(target, is_named);
}
