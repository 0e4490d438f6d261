/* The bump allocator for metadata: see meta.h.
 *
 * Pieces are taken from the front of a chunk, of which each kind has one. Chunks of both kinds are
 * taken from ranges. A range is reserved between fences, longer when there is more metadata, and is
 * made accessible chunk by chunk from its start. So a few mappings contain many chunks, and a
 * process that does little reserves little.
 *
 * When the system provides no more memory, free pages of an arena serve as chunks, between fences,
 * so that freed memory can be used again while a limit is reached. */
#include "page/meta.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/memory.h"
#include "os/process.h"
#include "page/span.h"

/* The place, or the same place in the lower half of its region of the page map: an arena that
 * begins there needs one leaf. A second leaf has more than a MiB of addresses, which is too much
 * for a small program that locks its memory. */
static uintptr_t fence_lower_half(uintptr_t place)
{
    return place & ~((uintptr_t)1 << (REGION_SHIFT - 1));
}

/* A random place for an arena in hardened builds: below the stacks and mappings of the program,
 * which the kernel places in the upper half, and above mappings at low addresses. */
static void *fence_random_place(void)
{
    enum { LOWEST_SHIFT = 40, HIGHEST_SHIFT = ADDRESS_BITS - 1 };
    uintptr_t place = os_random() & (((uintptr_t)1 << HIGHEST_SHIFT) - 1);
    place = fence_lower_half(place | (uintptr_t)1 << LOWEST_SHIFT);
    return (void *)align_down(place, os_page_size());
}

/* Where metadata and arenas begin: at random distances below this library. An attacker who knows no
 * address cannot guess the distance from a block to metadata or to the library's data. Metadata has
 * the lower addresses. A core file has memory in the order of addresses, so a truncated core file
 * loses blocks before the metadata that describes them. If the library has low addresses, the
 * distance is from a stack. */
enum { METADATA_SHIFT = 38, ARENAS_SHIFT = 37, KERNEL_CHOOSES = 1 };
static uintptr_t fence_places[2]; /* atomic: next place for metadata, for an arena; 0: none yet */

/* The first place for metadata or for an arena; KERNEL_CHOOSES where there is not enough room. */
static uintptr_t fence_first_place(bool for_arena)
{
    enum { MIN_DISTANCES = 2 };
    uintptr_t distance = (uintptr_t)1 << (for_arena ? ARENAS_SHIFT : METADATA_SHIFT);
    uintptr_t end = (uintptr_t)fence_places;
    if (end >> METADATA_SHIFT < MIN_DISTANCES)
        end = (uintptr_t)__builtin_frame_address(0);
    /* ThreadSanitizer has to know all places in advance. */
    if (config_tsan || end >> METADATA_SHIFT < MIN_DISTANCES)
        return KERNEL_CHOOSES;
    if (!os_places_are_fixed())
        distance += os_random() % (distance / 2);
    return align_down(fence_lower_half(end - distance), LARGEST_PAGE_BYTES);
}

/* The place for the next range, right behind the last one.
 * Returns: NULL where the kernel should choose. */
static void *fence_next_place(size_t size_bytes, bool for_arena)
{
    uintptr_t *next = &fence_places[for_arena];
    uintptr_t place = load_relaxed(next);
    if (unlikely(place == 0)) {
        uintptr_t first = fence_first_place(for_arena);
        place = compare_swap_acq_rel(next, &place, first) ? first : place;
    }
    return place == KERNEL_CHOOSES ? NULL : (void *)fetch_add_relaxed(next, size_bytes);
}

char *fenced_reserve(size_t size_bytes, bool for_arena)
{
    size_t fence = os_page_size();
    size_t bytes = size_bytes + 2 * fence;
    bool random = config_random_runs && for_arena && !config_tsan;
    void *place = random ? fence_random_place() : fence_next_place(bytes, for_arena);
    char *start = os_reserve_near(place, bytes);
    return start ? start + fence : NULL;
}

/* mmap has no parameter for an alignment: reserves more, and unmaps whole pages on both sides. */
char *fenced_reserve_aligned(size_t size_bytes, size_t alignment_bytes)
{
    size_t fence = os_page_size();
    char *run = fenced_reserve(size_bytes + alignment_bytes, true);
    if (run == NULL)
        return fenced_reserve(size_bytes, true);
    char *start = (char *)align_up((uintptr_t)run, alignment_bytes);
    char *end = run + size_bytes + alignment_bytes + fence;
    size_t lead = align_down((size_t)(start - run), fence);
    size_t rest = align_down(alignment_bytes - (size_t)(start - run), fence);
    if (lead != 0)
        (void)os_unmap(run - fence, lead);
    if (rest != 0)
        (void)os_unmap(end - rest, rest);
    return start;
}

void fenced_unmap(char *start, size_t size_bytes)
{
    size_t fence = os_page_size();
    (void)os_unmap(start - fence, size_bytes + 2 * fence);
}

enum { PAIR_BYTES = 2 * 64 }; /* two cache lines */

/* The unit of the lengths of ranges and chunks: the largest page of any supported kernel. */
enum {
    UNIT_BYTES = 64 << 10,
    CHUNK_MAX = META_CHUNK_BYTES / UNIT_BYTES,
    RANGE_MIN = META_KINDS,
    RANGE_MAX = 1024,
};

