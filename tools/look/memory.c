// Reads the target's memory by address. Headers and links, which are dense, go through a cache of
// pages; memory that is read once does not.
#include "look.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool read_file(int file, void *buffer, size_t bytes, uint64_t offset)
{
    char *to = buffer;
    while (bytes > 0) {
        ssize_t done = pread(file, to, bytes, (off_t)offset);
        if (done <= 0)
            return false;
        to += done;
        offset += (uint64_t)done;
        bytes -= (size_t)done;
    }
    return true;
}

// Returns: the number of the first segment that ends behind the address.
static size_t segment_behind(const struct target *target, uint64_t address)
{
    size_t low = 0, high = target->segment_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct segment *segment = &target->segments[middle];
        if (segment->start + segment->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct segment *segment_of(const struct target *target, uint64_t address)
{
    size_t number = segment_behind(target, address);
    if (number == target->segment_count || target->segments[number].start > address)
        return NULL;
    return &target->segments[number];
}

uint64_t next_in_file(const struct target *target, uint64_t address)
{
    size_t number = segment_behind(target, address);
    if (target->pid != 0)
        return address;
    if (number == target->segment_count)
        return UINT64_MAX;
    uint64_t start = target->segments[number].start;
    return start > address ? start : address;
}

void spend(struct target *target, uint64_t steps)
{
    if (target->steps == UINT64_MAX)
        return;
    if (steps > target->steps)
        fail("%s: damaged: its heap describes more than a file of its length can hold",
             target->name);
    target->steps -= steps;
}

static size_t copy_constants(const struct target *target, uint64_t address, char *to, size_t bytes)
{
    for (size_t i = 0; i < target->constants_count; i++) {
        const struct constants *part = &target->constants[i];
        uint64_t inside = address - part->start;
        if (inside >= part->bytes)
            continue;
        size_t piece = part->bytes - inside < bytes ? (size_t)(part->bytes - inside) : bytes;
        memcpy(to, part->contents + inside, piece);
        return piece;
    }
    return 0;
}

bool read_large(struct target *target, uint64_t address, void *buffer, size_t bytes)
{
    if (address + bytes < address || address + bytes > INT64_MAX)
        return false;
    if (target->pid != 0) {
        (void)go_first();
        bool is_read = read_file(target->file, buffer, bytes, address);
        go_as_before();
        return is_read;
    }
    char *to = buffer;
    while (bytes > 0) {
        const struct segment *segment = segment_of(target, address);
        if (segment == NULL) {
            size_t copied = copy_constants(target, address, to, bytes);
            if (copied == 0)
                return false;
            to += copied;
            address += copied;
            bytes -= copied;
            continue;
        }
        uint64_t inside = address - segment->start;
        size_t piece = segment->bytes - inside < bytes ? (size_t)(segment->bytes - inside) : bytes;
        if (!read_file(target->file, to, piece, segment->file_offset + inside))
            return false;
        to += piece;
        address += piece;
        bytes -= piece;
    }
    return true;
}

void forget_pages(struct target *target)
{
    free(target->cache);
    target->cache = NULL;
}

static const struct cache_page *cached(struct target *target, uint64_t address)
{
    if (target->cache == NULL) {
        target->cache = take_memory(NULL, CACHE_PAGES * sizeof *target->cache);
        for (size_t i = 0; i < CACHE_PAGES; i++)
            target->cache[i].address = 1; // the address of no page
    }
    uint64_t start = address / CACHE_PAGE * CACHE_PAGE;
    uint64_t number = start / CACHE_PAGE;
    struct cache_page *page = &target->cache[(number ^ number >> 11) % CACHE_PAGES];
    if (page->address != start) {
        page->address = start;
        page->readable = read_large(target, start, page->bytes, CACHE_PAGE);
    }
    return page->readable ? page : NULL;
}

bool read_small(struct target *target, uint64_t address, void *buffer, size_t bytes)
{
    char *to = buffer;
    while (bytes > 0) {
        const struct cache_page *page = cached(target, address);
        if (page == NULL)
            return read_large(target, address, to, bytes); // a segment ends within the page
        size_t at = address % CACHE_PAGE;
        size_t piece = CACHE_PAGE - at < bytes ? CACHE_PAGE - at : bytes;
        memcpy(to, page->bytes + at, piece);
        to += piece;
        address += piece;
        bytes -= piece;
    }
    return true;
}

const struct mapping *mapping_of(const struct target *target, uint64_t address)
{
    size_t low = 0, high = target->mapping_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (target->mappings[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == target->mapping_count || target->mappings[low].start > address)
        return NULL;
    return &target->mappings[low];
}

static ssize_t read_residence(const struct target *target, uint64_t *entries, uint64_t page,
                              uint64_t count)
{
    (void)go_first();
    ssize_t done = pread(target->residence, entries, count * sizeof *entries, (off_t)(page * 8));
    go_as_before();
    return done;
}

// Marks pages that are the shared page of zeros as not resident: the RSS does not count them. Linux
// maps that page where memory was only read, and, from 6.12 on, for each page of zeros in a huge
// page that it divides. PAGEMAP_SCAN finds them, from Linux 6.7 on.
static void leave_out_zero_pages(const struct target *target, uint64_t *entries, uint64_t page,
                                 uint64_t count)
{
    struct range {
        uint64_t start, end, categories;
    } ranges[64];
    struct scan { // struct pm_scan_arg of linux/fs.h
        uint64_t size, flags, start, end, walk_end, ranges, capacity, most_pages;
        uint64_t inverted, all_of, any_of, returned;
    } scan = {.size = sizeof scan,
              .start = page * target->page_bytes,
              .end = (page + count) * target->page_bytes,
              .ranges = (uintptr_t)ranges,
              .capacity = sizeof ranges / sizeof *ranges,
              .all_of = 1 << 5, // PAGE_IS_PFNZERO
              .returned = 1 << 5};
    while (scan.start < scan.end) {
        (void)go_first();
        long found = syscall(SYS_ioctl, target->residence, _IOWR('f', 16, struct scan), &scan);
        go_as_before();
        if (found < 0)
            return;
        for (long i = 0; i < found; i++)
            for (uint64_t at = ranges[i].start; at < ranges[i].end; at += target->page_bytes)
                entries[at / target->page_bytes - page] = 0;
        scan.start = scan.walk_end;
    }
}

bool count_resident(struct target *target, uint64_t address, uint64_t bytes, uint64_t *resident)
{
    enum { STEP = 8192 };
    static uint64_t entries[STEP];
    static uint64_t first, count; // range of pages in `entries`
    *resident = 0;
    if (target->residence < 0)
        return false;
    uint64_t page = address / target->page_bytes;
    uint64_t end = (address + bytes + target->page_bytes - 1) / target->page_bytes;
    for (; page < end; page++) {
        if (page - first >= count) {
            uint64_t step = end - page > STEP ? STEP : end - page;
            step = step < 512 ? 512 : step; // the next spans are near
            ssize_t done = read_residence(target, entries, page, step);
            if (done < 8)
                return false;
            first = page;
            count = (uint64_t)done / 8;
            leave_out_zero_pages(target, entries, first, count);
        }
        *resident += entries[page - first] >> 63;
    }
    *resident *= target->page_bytes;
    return true;
}

// Returns: whether one of at most 64 pages has a bit of `has` and no bit of `has_not` in the
// pagemap; true when unknown. Bits: 63 resident, 62 swapped out, 61 of a file or shared.
static bool one_has(struct target *target, uint64_t address, uint64_t bytes, uint64_t has,
                    uint64_t has_not)
{
    uint64_t entries[64];
    uint64_t page = address / target->page_bytes;
    uint64_t count = (address + bytes + target->page_bytes - 1) / target->page_bytes - page;
    if (target->residence < 0 || count > sizeof entries / sizeof *entries ||
        read_residence(target, entries, page, count) != (ssize_t)(count * 8))
        return true;
    for (uint64_t i = 0; i < count; i++)
        if ((entries[i] & has) != 0 && (entries[i] & has_not) == 0)
            return true;
    return false;
}

// Returns: whether a core file lacks the range because no page of its mapping was ever written.
// Writable mappings of files are left out for another reason.
static bool is_unwritten(struct target *target, uint64_t address, uint64_t bytes)
{
    spend(target, target->unwritten_count);
    for (size_t i = 0; i < target->unwritten_count; i++) {
        const struct segment *range = &target->unwritten[i];
        if (address >= range->start && address - range->start < range->bytes &&
            bytes <= range->bytes - (address - range->start))
            return mapping_of(target, address) == NULL;
    }
    return false;
}

bool was_touched(struct target *target, uint64_t address, uint64_t bytes)
{
    if (target->pid == 0)
        return !is_unwritten(target, address, bytes);
    return one_has(target, address, bytes, (uint64_t)3 << 62, 0);
}

bool was_written(struct target *target, uint64_t address, uint64_t bytes)
{
    return one_has(target, address, bytes, (uint64_t)3 << 62, (uint64_t)1 << 61);
}
