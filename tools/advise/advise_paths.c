// Stacks, and the functions that a thread is in.
//
// A trace shows calls and returns only through the stacks of its events. A frame is identified by
// its return address and all frames outside it. As long as each event of a thread has the frame,
// the thread is assumed to be in the function to which it returns; an event without it shows that
// the function has returned. If a function returns and is called again by the same call without an
// event in between, the trace cannot tell the two calls apart. If such a function frees by a call
// before its allocating call, the free is attributed to the next round.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "advise.h"

enum { FRAMES_MOST = 32 << 20 }; // of all stacks; later ones are unknown

struct stack {
    uint64_t *frames; // outermost first
    unsigned count;
};

struct path {
    uint32_t stack;
    unsigned count;
    uint64_t since[STACK_DEPTH];
};

static uint64_t *frame_room; // FRAMES_MOST; unused ones take no memory
static size_t frame_count;
static struct stack *stacks;
static uint32_t stack_room;
static struct path *paths[THREADS_MOST];

bool paths_add(uint32_t number, const uint64_t *frames, unsigned count)
{
    if (number >= stack_room) {
        uint32_t room = stack_room ? stack_room : 1024;
        while (room <= number)
            room *= 2;
        struct stack *larger = realloc(stacks, room * sizeof *stacks);
        if (larger == NULL)
            return false;
        memset(larger + stack_room, 0, (room - stack_room) * sizeof *stacks);
        stacks = larger;
        stack_room = room;
    }
    if (frame_room == NULL) {
        void *memory = mmap(NULL, FRAMES_MOST * sizeof *frame_room, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return false;
        frame_room = memory;
    }
    if (count > STACK_DEPTH || frame_count + count > FRAMES_MOST)
        return false;
    uint64_t *copy = frame_room + frame_count;
    memcpy(copy, frames, count * sizeof *copy);
    frame_count += count;
    stacks[number] = (struct stack){copy, count};
    return true;
}

static const struct stack *stack_of(uint32_t number)
{
    static const struct stack none = {NULL, 0};
    return number < stack_room ? &stacks[number] : &none;
}

static unsigned shared_count(const struct stack *one, const struct stack *other)
{
    unsigned least = one->count < other->count ? one->count : other->count, count = 0;
    while (count < least && one->frames[count] == other->frames[count])
        count++;
    return count;
}

void path_moves(uint32_t thread, uint32_t number, uint64_t event)
{
    const struct stack *stack = stack_of(number);
    if (stack->count == 0 || thread >= THREADS_MOST)
        return;
    struct path *path = paths[thread];
    if (path == NULL) {
        path = paths[thread] = calloc(1, sizeof *path);
        if (path == NULL)
            return;
    }
    if (path->stack == number)
        return;
    for (unsigned i = shared_count(stack_of(path->stack), stack); i < stack->count; i++)
        path->since[i] = event;
    path->stack = number;
}

// Called while the thread's path is that of the free. The return addresses in the innermost shared
// function follow the shared frames.
struct shared_frame path_shared(uint32_t thread, uint32_t allocation, uint32_t release)
{
    struct shared_frame shared = {0};
    const struct stack *made = stack_of(allocation), *ended = stack_of(release);
    if (thread >= THREADS_MOST || paths[thread] == NULL)
        return shared;
    unsigned count = shared_count(made, ended);
    if (count == 0 || count == made->count || count == ended->count)
        return shared;
    shared.depth = count;
    shared.between = made->count - count - 1;
    shared.since = paths[thread]->since[count - 1];
    shared.backward = ended->frames[count] < made->frames[count];
    return shared;
}
