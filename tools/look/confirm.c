// Confirms that no pointer leads to the blocks that two passes over a running process found lost.
// The process is held for at most HOLD_NS at a time. A block with a pointer to it is dropped from
// the candidates.
//
// A hold begins when the first thread receives the request to stop; in a process with one thread,
// when that thread has stopped. All work during a hold checks the clock, and the rest is left for
// another hold. The last part of a hold is reserved for releasing the threads.
//
// The memory is divided into items: pieces of the address space, and the slabs that contain
// candidates. A round visits all items once, in the order of a random hash of their addresses, in
// as many holds as it takes: each hold continues in that order where the previous one ended. In a
// hold all threads are stopped, and the registers and mappings are read. Then an item of memory is
// searched for pointers to candidates, in memory that is in use and that does not belong to a
// candidate. An item of a slab is checked whether its candidates are still live. A find drops its
// candidate and the candidates that this one leads to.
//
// A complete round in one hold without a find is a consistent view, and exact. Where memory is too
// large for that, QUIET_ROUNDS rounds in a row must find nothing. Argument: suppose that a
// candidate is reachable throughout these rounds. Then for each hold i some item x(i) would drop a
// candidate if it were searched: the item with the last pointer of a path outside the candidates,
// or the slab of a candidate that is free at this moment. The places to which the program moves its
// pointers do not depend on the hashes, which it does not know. Hold i covers a share s(i) of the
// order, and the shares add up to 1. An item that is x(i) for several i is missed with a
// probability of 1 minus their shares. So all are missed in one round with a probability of at most
// the product of (1 - s) <= exp(-sum of s) = 1/e, and in QUIET_ROUNDS rounds, each with a new hash,
// exp(-QUIET_ROUNDS): 2 in 10^9. The bound also holds for a program that moves its pointers all the
// time.
//
// The method writes nothing to the process and needs no feature of the kernel. Soft-dirty bits are
// missing in many kernels, and writing to clear_refs disturbs other tools that use them. A forked
// copy takes memory, and a filter of system calls may kill the process for it.
//
// There is no answer when this takes longer than TIME_MOST_NS, or when the process cannot be held.
#include "marks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    QUIET_ROUNDS = 20,
    PIECE_BYTES = 256 * 1024, // length that one call of was_touched() can check
    GRANULE_SHIFT = 16,       // least length of an item
    GRANULES_MOST = 256 * 1024,
    ITEMS_MOST = 4096, // for one hold
    FILTER_BITS = 1 << 18,
    LATE_MOST = 64,       // holds in a row that had no time for an item
    WORDS_AT_ONCE = 1024, // between two checks of the clock
    REST_PART = 2,        // the process runs this many times as long as it was held
    REST_LEAST_US = 1000,
    REST_MOST_US = 100 * 1000,
};
#define HOLD_NS      ((uint64_t)4000000)
#define RELEASE_NS   ((uint64_t)100000) // to release the threads, and for each of them DETACH_NS
#define DETACH_NS    ((uint64_t)8000)
#define TIME_MOST_NS ((uint64_t)60000000000)

struct item {
    uint64_t place; // in the order of the round
    uint64_t start, end;
    const struct block_span *slab; // NULL: an item of memory
    bool is_of_file;               // only written pages count
};

struct hunt {
    struct marks *marks;
    size_t left; // number of candidates
    uint64_t low, bytes;
    uint64_t filter[FILTER_BITS / 64]; // pages with candidates
    const struct block_span **slabs;   // slabs with candidates
    size_t slab_count;
    size_t *stack; // dropped and not yet searched
    size_t depth, most;
    struct item *items;
    size_t item_count, items_most;
    uint64_t salt, at; // of the round: its hash, and its place in the order
    unsigned granule_shift;
    uint64_t granules;      // number of them in the mappings
    uint64_t chosen;        // items for the next hold
    bool is_done, is_quiet; // of the round
    uint64_t deadline;      // for the work of this hold
    unsigned late;
    struct holds *holds;
    struct span_view view; // the span of the last address
    bool has_view;
};