/* An unused stretch of memory in one word: its start, below 2^48, and from bit COUNT_SHIFT on its
 * length, in pairs of a chunk and in units of a range. The word is exchanged as a whole. No value
 * occurs twice, because nothing is given back. */
enum { COUNT_SHIFT = 48 };
static_check((int)ADDRESS_BITS <= (int)COUNT_SHIFT, "the length has room above the address");

static uintptr_t chunks[META_KINDS]; /* atomic: the unused part of the chunk of each kind */
static uintptr_t range;              /* atomic: the unused part of the current range */
size_t meta_total_bytes;

static char *(*last_resort)(size_t size_bytes); /* atomic: NULL before meta_start */

static char *stretch_start(uintptr_t stretch)
{
    return (char *)(stretch & (((uintptr_t)1 << COUNT_SHIFT) - 1));
}

static uintptr_t stretch_of(const char *start, size_t count)
{
    return (uintptr_t)start | (uintptr_t)count << COUNT_SHIFT;
}

/* Replaces the current range, which was `seen`, by a new one of at least `least` units. Another
 * thread may have replaced it first. Returns: false when out of memory. */
static bool meta_renew_range(uintptr_t seen, size_t least)
{
    size_t as_much_again = load_relaxed(&meta_total_bytes) / UNIT_BYTES;
    size_t units = larger_of(smaller_of(larger_of(as_much_again, RANGE_MIN), RANGE_MAX), least);
    char *start;
    while ((start = fenced_reserve(units * UNIT_BYTES, false)) == NULL && units > least)
        units = larger_of(units / 4, least);
    if (start == NULL)
        return false;
    os_name(start, units * UNIT_BYTES, "cairn: metadata");
    if (!compare_swap_acq_rel(&range, &seen, stretch_of(start, units)))
        fenced_unmap(start, units * UNIT_BYTES);
    return true;
}

/* Takes up to `units` and at least `least` units of the current range or of a new one. The units
 * are made accessible before they are taken, so that a refusal loses none; two threads may do so
 * for the same units. */
static char *meta_take_of_range(size_t units, size_t least, size_t *size_bytes)
{
    uintptr_t seen = load_relaxed(&range);
    for (;;) {
        size_t left = seen >> COUNT_SHIFT;
        if (left < least) {
            if (!meta_renew_range(seen, least))
                return NULL;
            seen = load_relaxed(&range);
            continue;
        }
        size_t taken = smaller_of(left, units);
        char *start = stretch_start(seen);
        *size_bytes = taken * UNIT_BYTES;
        if (os_commit(start, *size_bytes) != 0)
            return NULL;
        if (compare_swap_acq_rel(&range, &seen, stretch_of(start + *size_bytes, left - taken)))
            return start;
    }
}

/* Provides a chunk of at least `least` bytes. Pages of an arena never return to it, so these too
 * are taken in large chunks where possible: single pages would divide the arena for ever. */
static char *meta_map_chunk(size_t least, size_t *size_bytes)
{
    size_t units = align_up(least, UNIT_BYTES) / UNIT_BYTES;
    size_t eighth = load_relaxed(&meta_total_bytes) / UNIT_BYTES / 8;
    char *start =
        meta_take_of_range(larger_of(smaller_of(eighth, CHUNK_MAX), units), units, size_bytes);
    if (start == NULL)
        start = meta_take_of_range(units, units, size_bytes);
    char *(*resort)(size_t) = load_acquire(&last_resort); /* acquire: pairs with meta_start */
    if (start || resort == NULL)
        return start;
    least = align_up(least, os_page_size());
    size_t size = larger_of(UNIT_BYTES, least);
    while ((start = resort(size)) == NULL && size > least)
        size = larger_of(align_down(size / 8, os_page_size()), least);
    *size_bytes = size;
    return start;
}

void *meta_take(enum meta_kind kind, size_t size_bytes)
{
    size_bytes = align_up(size_bytes, PAIR_BYTES);
    size_t pairs = size_bytes / PAIR_BYTES;
    uintptr_t seen = load_relaxed(&chunks[kind]);
    while (seen >> COUNT_SHIFT >= pairs) {
        char *start = stretch_start(seen);
        uintptr_t rest = stretch_of(start + size_bytes, (seen >> COUNT_SHIFT) - pairs);
        /* acquire: pairs with the release of the thread that provided the chunk */
        if (compare_swap_acq_rel(&chunks[kind], &seen, rest))
            return start;
    }
    size_t chunk_bytes;
    char *start = meta_map_chunk(size_bytes, &chunk_bytes);
    if (start == NULL)
        return NULL;
    fetch_add_relaxed(&meta_total_bytes, chunk_bytes);
    size_t rest = chunk_bytes / PAIR_BYTES - pairs;
    while (rest > seen >> COUNT_SHIFT && /* the longer rest serves, the other one is lost */
           !compare_swap_acq_rel(&chunks[kind], &seen, stretch_of(start + size_bytes, rest)))
        continue;
    return start;
}

at_process_start void meta_start(char *(*steal_pages)(size_t size_bytes))
{
    store_release(&last_resort, steal_pages); /* release: pairs with meta_map_chunk */
}
