/* The cache lines of the simulated machine: MESI over private caches, which are infinite unless
 * lines_limit is called. The state of a line has the cores that hold it, the core that may write it
 * without asking, and the core that wrote last. A line of a page that was never accessed is in no
 * cache, and its first access is no transfer. */
#include "simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { NO_CORE = 255, CODE_SLOTS = 1 << 20 };
enum {
    LINE_SHIFT = 6,
    PAGE_SHIFT = 12,
    PAGE_LINES = 1 << (PAGE_SHIFT - LINE_SHIFT),
    REGION_SHIFT = 21,
    REGION_LINES = 1 << (REGION_SHIFT - LINE_SHIFT),
    REGION_PAGES = 1 << (REGION_SHIFT - PAGE_SHIFT),
    REGION_SLOTS = 1 << 18,
    RECENT_REGIONS = 1024,
    WAYS = 8,
};

struct line {
    uint64_t holders; /* a bit for each core */
    uint32_t writer;  /* code that wrote last */
    uint8_t owner;    /* core that holds it modified; NO_CORE: none */
    uint8_t last_writer;
};
struct region {
    uint64_t number;
    struct line *lines;
    uint64_t touched[REGION_PAGES / 64]; /* a bit for each page */
};

struct table code_pairs, line_sites;
struct code *codes;
uint32_t codes_count = 1;
static uint32_t *code_slots;
static struct region *regions;
static unsigned cache_sets;
static uint64_t *cache_tags; /* [core][set][way], the most recent first */