// The finalizer of splitmix64 (Steele, Lea, Flood 2014).
static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
}

static size_t filter_bit(uint64_t address)
{
    return (size_t)((address / CACHE_PAGE * 0x9e3779b97f4a7c15) >> 46);
}

static void add_candidate(struct marks *marks, size_t block, const struct block_span *span,
                          uint64_t address, void *context)
{
    struct hunt *hunt = context;
    (void)marks, (void)block;
    hunt->left++;
    uint64_t end = address + span->slot_bytes;
    if (hunt->bytes == 0)
        hunt->low = address;
    hunt->bytes = end - hunt->low; // candidates arrive in the order of addresses
    for (uint64_t page = address / CACHE_PAGE; page * CACHE_PAGE < end; page++)
        set(hunt->filter, filter_bit(page * CACHE_PAGE));
    if (hunt->slab_count == 0 || hunt->slabs[hunt->slab_count - 1] != span)
        hunt->slabs[hunt->slab_count++] = span;
}

static void push(struct hunt *hunt, uint64_t address)
{
    hunt->stack = with_room(hunt->stack, hunt->depth, &hunt->most, sizeof *hunt->stack);
    hunt->stack[hunt->depth++] = address;
}

static void drop(struct hunt *hunt, size_t block, const struct block_span *span)
{
    set(hunt->marks->reached, block);
    hunt->left--;
    hunt->is_quiet = false;
    if (!span->is_empty_blocks)
        push(hunt, span->start + (block - span->first) * span->slot_bytes);
}

// Returns: whether the block or page at an address of Cairn's memory is in use now; true in doubt.
static bool is_in_use(struct hunt *hunt, uint64_t address)
{
    static struct slab_slots slots;
    struct span_view *view = &hunt->view;
    if (!hunt->has_view || address < view->start || address - view->start >= view->bytes) {
        hunt->has_view = find_span(hunt->marks->look, address, view);
        if (hunt->has_view && view->kind == SPAN_IS_SLAB)
            hunt->has_view = read_slots(hunt->marks->look, view, &slots);
    }
    if (!hunt->has_view)
        return true;
    if (view->kind != SPAN_IS_SLAB)
        return view->kind != SPAN_IS_FREE && view->kind != SPAN_IS_KEPT &&
               view->kind != SPAN_IS_REVOKED;
    uint64_t slot = (address - view->start) / slots.size_bytes;
    return slot < slots.count && slots.states[slot] == SLOT_IS_LIVE;
}

static bool is_cairns(const struct index *index, uint64_t address)
{
    for (size_t i = 0; i < index->own_count; i++)
        if (address >= index->own[i].start && address < index->own[i].end)
            return true;
    return false;
}

// Returns: whether a pointer at `place` counts. Place 0 stands for a register or the kernel.
static bool counts(struct hunt *hunt, uint64_t place)
{
    const struct index *index = &hunt->marks->index;
    struct block_span *span;
    int64_t holder = place ? block_at(index, place, &span) : NO_BLOCK;
    if (holder != NO_BLOCK)
        return !is_lost(hunt->marks, (size_t)holder);
    return place == 0 || !is_cairns(index, place) || is_in_use(hunt, place);
}

static void see_pointer(struct hunt *hunt, uint64_t word, uint64_t place)
{
    struct block_span *span;
    if (word - hunt->low >= hunt->bytes || !is_set(hunt->filter, filter_bit(word)))
        return;
    int64_t block = block_at(&hunt->marks->index, word, &span);
    if (block != NO_BLOCK && is_lost(hunt->marks, (size_t)block) && counts(hunt, place))
        drop(hunt, (size_t)block, span);
}

static bool is_time_over(const struct hunt *hunt) { return now_ns() >= hunt->deadline; }

