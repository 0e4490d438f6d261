// What a thread has for a site on another allocator: see sites.c.
#ifndef REPLAY_SITE_LOCAL_H
#define REPLAY_SITE_LOCAL_H

#include "touch.h"

#include <cairn/fifo.h>
#include <cairn/heaps.h>
#include <cairn/pool.h>
#include <cairn/ring.h>
#include <cairn/stack.h>

enum site_way { WAY_SITE, WAY_MALLOC };

// Of an object in use; written by the thread whose record uses it, as the player's slot is. Not all
// policies have a use for it, and what they do not touch takes no room in the caches.
struct site_slot {
    uint64_t number; // stack: its entry. Ring: its frame. Reserve: the bytes that it has
};

// Of a block of a reserve: what it has grown by since it was last written to.
struct site_growth {
    uint64_t from, to; // bytes; both 0: nothing
};

// A block of a stack: its frame.
struct site_entry {
    cairn_mark mark;       // owner thread
    _Atomic uint32_t dead; // atomic: set by who frees it, released
};

struct site_frame {
    cairn_frame frame;     // owner thread; before `live` comes to zero
    _Atomic uint64_t live; // atomic: blocks not freed, and 1 while it is open
};

struct site_local;

// What a program has at a site, a function that allocates a block, fills it and keeps it somewhere,
// and where it looks at a block for the last time, a function that ends it. Each kind of policy has
// its own, and the same with blocks of malloc. The allocators' inline functions are expanded there
// as they are in a program, so a call of malloc costs what it does there: with the call the
// registers that are to be saved for it.
struct site_calls {
    // False: it cannot serve that.
    bool (*allocate)(struct site_local *local, struct site_slot *slot, void **place, uint64_t size);
    // The same for an alignment beyond malloc's, and where the block is not simply filled.
    bool (*allocate_other)(struct site_local *local, struct site_slot *slot, void **place,
                           uint64_t size, size_t align, bool zero);
    // `local` is that of the thread that allocated; of a magazine, the calling thread's.
    void (*end)(struct site_local *local, struct site_slot *slot, void **place, bool own);
};

// Owner thread, unless something else is said.
struct site_local {
    bool made;
    bool alone;     // the trace has one thread: nothing is atomic, as in a program that has one
    bool by_malloc; // const: blocks come from malloc
    enum player_touch touch; // const
    const struct program_policy *policy;
    const struct site_calls *calls; // const
    cairn_heap *heap;               // const; the policy's
    cairn_pool *pool;               // const; the policy's
    cairn_stack *stack;
    cairn_mark mark;            // scope: of its frame
    bool open;                  // scope, ring: there is a frame
    struct site_entry *entries; // stack
    uint64_t entry_count;
    cairn_fifo *fifo;
    cairn_ring *ring;
    struct site_frame *frames; // ring
    uint64_t frame;            // ring: number of the open one, or where to look for the next
    uint64_t frame_blocks;     // ring: allocated in the open frame
    cairn_pool_magazine *magazine;
    void *buffer; // temporary
    uint64_t buffer_bytes;
    uint64_t served, elsewhere; // blocks
    _Atomic uint64_t live;      // atomic: scope: blocks in use. Temporary: whether it is in use
};

struct site_shared {
    cairn_heap *heap;
    cairn_pool *pool;
};

struct site_state {
    const struct player *player;
    struct site_slot *slots;
    struct site_growth *growths; // likewise; NULL: no policy is a reserve
    uint8_t *ways;               // enum site_way; by slot, and written as it is
    struct site_shared *shared;  // by policy
    struct site_local **threads; // by thread: its locals by policy; written by the thread
};

// Stack, scope, FIFO and ring: site_local.c.
extern const struct site_calls stack_calls[2], scope_calls[2], fifo_calls[2], ring_calls[2];
void local_make(struct site_local *local);
void *local_resize(struct site_local *local, struct site_slot *slot, void *pointer, uint64_t before,
                   uint64_t size);
void local_end(struct site_local *local);

static ALWAYS_INLINE void *site_touched(const struct site_local *local, void *block, uint64_t size,
                                        bool zero)
{
    if (zero)
        memset(block, 0, size);
    touch_block(local->touch, block, 0, size, zero);
    return block;
}

// The calls of a kind of policy, of its inline functions name_take(local, slot, size, align,
// by_malloc) and name_give(local, slot, block, own, by_malloc).
//
// Without the barrier a compiler makes a calloc of malloc and memset.
#define SITE_FORM(name, form, by_malloc)                                                           \
    static bool form##_allocate(struct site_local *local, struct site_slot *slot, void **place,    \
                                uint64_t size)                                                     \
    {                                                                                              \
        void *block = name##_take(local, slot, size, 16, by_malloc);                               \
        if (!block)                                                                                \
            return false;                                                                          \
        __asm__ volatile("" : "+r"(block) : : "memory");                                           \
        *place = memset(block, 1, size);                                                           \
        return true;                                                                               \
    }                                                                                              \
    static bool form##_allocate_other(struct site_local *local, struct site_slot *slot,            \
                                      void **place, uint64_t size, size_t align, bool zero)        \
    {                                                                                              \
        void *block = name##_take(local, slot, size, align, by_malloc);                            \
        if (!block)                                                                                \
            return false;                                                                          \
        __asm__ volatile("" : "+r"(block) : : "memory");                                           \
        *place = site_touched(local, block, size, zero);                                           \
        return true;                                                                               \
    }                                                                                              \
    static void form##_end(struct site_local *local, struct site_slot *slot, void **place,         \
                           bool own)                                                               \
    {                                                                                              \
        name##_give(local, slot, *place, own, by_malloc);                                          \
        *place = NULL;                                                                             \
    }
#define SITE_CALLS(linkage, name)                                                                  \
    SITE_FORM(name, name, false)                                                                   \
    SITE_FORM(name, name##_malloc, true)                                                           \
    linkage const struct site_calls name##_calls[2] = {                                            \
        {name##_allocate, name##_allocate_other, name##_end},                                      \
        {name##_malloc_allocate, name##_malloc_allocate_other, name##_malloc_end}}

#endif