static uint64_t hash_of(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

void lines_init(void)
{
    codes = calloc(CODE_SLOTS / 2, sizeof *codes);
    code_slots = calloc(CODE_SLOTS, sizeof *code_slots);
    regions = calloc(REGION_SLOTS, sizeof *regions);
}

void lines_limit(unsigned kib)
{
    cache_sets = kib * 1024 / 64 / WAYS;
    cache_tags = calloc((size_t)CORES_MAX * cache_sets * WAYS, sizeof *cache_tags);
}

uint32_t lines_code(uint64_t address)
{
    for (uint64_t i = hash_of(address) >> 20;; i++) {
        uint32_t *slot = &code_slots[i % CODE_SLOTS];
        if (*slot == 0) {
            codes[codes_count].address = address;
            return *slot = codes_count++;
        }
        if (codes[*slot].address == address)
            return *slot;
    }
}

static uint64_t table_place(const struct table *table, uint64_t first, uint64_t second)
{
    for (uint64_t i = hash_of(first * 31 + second);; i++) {
        const struct cell *cell = &table->cells[i % table->capacity];
        if (cell->second == 0 || (cell->first == first && cell->second == second))
            return i % table->capacity;
    }
}

static void table_grow(struct table *table)
{
    struct table old = *table;
    table->capacity = old.capacity != 0 ? old.capacity * 2 : 1 << 16;
    table->cells = calloc(table->capacity, sizeof *table->cells);
    for (uint64_t i = 0; i < old.capacity; i++)
        if (old.cells[i].second != 0)
            table->cells[table_place(table, old.cells[i].first, old.cells[i].second)] =
                old.cells[i];
    free(old.cells);
}

static void table_count(struct table *table, uint64_t first, uint64_t second, enum kind kind)
{
    if (table->used * 2 >= table->capacity)
        table_grow(table);
    struct cell *cell = &table->cells[table_place(table, first, second)];
    if (cell->second == 0) {
        cell->first = first;
        cell->second = second;
        table->used++;
    }
    cell->transfers[kind]++;
}

/* The region with this number. Makes it, or returns NULL if `makes` is false. */
static struct region *region_of(uint64_t number, bool makes)
{
    static struct region *recent[RECENT_REGIONS];
    struct region **hit = &recent[number % RECENT_REGIONS];
    if (*hit && (*hit)->number == number)
        return *hit;
    for (uint64_t i = hash_of(number);; i++) {
        struct region *region = &regions[i % REGION_SLOTS];
        if (region->lines == NULL) {
            if (!makes)
                return NULL;
            region->lines = mmap(NULL, REGION_LINES * sizeof *region->lines, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (region->lines == MAP_FAILED) {
                perror("cores: no memory for lines");
                abort();
            }
            region->number = number;
        }
        if (region->number == number)
            return *hit = region;
    }
}

static bool region_touched(const struct region *region, uint64_t page)
{
    return region->touched[page / 64] >> page % 64 & 1;
}

uint64_t lines_forget(uint64_t start, uint64_t size)
{
    enum { LONGEST_SHIFT = 42 };
    uint64_t pages = 0;
    uint64_t end = (start + size + 4095) >> PAGE_SHIFT << PAGE_SHIFT;
    if (size > (uint64_t)1 << LONGEST_SHIFT)
        return 0;
    for (uint64_t number = start >> REGION_SHIFT; number << REGION_SHIFT < end; number++) {
        struct region *region = region_of(number, false);
        if (region == NULL)
            continue;
        uint64_t base = number << REGION_SHIFT;
        uint64_t page = (start > base ? start - base : 0) >> PAGE_SHIFT;
        for (; page < REGION_PAGES && base + (page << PAGE_SHIFT) < end; page++)
            if (region_touched(region, page)) {
                memset(region->lines + page * PAGE_LINES, 0, PAGE_LINES * sizeof *region->lines);
                region->touched[page / 64] &= ~((uint64_t)1 << page % 64);
                pages++;
            }
    }
    if (counting)
        totals.unmapped_pages += pages;
    return pages;
}

/* The core uses a line of its finite cache, and loses the one that it used longest ago. */
static void cache_use(unsigned core, uint64_t number)
{
    uint64_t set = (uint64_t)core * cache_sets + (number & (cache_sets - 1));
    uint64_t *tags = &cache_tags[set * WAYS], lost = number;
    for (int i = 0; i < WAYS; i++) {
        uint64_t tag = tags[i];
        tags[i] = lost;
        if (tag == number)
            return;
        lost = tag;
    }
    struct region *region =
        lost != 0 ? region_of(lost >> (REGION_SHIFT - LINE_SHIFT), false) : NULL;
    if (region == NULL)
        return;
    struct line *line = &region->lines[lost % REGION_LINES];
    line->holders &= ~((uint64_t)1 << core);
    if (line->owner == core)
        line->owner = NO_CORE;
}

/* The line is in no cache. */
static void line_load(struct thread *thread, struct region *region, struct line *line,
                      uint64_t page)
{
    if (!region_touched(region, page)) {
        region->touched[page / 64] |= (uint64_t)1 << page % 64;
        totals.pages += counting;
        thread->clock += COST_FIRST_ACCESS;
        line->owner = line->last_writer = NO_CORE;
    }
    if (line->last_writer == 0 && line->writer == 0)
        line->owner = line->last_writer = NO_CORE; /* the state is new */
    totals.first_accesses += counting;
}

/* Changes the state of a line as an access does.
 * Returns: the kind of the transfer; KINDS: none. */
static enum kind line_move(struct line *line, unsigned core, bool is_store)
{
    uint64_t self = (uint64_t)1 << core;
    enum kind kind = KINDS;
    if (!is_store && (line->holders & self) == 0) {
        if (line->owner != NO_CORE)
            kind = READ_DIRTY;
        else if (line->last_writer != NO_CORE && line->last_writer != core)
            kind = READ_CLEAN;
        line->owner = NO_CORE;
        line->holders |= self;
    } else if (is_store && line->owner != core) {
        if (line->holders != self)
            kind = line->owner != NO_CORE ? WRITE_DIRTY : WRITE_SHARED;
        line->holders = self;
        line->owner = (uint8_t)core;
    }
    return kind;
}

void lines_access(struct thread *thread, uint64_t number, bool is_store, uint32_t code)
{
    struct region *region = region_of(number >> (REGION_SHIFT - LINE_SHIFT), true);
    struct line *line = &region->lines[number % REGION_LINES];
    enum kind kind = KINDS;
    if (line->holders == 0) {
        line_load(thread, region, line, number % REGION_LINES / PAGE_LINES);
        line->holders = (uint64_t)1 << thread->core;
        if (is_store)
            line->owner = (uint8_t)thread->core;
    } else {
        kind = line_move(line, thread->core, is_store);
    }
    if (cache_sets != 0)
        cache_use(thread->core, number);
    if (kind != KINDS) {
        thread->clock += COST_TRANSFER;
        thread->shared = true;
        if (counting) {
            totals.transfers[thread->owner][kind]++;
            codes[code].transfers[kind]++;
            table_count(&code_pairs, code, (uint64_t)line->writer + 1, kind);
            table_count(&line_sites, number, code, kind);
        }
    }
    if (is_store) {
        line->writer = code;
        line->last_writer = (uint8_t)thread->core;
    }
}