// Returns: false when the deadline passed before all words were seen.
static bool see_words_at(struct hunt *hunt, uint64_t start, uint64_t end)
{
    static uint64_t words[PIECE_BYTES / 8];
    struct target *target = hunt->marks->look->target;
    start = (start + 7) & ~(uint64_t)7;
    for (uint64_t step; start + 8 <= end; start += step) {
        step = PIECE_BYTES - start % PIECE_BYTES;
        step = step < end - start ? step : (end - start) & ~(uint64_t)7;
        if (!read_large(target, start, words, step)) {
            step = CACHE_PAGE - start % CACHE_PAGE < step ? CACHE_PAGE - start % CACHE_PAGE : step;
            if (!read_large(target, start, words, step))
                continue;
        }
        for (uint64_t i = 0; i < step / 8; i++) {
            if (i % WORDS_AT_ONCE == 0 && is_time_over(hunt))
                return false;
            if (words[i] - hunt->low < hunt->bytes)
                see_pointer(hunt, words[i], start + 8 * i);
        }
    }
    return true;
}

// Drops the candidates that the dropped blocks lead to. When time is short, later rounds find the
// remaining ones: a dropped block is no longer a candidate, so the search includes its memory.
static void follow(struct hunt *hunt)
{
    struct block_span *span;
    while (hunt->depth > 0 && !is_time_over(hunt)) {
        uint64_t address = hunt->stack[--hunt->depth];
        if (block_at(&hunt->marks->index, address, &span) != NO_BLOCK &&
            !see_words_at(hunt, address, address + span->slot_bytes))
            push(hunt, address);
    }
}

static bool is_still_there(struct hunt *hunt, const struct block_span *slab,
                           const struct span_view *view)
{
    uint64_t state = 0;
    struct look *look = hunt->marks->look;
    if (view->kind == SPAN_IS_GUARDED) // one block; its header begins the slot
        return read_field(look->target, view->header, look->library->guarded.slot_state, &state) &&
               state == look->library->guarded.state_live;
    return (view->kind == SPAN_IS_LARGE || view->kind == SPAN_IS_HUGE) &&
           view->start == slab->start && view->bytes == slab->bytes;
}

// Drops the candidates of a slab, or of a block with its own pages, that are not live now.
static void see_slab(struct hunt *hunt, const struct block_span *slab)
{
    static struct slab_slots slots;
    struct marks *marks = hunt->marks;
    struct span_view view = {.kind = SPAN_KINDS};
    bool is_found = find_span(marks->look, slab->start, &view);
    bool is_slab = is_found && view.kind == SPAN_IS_SLAB && view.start == slab->start &&
                   read_slots(marks->look, &view, &slots) && slots.count == slab->slots &&
                   slots.size_bytes == slab->slot_bytes;
    bool is_there = is_found && !is_slab && is_still_there(hunt, slab, &view);
    for (uint64_t i = 0; i < slab->slots; i++)
        if (is_lost(marks, slab->first + i) &&
            (is_slab ? slots.states[i] != SLOT_IS_LIVE : !is_there)) {
            set(marks->reached, slab->first + i);
            hunt->left--;
            hunt->is_quiet = false;
        }
}

// Returns: false when the deadline passed before all of the item was seen.
static bool see_memory(struct hunt *hunt, const struct item *item)
{
    struct target *target = hunt->marks->look->target;
    for (uint64_t at = item->start, end; at < item->end; at = end) {
        end = (at / PIECE_BYTES + 1) * PIECE_BYTES;
        end = end < item->end ? end : item->end;
        if ((item->is_of_file ? was_written(target, at, end - at)
                              : was_touched(target, at, end - at)) &&
            !see_words_at(hunt, at, end))
            return false;
    }
    return true;
}

// The functions below choose the items of a hold.

static void add_item(struct hunt *hunt, const struct item *item, uint64_t last)
{
    if (item->place < hunt->at || item->place > last)
        return;
    hunt->items = with_room(hunt->items, hunt->item_count, &hunt->items_most, sizeof *hunt->items);
    hunt->items[hunt->item_count++] = *item;
}

typedef void range_seen(struct hunt *hunt, uint64_t start, uint64_t end, bool is_of_file,
                        uint64_t last);

