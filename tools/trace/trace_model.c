// See trace_model.h.
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
    STEP_GUESSES = 5,
};

// What an address was the last time that it was handed out or freed.
struct block {
    uint64_t address;
    uint64_t link;       // the block below it in its group's list of free ones; 0: none
    uint64_t freed_next; // the address freed after it the last time
    uint32_t serial;     // allocations before it
    uint32_t group;
    uint64_t class_bytes;
};

// Blocks that seem to be of one slab.
struct group {
    uint64_t top;   // the one freed last; 0: none
    uint64_t fresh; // behind the highest
};

// What a thread last did with a size class.
struct class_use {
    uint64_t address;
    uint64_t freed;
    uint32_t group;
};

struct trace_model {
    uint64_t start_ns;
    struct model_thread *threads;
    uint32_t thread_room;
    uint64_t serial; // allocations up to now
    uint32_t group_count;
    uint64_t kinds[KIND_GUESSES][KINDS];
    uint64_t sizes[SIZE_GUESSES][SIZES];
    uint64_t ages[STACKS];
    uint64_t lasts[STACKS]; // serials of the blocks that they freed last
    uint64_t steps[STEP_GUESSES][STEPS];
    struct class_use classes[CLASSES];
    struct group groups[GROUPS];
    uint64_t serials[SERIALS]; // their addresses
    struct block blocks[BLOCKS];
};

struct trace_model *model_new(uint64_t start_ns)
{
    struct trace_model *model = calloc(1, sizeof *model); // what is never used takes no memory
    if (model == NULL)
        abort();
    model->start_ns = start_ns;
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
    // A sum has the last 1, 2, 4 or 8 kinds, each times a power by its age; the oldest leaves.
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

// Steps of 16 up to 128, then 8 a doubling up to 1024, then 16 a doubling.
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

void model_allocated(struct trace_model *model, uint32_t thread, uint64_t size, uint64_t address)
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
    model->serials[model->serial++ % SERIALS] = address;
}

static uint64_t by_serial(const struct trace_model *model, uint64_t serial)
{
    bool known = serial < model->serial && model->serial - serial <= SERIALS;
    return known ? model->serials[serial % SERIALS] : 0;
}

// UINT64_MAX: it is not known.
static uint64_t serial_of(const struct trace_model *model, uint64_t address)
{
    const struct block *block = &model->blocks[block_index(address)];
    uint64_t age = (uint32_t)((uint32_t)model->serial - block->serial);
    uint64_t serial = model->serial - age;
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

// The serial that a guess by a step counts from: that of the block that the thread freed last, or
// the stack, or the thread before.
static uint64_t step_base(const struct trace_model *model, const struct model_thread *thread,
                          uint32_t stack, unsigned guess)
{
    if (guess == 2)
        return model->lasts[stack % STACKS];
    return thread->freed_serials[guess < 2 ? 0 : guess - 2];
}

static uint64_t *step_place(struct trace_model *model, const struct model_thread *thread,
                            uint32_t stack, unsigned guess)
{
    uint64_t key = guess == 1 ? stack + (thread->step << 32) + thread->step : thread->kinds[2];
    return &model->steps[guess][mix(key) % STEPS];
}

uint64_t model_old_address(struct trace_model *model, const struct model_thread *thread,
                           uint32_t stack, unsigned guess)
{
    const struct block *before = &model->blocks[block_index(thread->freed)];
    if (guess < STEP_GUESSES)
        return by_serial(model, step_base(model, thread, stack, guess) +
                                    *step_place(model, thread, stack, guess));
    switch (guess - STEP_GUESSES) {
    case 0:
        return before->address == thread->freed ? before->freed_next : 0;
    case 1:
        return by_serial(model, model->serial - model->ages[stack % STACKS]);
    case 2:
        return by_serial(model, model->serial - 1);
    default:
        return thread->freed;
    }
}

void model_touched(struct trace_model *model, struct model_thread *thread, uint32_t number,
                   uint32_t stack, uint64_t address, bool freed)
{
    struct block *before = &model->blocks[block_index(thread->freed)];
    struct block *block = &model->blocks[block_index(address)];
    if (before->address == thread->freed)
        before->freed_next = address;
    uint64_t serial = serial_of(model, address);
    if (serial != UINT64_MAX) {
        uint64_t step = serial - thread->freed_serials[0];
        for (unsigned i = 0; i < STEP_GUESSES; i++)
            *step_place(model, thread, stack, i) = serial - step_base(model, thread, stack, i);
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
