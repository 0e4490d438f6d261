// Updates the sums of the sites, event by event.
//
// Order: the blocks of a site are numbered. Frees with growing numbers are first in, first out,
// even if other blocks survive. A run of frees between two allocations of the site is last in,
// first out as long as it starts with the youngest block and continues downwards. A run whose
// numbers have no gaps consists of blocks that were made one after the other and end together.
//
// Sites' sums at the program's peak are not copied at every new peak, of which there are many.
// Peaks are numbered, and a site copies its sums when it changes for the first time after a peak.
#include <sys/mman.h>

#include "advise.h"

enum { SOON = 3 }; // events of a thread between making and freeing a temporary block

static uint64_t thread_events[THREADS_MOST];
static struct block pending[THREADS_MOST]; // between RESIZE_FROM and its end; address 0: none

static void *zeroed(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool advice_start(struct advice *advice, bool has_free_stacks)
{
    *advice =
        (struct advice){.has_free_stacks = has_free_stacks, .point_step = 64, .point_next = 64};
    advice->sites = zeroed(SITES_MOST * sizeof *advice->sites);
    return advice->sites != NULL && blocks_start();
}

// Returns: the bytes that Cairn's heap uses for a request: a size class, or whole pages above the
// classes.
uint64_t class_bytes(uint64_t size_bytes)
{
    uint64_t step = 16;
    if (size_bytes > 32768)
        step = ADVISE_PAGE_BYTES;
    else if (size_bytes > 128)
        step = (uint64_t)1 << (63 - __builtin_clzll(size_bytes - 1) - 3);
    uint64_t rounded = (size_bytes + step - 1) / step * step;
    return rounded ? rounded : step;
}

static unsigned step_of(uint64_t value)
{
    unsigned step = value ? 64 - (unsigned)__builtin_clzll(value) : 0;
    return step < LIFE_STEPS ? step : LIFE_STEPS - 1;
}

static void count_size(struct site *site, uint64_t size_bytes)
{
    struct size_count *free_place = NULL;
    for (unsigned i = 0; i < SIZES_KEPT; i++) {
        if (site->sizes[i].count != 0 && site->sizes[i].size_bytes == size_bytes) {
            site->sizes[i].count++;
            return;
        }
        if (site->sizes[i].count == 0)
            free_place = &site->sizes[i];
    }
    if (free_place != NULL) {
        *free_place = (struct size_count){size_bytes, 1};
        return;
    }
    for (unsigned i = 0; i < SIZES_KEPT; i++)
        site->sizes[i].count--;
}

// Saves the site's sums at the peak. Called before the site's live blocks change.
static void keep_peak(const struct advice *advice, struct site *site)
{
    if (site->peak_number == advice->peak_number)
        return;
    site->peak_number = advice->peak_number;
    site->peak_bytes = site->live_bytes;
    site->peak_lost = site->lost_bytes;
    site->peak_live = site->live;
}

static void add_live(struct advice *advice, struct site *site, uint64_t size_bytes)
{
    keep_peak(advice, site);
    uint64_t lost = class_bytes(size_bytes) - size_bytes;
    site->live++;
    site->live_bytes += size_bytes;
    site->lost_bytes += lost;
    advice->live++;
    advice->live_bytes += size_bytes;
    advice->lost_bytes += lost;
    if (site->live_bytes > site->point_most)
        site->point_most = site->live_bytes;
    if (advice->live_bytes > advice->point_most)
        advice->point_most = advice->live_bytes;
    if (site->live > site->live_most)
        site->live_most = site->live;
    if (site->live_bytes > site->live_bytes_most)
        site->live_bytes_most = site->live_bytes;
    if (advice->live_bytes > advice->peak_bytes) {
        advice->peak_bytes = advice->live_bytes;
        advice->peak_lost_bytes = advice->lost_bytes;
        advice->peak_number++;
    }
}

static void take_live(struct advice *advice, struct site *site, uint64_t size_bytes)
{
    keep_peak(advice, site);
    uint64_t lost = class_bytes(size_bytes) - size_bytes;
    site->live--;
    site->live_bytes -= size_bytes;
    site->lost_bytes -= lost;
    advice->live--;
    advice->live_bytes -= size_bytes;
    advice->lost_bytes -= lost;
}

static void end_run(struct site *site)
{
    if (site->run_count >= 2 && site->run_most - site->run_least + 1 == site->run_count) {
        site->grouped += site->run_count;
        site->groups++;
    }
    site->runs += site->run_count != 0;
    site->run_count = 0;
}

static void count_order(struct site *site, uint32_t serial)
{
    if (serial > site->last_freed)
        site->ascending++;
    if (site->run_count == 0) {
        site->run_is_last_in = serial == site->serial;
        site->run_least = site->run_most = serial;
    } else {
        site->run_is_last_in &= serial < site->last_freed;
        site->run_least = serial < site->run_least ? serial : site->run_least;
        site->run_most = serial > site->run_most ? serial : site->run_most;
    }
    site->last_in += site->run_is_last_in;
    site->run_count++;
    site->last_freed = serial;
}

static void count_releaser(struct site *site, const struct block *block,
                           const struct advise_event *event)
{
    if (event->thread != block->thread) {
        site->other_thread++;
        return;
    }
    if (thread_events[event->thread] - block->birth_event <= SOON)
        site->at_once++;
    struct shared_frame shared = path_shared(event->thread, block->stack, event->stack);
    if (shared.depth == 0)
        return;
    if (shared.since > block->birth_event) {
        site->left++;
    } else if (shared.backward) {
        site->before++;
    } else {
        site->in_ancestor++;
        site->ancestor_depth += shared.between;
        site->same_function += shared.between == 0;
        site->ancestor_stack = event->stack;
    }
}

// Returns: the step of a size; sizes in it are below bound_of(step).
static unsigned grown_step_of(uint64_t size_bytes)
{
    if (size_bytes < GROWN_FIRST)
        return 0;
    unsigned power = 63 - (unsigned)__builtin_clzll(size_bytes);
    unsigned step = (power - (unsigned)__builtin_ctz(GROWN_FIRST)) * 4 +
                    (unsigned)(size_bytes >> (power - 2) & 3);
    return step < GROWN_STEPS ? step : GROWN_STEPS - 1;
}

static uint64_t bound_of(unsigned step)
{
    return ((uint64_t)GROWN_FIRST << step / 4) / 4 * (5 + step % 4);
}

uint64_t grown_size(const struct site *site, unsigned tenths)
{
    uint64_t sum = 0;
    for (unsigned step = 0; step < GROWN_STEPS - 1; step++) {
        sum += site->grown_finals[step];
        if (sum != 0 && sum * 10 >= site->grown_blocks * tenths) {
            uint64_t bound = bound_of(step);
            return bound < site->grown_final_most ? bound : site->grown_final_most;
        }
    }
    return site->grown_final_most;
}

static void count_growth(struct site *site, const struct block *block)
{
    if (block->growth < 3)
        return;
    site->grown_blocks++;
    site->grown_steps += block->growth;
    site->grown_final_bytes += block->size_bytes;
    site->grown_finals[grown_step_of(block->size_bytes)]++;
    if (block->size_bytes > site->grown_final_most)
        site->grown_final_most = block->size_bytes;
}

static struct site *site_of(struct advice *advice, uint32_t stack)
{
    uint32_t number = stack < advice->stack_count ? advice->site_of_stack[stack] : 0;
    if (number >= SITES_MOST)
        number = SITES_MOST - 1;
    if (number >= advice->site_count)
        advice->site_count = number + 1;
    return &advice->sites[number];
}

static void allocate(struct advice *advice, const struct advise_event *event)
{
    advice->allocations++;
    struct site *site = site_of(advice, event->stack);
    struct block *block = block_add(event->address);
    if (block == NULL) {
        advice->untracked++;
        return;
    }
    if (site->allocations++ == 0) {
        site->stack = event->stack;
        site->size_least = event->size_bytes;
        site->thread_first = event->thread;
    }
    end_run(site);
    site->is_of_threads |= site->thread_first != event->thread;
    site->allocated_bytes += event->size_bytes;
    site->size_least = event->size_bytes < site->size_least ? event->size_bytes : site->size_least;
    site->size_most = event->size_bytes > site->size_most ? event->size_bytes : site->size_most;
    count_size(site, event->size_bytes);
    *block = (struct block){.address = event->address,
                            .size_bytes = event->size_bytes,
                            .birth_bytes = advice->allocated_bytes,
                            .birth_ns = event->time_ns,
                            .birth_event = thread_events[event->thread],
                            .site = (uint32_t)(site - advice->sites),
                            .stack = event->stack,
                            .serial = ++site->serial,
                            .thread = (uint16_t)event->thread};
    advice->allocated_bytes += event->size_bytes;
    add_live(advice, site, event->size_bytes);
}

static void release(struct advice *advice, const struct advise_event *event)
{
    advice->frees++;
    struct block *block = block_find(event->address);
    if (block == NULL) {
        advice->unknown_frees++;
        return;
    }
    struct site *site = &advice->sites[block->site];
    site->frees++;
    site->freed_bytes += block->size_bytes;
    site->life_bytes[step_of(advice->allocated_bytes - block->birth_bytes)]++;
    site->life_ns[step_of(event->time_ns - block->birth_ns)]++;
    count_order(site, block->serial);
    count_releaser(site, block, event);
    count_growth(site, block);
    take_live(advice, site, block->size_bytes);
    if (site->live == 0)
        site->drains++;
    block_remove(block);
}

// Changes the size of a block, whose address may have changed.
static void resized(struct advice *advice, struct block *block, uint64_t size_bytes, bool moved)
{
    struct site *site = &advice->sites[block->site];
    uint64_t old = block->size_bytes;
    advice->resizes++;
    site->resizes++;
    if (moved)
        site->moved_bytes += old < size_bytes ? old : size_bytes;
    if (size_bytes > old) {
        block->growth = (uint16_t)(block->growth + (block->growth < UINT16_MAX));
        site->allocated_bytes += size_bytes - old;
        advice->allocated_bytes += size_bytes - old;
        site->copied_bytes += moved ? old : 0;
    }
    take_live(advice, site, old);
    block->size_bytes = size_bytes;
    add_live(advice, site, size_bytes);
}

static void resize_from(const struct advise_event *event)
{
    struct block *block = block_find(event->address);
    if (block == NULL)
        return;
    pending[event->thread] = *block;
    block_remove(block);
}

static void resize_to(struct advice *advice, const struct advise_event *event, bool failed)
{
    struct block old = pending[event->thread];
    pending[event->thread].address = 0;
    if (old.address == 0) { // the block is not known
        if (!failed)
            allocate(advice, event);
        return;
    }
    struct block *block = block_add(event->address);
    if (block == NULL)
        return;
    *block = old;
    block->address = event->address;
    if (!failed)
        resized(advice, block, event->size_bytes, event->address != old.address);
}

static uint64_t larger_of(uint64_t one, uint64_t other) { return one > other ? one : other; }

// Merges each two points into one.
static void halve_points(struct advice *advice)
{
    for (unsigned i = 0; i < POINTS / 2; i++) {
        uint64_t most =
            larger_of(advice->points[2 * i].live_bytes, advice->points[2 * i + 1].live_bytes);
        advice->points[i] = advice->points[2 * i + 1];
        advice->points[i].live_bytes = most;
    }
    for (uint32_t j = 0; j < advice->site_count; j++)
        for (unsigned i = 0; i < POINTS / 2; i++) {
            struct site *site = &advice->sites[j];
            site->points_live[i] =
                larger_of(site->points_live[2 * i], site->points_live[2 * i + 1]);
            site->points_allocated[i] = site->points_allocated[2 * i + 1];
        }
    advice->point_count = POINTS / 2;
    advice->point_step *= 2;
}

static void add_point(struct advice *advice)
{
    if (advice->point_count == POINTS)
        halve_points(advice);
    unsigned point = advice->point_count++;
    advice->points[point] =
        (struct point){advice->last_ns, advice->point_most, advice->allocated_bytes};
    advice->point_most = advice->live_bytes;
    for (uint32_t i = 0; i < advice->site_count; i++) {
        struct site *site = &advice->sites[i];
        site->points_live[point] = site->point_most;
        site->points_allocated[point] = site->allocated_bytes;
        site->point_most = site->live_bytes;
    }
    advice->point_next = advice->events + advice->point_step;
}

// Examines the pages at a low point: live memory has fallen to less than half and grows again.
// While it only falls, as at a program's end, blocks that are about to be freed would be blamed.
static void look_at_low(struct advice *advice)
{
    uint64_t live = advice->live_bytes;
    if (live > advice->high_bytes || live < advice->low_bytes)
        advice->low_bytes = live;
    if (live > advice->high_bytes)
        advice->high_bytes = live;
    if (advice->high_bytes < 16 * ADVISE_PAGE_BYTES || advice->low_bytes > advice->high_bytes / 2 ||
        live <= advice->low_bytes + advice->high_bytes / 16)
        return;
    pages_look(advice);
    advice->high_bytes = advice->low_bytes = live;
}

void advice_event(struct advice *advice, const struct advise_event *given)
{
    struct advise_event event = *given;
    if (event.thread >= THREADS_MOST)
        event.thread = THREADS_MOST - 1; // all further threads count as one
    if (event.thread >= advice->threads)
        advice->threads = event.thread + 1;
    if (advice->events++ == 0)
        advice->first_ns = event.time_ns;
    if (event.time_ns < advice->last_ns)
        event.time_ns =
            advice->last_ns; // another thread's time: this one's may be older than it is
    advice->last_ns = event.time_ns;
    path_moves(event.thread, event.stack, ++thread_events[event.thread]);
    struct block *block;
    switch (event.kind) {
    case ADVISE_ALLOCATE:
        allocate(advice, &event);
        break;
    case ADVISE_FREE:
        release(advice, &event);
        break;
    case ADVISE_RESIZE:
        block = block_find(event.address);
        if (block != NULL)
            resized(advice, block, event.size_bytes, false);
        break;
    case ADVISE_RESIZE_FROM:
        resize_from(&event);
        break;
    case ADVISE_RESIZE_TO:
        resize_to(advice, &event, false);
        break;
    case ADVISE_RESIZE_FAILED:
        resize_to(advice, &event, true);
        break;
    }
    look_at_low(advice);
    if (advice->events >= advice->point_next)
        add_point(advice);
}

static void count_survivor(const struct block *block, void *context)
{
    struct advice *advice = context;
    count_growth(&advice->sites[block->site], block);
}

void advice_finish(struct advice *advice)
{
    for (uint32_t i = 0; i < advice->site_count; i++) {
        end_run(&advice->sites[i]);
        keep_peak(advice, &advice->sites[i]);
    }
    blocks_visit(count_survivor, advice);
    add_point(advice);
}