static void add_granules(struct hunt *hunt, uint64_t start, uint64_t end, bool is_of_file,
                         uint64_t last)
{
    for (uint64_t at = start, next; at < end; at = next) {
        uint64_t granule = at >> hunt->granule_shift;
        next = (granule + 1) << hunt->granule_shift;
        next = next < end ? next : end;
        struct item item = {mix(granule ^ hunt->salt), at, next, NULL, is_of_file};
        add_item(hunt, &item, last);
    }
}

static void count_granules(struct hunt *hunt, uint64_t start, uint64_t end, bool is_of_file,
                           uint64_t last)
{
    (void)is_of_file, (void)last;
    hunt->granules += ((end - 1) >> hunt->granule_shift) - (start >> hunt->granule_shift) + 1;
}

// Calls `seen` for all memory that may contain pointers of the program: the roots of marks.c, and
// the blocks.
static void each_range(struct hunt *hunt, range_seen *seen, uint64_t last)
{
    const struct target *target = hunt->marks->look->target;
    const struct index *index = &hunt->marks->index;
    for (size_t i = 0; i < target->mapping_count; i++) {
        const struct mapping *mapping = &target->mappings[i];
        if (!mapping->readable || mapping->shared || mapping->path[0] == '[')
            continue;
        bool is_of_file = !mapping->writable && mapping->path[0] == '/';
        uint64_t start = start_in_use(target, mapping->start, mapping->end), end = mapping->end;
        for (size_t j = 0; j < index->metadata_count && start < end; j++) {
            const struct address_range *own = &index->metadata[j];
            if (own->end <= start || own->start >= end)
                continue;
            if (own->start > start)
                seen(hunt, start, own->start, is_of_file, last);
            start = own->end;
        }
        if (start < end)
            seen(hunt, start, end, is_of_file, last);
    }
}

