// The tables of predictions. trace_model.h describes them.
#include "trace_model.h"

#include "trace_input.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCKS = 1 << 20,
    SERIALS = 1 << 20,
    GROUPS = 1 << 16,
    CLASSES = 1 << 12,
    KINDS = 1 << 16,
    SIZES = 1 << 16,
    STACKS = 1 << 14,
    STEPS = 1 << 14,
    STEP_WAYS = WAY_FREED_NEXT,
    SITES = 1 << 16,
    RANK_ROWS = 1 << 14,
    RANK_COLUMNS = 64,
    RIGHT_WAYS = 1 << 16,
    REACH = 16, // blocks examined in search of one of a site
};

// The state of an address when it was last handed out or freed.
struct block {
    uint64_t address;
    uint64_t link;       // the block below it in its group's list of free blocks; 0: none
    uint64_t freed_next; // address freed after it the last time
    uint32_t serial;     // number of allocations before it
    uint32_t group;
    uint64_t class_bytes;
};

// The block that an allocation made.
struct made {
    uint64_t address;
    uint32_t site; // 1 + the stack; 0: freed
    uint32_t rank;
};

// A site, by a hash of its number. Two sites with one place share their ranks.
struct site {
    uint32_t count; // number of allocations
    uint32_t last;  // rank of the block freed or resized last
    uint32_t freer; // 1 + the stack that freed or resized it
};

// Blocks that seem to belong to one slab.
struct group {
    uint64_t top;   // the block freed last; 0: none
    uint64_t fresh; // the address after the highest block
};

// A thread's last use of a size class.
struct class_use {
    uint64_t address;
    uint64_t freed;
    uint32_t group;
};

struct trace_model {
    uint64_t start_ns;
    unsigned version;
    struct model_thread *threads;
    uint32_t thread_room;
    uint64_t serial; // number of allocations so far
    uint32_t group_count;
    uint64_t kinds[KIND_GUESSES][KINDS];
    uint64_t sizes[SIZE_GUESSES][SIZES];
    uint64_t ages[STACKS];
    uint64_t lasts[STACKS]; // by stack: serial of the block that it freed last
    uint64_t steps[STEP_WAYS][STEPS];
    uint32_t wanted[STEPS]; // sites
    uint32_t rank_steps[STEPS];
    uint8_t right_ways[RIGHT_WAYS];
    struct site sites[SITES];
    uint32_t ranks[RANK_ROWS][RANK_COLUMNS]; // serials, by site and rank
    struct class_use classes[CLASSES];
    struct group groups[GROUPS];
    struct made made[SERIALS];
    struct block blocks[BLOCKS];
};

struct trace_model *model_new(uint64_t start_ns, unsigned version)
{
    struct trace_model *model = calloc(1, sizeof *model); // unused parts take no memory
    if (model == NULL)
        abort();
    model->start_ns = start_ns;
    model->version = version;
    return model;
}

void model_free(struct trace_model *model)
{
    if (model)
        free(model->threads);
    free(model);
}

struct model_thread *model_thread(struct trace_model *model, uint32_t number)
{
    if (number >= model->thread_room) {
        uint32_t room = number < 32 ? 64 : 2 * number;
        model->threads = more_memory(model->threads, room * sizeof *model->threads);
        memset(model->threads + model->thread_room, 0,
               (room - model->thread_room) * sizeof *model->threads);
        for (uint32_t i = model->thread_room; i < room; i++)
            model->threads[i].time_ns = model->start_ns;
        model->thread_room = room;
    }
    return &model->threads[number];
}