static int by_place(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

static void choose_items(struct hunt *hunt)
{
    hunt->granules = hunt->slab_count;
    each_range(hunt, count_granules, 0);
    double share = (double)hunt->chosen / (double)(hunt->granules + 1);
    uint64_t width = share < 1 ? (uint64_t)(share * 0x1p64) : UINT64_MAX;
    uint64_t last = width < UINT64_MAX - hunt->at ? hunt->at + width : UINT64_MAX;
    hunt->item_count = 0;
    each_range(hunt, add_granules, last);
    for (size_t i = 0; i < hunt->slab_count; i++) {
        const struct block_span *slab = hunt->slabs[i];
        struct item item = {mix(mix(slab->start) ^ hunt->salt), slab->start, 0, slab, false};
        add_item(hunt, &item, last);
    }
    sort(hunt->items, hunt->item_count, sizeof *hunt->items, by_place);
    struct item end = {.place = last, .slab = NULL}; // the next hold continues after it
    hunt->items = with_room(hunt->items, hunt->item_count, &hunt->items_most, sizeof *hunt->items);
    hunt->items[hunt->item_count] = end;
}

// Visits the chosen items until the deadline.
static void search_items(struct hunt *hunt)
{
    size_t done = 0;
    while (done < hunt->item_count && !is_time_over(hunt)) {
        const struct item *item = &hunt->items[done];
        if (item->slab)
            see_slab(hunt, item->slab);
        else if (!see_memory(hunt, item))
            break;
        done++;
        follow(hunt);
    }
    if (done > 0 || hunt->item_count == 0)
        hunt->late = 0;
    uint64_t next = hunt->items[done].place; // items with equal places stay together
    hunt->is_done = done == hunt->item_count && next == UINT64_MAX;
    hunt->at = done == hunt->item_count ? next + 1 : next;
    uint64_t more = done == hunt->item_count ? 2 * hunt->chosen : done + done / 4 + 16;
    hunt->chosen = more < ITEMS_MOST ? more : ITEMS_MOST;
}

// Drops the candidates that registers point to. Returns: false when the deadline passed first.
static bool see_registers(struct hunt *hunt)
{
    const struct target *target = hunt->marks->look->target;
    for (size_t i = 0; i < target->register_words; i++) {
        if (i % WORDS_AT_ONCE == 0 && is_time_over(hunt))
            return false;
        see_pointer(hunt, target->registers[i], 0);
    }
    return true;
}

// Does the work of one hold. `*since` is set to its beginning. Returns: NULL, or why there is no
// answer.
static const char *search_held(struct hunt *hunt, uint64_t *since)
{
    struct target *target = hunt->marks->look->target;
    forget_threads(target);
    hunt->late++;
    if (!hold_threads(target, HOLD_NS, since))
        return NULL;
    if (target->threads_unread != 0 || target->thread_count == 0)
        return "it cannot be stopped, or another program such as a debugger traces it";
    uint64_t release_ns = RELEASE_NS + target->thread_count * DETACH_NS;
    hunt->deadline = *since + (release_ns < HOLD_NS ? HOLD_NS - release_ns : 0);
    forget_pages(target);
    hunt->has_view = false;
    if (read_ranges(target, hunt->deadline) && see_registers(hunt)) {
        follow(hunt);
        choose_items(hunt);
        search_items(hunt);
    }
    return NULL;
}

static const char *hold_once(struct hunt *hunt)
{
    uint64_t begin = now_ns(), since = 0;
    (void)go_first();
    const char *reason = search_held(hunt, &since);
    release_threads();
    uint64_t end = now_ns(), held_ns = released_at() > since ? released_at() - since : 0;
    go_as_before();
    hunt->holds->count++;
    if (hunt->holds->longest_ns < held_ns)
        hunt->holds->longest_ns = held_ns;
    uint64_t rest_us = (end - begin) * REST_PART / 1000;
    if (rest_us < REST_LEAST_US)
        rest_us = REST_LEAST_US;
    if (rest_us > REST_MOST_US)
        rest_us = REST_MOST_US;
    if (reason == NULL && hunt->left > 0 && !(hunt->is_done && hunt->is_quiet))
        (void)usleep((useconds_t)rest_us);
    return reason;
}

static void begin_round(struct hunt *hunt)
{
    struct target *target = hunt->marks->look->target;
    if (getrandom(&hunt->salt, sizeof hunt->salt, 0) != sizeof hunt->salt)
        fail("cannot get random numbers from the kernel: %s", strerror(errno));
    hunt->at = 0;
    hunt->is_done = false;
    hunt->is_quiet = true;
    for (hunt->granule_shift = GRANULE_SHIFT;; hunt->granule_shift++) {
        hunt->granules = 0;
        each_range(hunt, count_granules, 0);
        if (hunt->granules <= GRANULES_MOST)
            break;
    }
    read_kernel_pointers(target);
    for (size_t i = 0; i < target->kernel_count; i++)
        see_pointer(hunt, target->kernel_words[i], 0);
}

const char *confirm_lost(struct marks *marks, struct holds *held)
{
    static struct hunt hunt;
    hunt.marks = marks;
    hunt.holds = held;
    hunt.slabs = take_memory(NULL, (marks->index.span_count + 1) * sizeof *hunt.slabs);
    hunt.chosen = ITEMS_MOST;
    each_lost(marks, add_candidate, &hunt);
    uint64_t begin = now_ns();
    for (unsigned quiet = 0; hunt.left > 0 && quiet < QUIET_ROUNDS;) {
        unsigned holds = 0;
        begin_round(&hunt);
        for (; hunt.left > 0 && !hunt.is_done; holds++) {
            const char *reason = hold_once(&hunt);
            if (reason)
                return reason;
            if (hunt.late > LATE_MOST)
                return "its threads cannot be stopped and its mappings read within 4 ms";
            if (now_ns() - begin > TIME_MOST_NS)
                return "it has too much memory, or writes too much, to confirm within a minute "
                       "of stops of 4 ms";
        }
        quiet = hunt.is_quiet ? quiet + 1 : 0;
        if (holds == 1 && hunt.depth == 0) // one consistent view, all of it searched
            break;
        hunt.depth = 0;
    }
    return NULL;
}