static uint32_t mix(uint64_t value)
{
    return (uint32_t)((value * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

static uint64_t *kind_place(struct trace_model *model, const struct model_thread *thread,
                            unsigned guess)
{
    static const unsigned char contexts[KIND_GUESSES] = {3, 2, 0};
    return &model->kinds[guess][thread->kinds[contexts[guess]] % KINDS];
}

uint64_t model_kind(struct trace_model *model, const struct model_thread *thread, unsigned guess)
{
    return *kind_place(model, thread, guess);
}

void model_kind_was(struct trace_model *model, struct model_thread *thread, uint64_t kind)
{
    for (unsigned i = 0; i < KIND_GUESSES; i++)
        *kind_place(model, thread, i) = kind;
    // A sum contains the last 1, 2, 4 or 8 kinds, each times a power by its age; the oldest leaves
    // it.
    static const uint32_t power = 0x01000193;
    static const uint32_t leaves[] = {0x01000193, 0x26027A69, 0x502C3F11, 0x5D615F21};
    uint32_t hash = mix(kind + 1);
    uint32_t at = thread->at;
    for (unsigned i = 0; i < 4; i++)
        thread->kinds[i] =
            thread->kinds[i] * power + hash - thread->recent[(at - (1U << i)) % 8] * leaves[i];
    thread->recent[at % 8] = hash;
    thread->at = at + 1;
}

static uint64_t *size_place(struct trace_model *model, const struct model_thread *thread,
                            uint32_t stack, unsigned guess)
{
    uint64_t key = stack;
    if (guess == 0)
        key += thread->size << 32;
    else if (guess == 2)
        key += (uint64_t)thread->kinds[2] << 32;
    return &model->sizes[guess][mix(key * 3 + (key >> 32)) % SIZES];
}

uint64_t model_size(struct trace_model *model, const struct model_thread *thread, uint32_t stack,
                    unsigned guess)
{
    return *size_place(model, thread, stack, guess);
}

void model_size_was(struct trace_model *model, struct model_thread *thread, uint32_t stack,
                    uint64_t size)
{
    for (unsigned i = 0; i < SIZE_GUESSES; i++)
        *size_place(model, thread, stack, i) = size;
    thread->size = size;
}

// Returns: the size class: steps of 16 up to 128, then 8 classes for each doubling up to 1024, then
// 16.
static uint64_t class_of(uint64_t size)
{
    if (size <= 16)
        return 16;
    if (size > UINT32_MAX)
        return size;
    unsigned top = 63 - (unsigned)__builtin_clzll(size - 1);
    unsigned shift = size <= 128 ? 4 : size <= 1024 ? top - 3 : top - 4;
    return ((size - 1) >> shift << shift) + (UINT64_C(1) << shift);
}

static struct class_use *class_place(struct trace_model *model, uint32_t thread, uint64_t class)
{
    return &model->classes[mix(class + ((uint64_t)thread << 40)) % CLASSES];
}

static struct group *group_of(struct trace_model *model, uint32_t number)
{
    return &model->groups[number % GROUPS];
}

static size_t block_index(uint64_t address)
{
    return (size_t)((address >> 4) + (address >> 24) * 7919) % BLOCKS;
}

uint64_t model_new_address(struct trace_model *model, uint32_t thread, uint64_t size,
                           unsigned guess)
{
    const struct class_use *use = class_place(model, thread, class_of(size));
    const struct group *group = group_of(model, use->group);
    if (guess == 0)
        return group->top ? group->top : group->fresh;
    return guess == 1 ? group->fresh : use->freed;
}

uint64_t model_near(struct trace_model *model, uint32_t thread, uint64_t size)
{
    return class_place(model, thread, class_of(size))->address;
}

static struct site *site_place(struct trace_model *model, uint32_t site)
{
    return &model->sites[mix(site) % SITES];
}

static const struct site *site_of(const struct trace_model *model, uint32_t site)
{
    return &model->sites[mix(site) % SITES];
}

static size_t rank_row(uint32_t site, uint32_t rank)
{
    return mix(site + ((uint64_t)(rank / RANK_COLUMNS) << 32)) % RANK_ROWS;
}

static void count_made(struct trace_model *model, uint32_t stack, uint64_t address)
{
    uint32_t site = stack + 1;
    struct made *made = &model->made[model->serial % SERIALS];
    *made = (struct made){.address = address};
    if (model->version > 2) {
        made->site = site;
        made->rank = site_place(model, site)->count++;
        model->ranks[rank_row(site, made->rank)][made->rank % RANK_COLUMNS] =
            (uint32_t)model->serial;
    }
    model->serial++;
}

void model_allocated(struct trace_model *model, uint32_t thread, uint32_t stack, uint64_t size,
                     uint64_t address)
{
    uint64_t class_bytes = class_of(size);
    struct class_use *use = class_place(model, thread, class_bytes);
    struct block *block = &model->blocks[block_index(address)];
    struct group *group = group_of(model, use->group);
    if (block->address != address || block->class_bytes != class_bytes) {
        if (group->fresh != address) {
            use->group = ++model->group_count;
            *group_of(model, use->group) = (struct group){0};
        }
        uint64_t after = block->address == address ? block->freed_next : 0;
        *block = (struct block){.address = address,
                                .group = use->group,
                                .freed_next = after,
                                .class_bytes = class_bytes};
        group_of(model, use->group)->fresh = address + class_bytes;
    } else {
        use->group = block->group;
        group = group_of(model, block->group);
        group->top = block->link;
        if (group->fresh == address)
            group->fresh = address + class_bytes;
    }
    block->serial = (uint32_t)model->serial;
    use->address = address;
    count_made(model, stack, address);
}

static const struct made *made_by(const struct trace_model *model, uint64_t serial)
{
    bool known = serial < model->serial && model->serial - serial <= SERIALS;
    return known ? &model->made[serial % SERIALS] : NULL;
}

static uint64_t by_serial(const struct trace_model *model, uint64_t serial)
{
    const struct made *made = made_by(model, serial);
    return made ? made->address : 0;
}

// Returns: the last serial with these lower 32 bits.
static uint64_t whole_serial(const struct trace_model *model, uint32_t serial)
{
    return model->serial - (uint32_t)((uint32_t)model->serial - serial);
}

// Returns: the serial of a block; UINT64_MAX when unknown.
static uint64_t serial_of(const struct trace_model *model, uint64_t address)
{
    const struct block *block = &model->blocks[block_index(address)];
    uint64_t serial = whole_serial(model, block->serial);
    bool known = block->address == address && by_serial(model, serial) == address;
    return known ? serial : UINT64_MAX;
}

uint64_t model_by_step(const struct trace_model *model, uint32_t stack, uint64_t step)
{
    return by_serial(model, model->lasts[stack % STACKS] + step);
}

bool model_step(const struct trace_model *model, uint32_t stack, uint64_t address, uint64_t *step)
{
    uint64_t serial = serial_of(model, address);
    *step = serial - model->lasts[stack % STACKS];
    return serial != UINT64_MAX;
}

// Returns: the serial that a step counts from: that of the block that the thread freed last, that
// the stack freed last, or that the thread freed before.
static uint64_t step_base(const struct trace_model *model, const struct model_thread *thread,
                          uint32_t stack, unsigned way)
{
    if (way == 2)
        return model->lasts[stack % STACKS];
    return thread->freed_serials[way < 2 ? 0 : way - 2];
}

static size_t step_place(const struct model_thread *thread, uint32_t stack, unsigned way)
{
    uint64_t key = way == 1 ? stack + (thread->step << 32) + thread->step : thread->kinds[2];
    return mix(key) % STEPS;
}

static size_t kinds_place(const struct model_thread *thread)
{
    return mix(thread->kinds[2]) % STEPS;
}

// Returns: the live block of a site with this rank; 0 when there is none.
static uint64_t by_rank(const struct trace_model *model, uint32_t site, uint32_t rank)
{
    uint32_t serial = model->ranks[rank_row(site, rank)][rank % RANK_COLUMNS];
    const struct made *made = made_by(model, whole_serial(model, serial));
    return made && made->site == site && made->rank == rank ? made->address : 0;
}

uint64_t model_by_rank_step(const struct trace_model *model, const struct model_thread *thread,
                            uint64_t step)
{
    uint32_t site = model->wanted[kinds_place(thread)];
    return site ? by_rank(model, site, site_of(model, site)->last + (uint32_t)step) : 0;
}

bool model_rank_step(const struct trace_model *model, const struct model_thread *thread,
                     uint64_t address, uint64_t *step)
{
    const struct made *made = made_by(model, serial_of(model, address));
    if (made == NULL)
        return false;
    uint32_t site = model->wanted[kinds_place(thread)];
    *step = (uint64_t)(int32_t)(made->rank - site_of(model, site)->last);
    return site != 0 && made->site == site && by_rank(model, site, made->rank) == address;
}

// Returns: the nearest live block of the wanted site, by rank.
static uint64_t near_rank(const struct trace_model *model, const struct model_thread *thread,
                          uint32_t step)
{
    uint32_t site = model->wanted[kinds_place(thread)];
    const struct site *known = site_of(model, site);
    uint32_t rank = known->last + step;
    for (unsigned i = 0; site != 0 && i < REACH && rank < known->count; i++, rank += step) {
        uint64_t address = by_rank(model, site, rank);
        if (address != 0)
            return address;
    }
    return 0;
}

// Returns: the nearest live block whose site's blocks this stack frees, by serial.
static uint64_t near_freed(const struct trace_model *model, uint64_t serial, uint32_t stack,
                           uint64_t step)
{
    for (unsigned i = 0; i < REACH; i++) {
        const struct made *made = made_by(model, serial += step);
        if (made == NULL)
            return 0;
        if (made->site != 0 && site_of(model, made->site)->freer == stack + 1)
            return made->address;
    }
    return 0;
}

static uint64_t near_wanted(const struct trace_model *model, const struct model_thread *thread)
{
    uint32_t site = model->wanted[kinds_place(thread)];
    uint64_t serial = thread->freed_serials[1];
    for (unsigned i = 0; site != 0 && i < REACH; i++) {
        const struct made *made = made_by(model, --serial);
        if (made == NULL)
            return 0;
        if (made->site == site)
            return made->address;
    }
    return 0;
}

static uint64_t freed_next(const struct trace_model *model, uint64_t address)
{
    const struct block *block = &model->blocks[block_index(address)];
    return block->address == address ? block->freed_next : 0;
}

uint64_t model_old_address(const struct trace_model *model, const struct model_thread *thread,
                           uint32_t stack, enum old_way way)
{
    switch (way) {
    case WAY_FREED_NEXT:
        return freed_next(model, thread->freed);
    case WAY_AGE:
        return by_serial(model, model->serial - model->ages[stack % STACKS]);
    case WAY_NEWEST:
        return by_serial(model, model->serial - 1);
    case WAY_AGAIN:
        return thread->freed;
    case WAY_RANK_STEP:
        return model_by_rank_step(model, thread, model->rank_steps[kinds_place(thread)]);
    case WAY_FREER_BELOW:
        return near_freed(model, thread->freed_serials[0], stack, UINT64_MAX);
    case WAY_FREER_ABOVE:
        return near_freed(model, thread->freed_serials[0], stack, 1);
    case WAY_RANK_ABOVE:
        return near_rank(model, thread, 1);
    case WAY_RANK_BELOW:
        return near_rank(model, thread, UINT32_MAX);
    case WAY_SITE_BELOW:
        return near_wanted(model, thread);
    default:
        return by_serial(model, step_base(model, thread, stack, way) +
                                    model->steps[way][step_place(thread, stack, way)]);
    }
}

uint8_t *model_right_way(struct trace_model *model, const struct model_thread *thread)
{
    return &model->right_ways[thread->kinds[1] % RIGHT_WAYS];
}

static void count_freed(struct trace_model *model, const struct model_thread *thread,
                        uint32_t stack, uint64_t serial, bool freed)
{
    struct made *made = &model->made[serial % SERIALS];
    if (made->site == 0)
        return;
    struct site *site = site_place(model, made->site);
    size_t place = kinds_place(thread);
    model->rank_steps[place] = made->rank - site->last;
    model->wanted[place] = made->site;
    site->last = made->rank;
    site->freer = stack + 1;
    if (freed)
        made->site = 0;
}

static bool has_way(const struct trace_model *model, unsigned way)
{
    return model->version == 2 || (WAYS_TAKEN >> way & 1) != 0;
}

void model_touched(struct trace_model *model, struct model_thread *thread, uint32_t number,
                   uint32_t stack, uint64_t address, bool freed)
{
    struct block *block = &model->blocks[block_index(address)];
    if (has_way(model, WAY_FREED_NEXT)) {
        struct block *before = &model->blocks[block_index(thread->freed)];
        if (before->address == thread->freed)
            before->freed_next = address;
    }
    uint64_t serial = serial_of(model, address);
    if (serial != UINT64_MAX) {
        uint64_t step = serial - thread->freed_serials[0];
        for (unsigned i = 0; i < STEP_WAYS; i++)
            if (has_way(model, i))
                model->steps[i][step_place(thread, stack, i)] =
                    serial - step_base(model, thread, stack, i);
        count_freed(model, thread, stack, serial, freed);
        if (has_way(model, WAY_AGE))
            model->ages[stack % STACKS] = model->serial - serial;
        model->lasts[stack % STACKS] = serial;
        thread->freed_serials[2] = thread->freed_serials[1];
        thread->freed_serials[1] = thread->freed_serials[0];
        thread->freed_serials[0] = serial;
        thread->step = step;
    }
    thread->freed = address;
    if (!freed || block->address != address)
        return;
    struct group *group = group_of(model, block->group);
    block->link = group->top;
    group->top = address;
    class_place(model, number, block->class_bytes)->freed = address;
}
