// The state of a thread for a site on another allocator: see sites.c.
#ifndef REPLAY_SITE_LOCAL_H
#define REPLAY_SITE_LOCAL_H

#include "touch.h"

#include <cairn/fifo.h>
#include <cairn/pool.h>
#include <cairn/private_heap.h>
#include <cairn/ring.h>
#include <cairn/stack.h>

// The preloaded library serves a site, as in the changed program: these functions have no other
// definition.
#pragma weak cairn_fifo_alloc_slow
#pragma weak cairn_fifo_close
#pragma weak cairn_fifo_end_page
#pragma weak cairn_fifo_free_slow
#pragma weak cairn_fifo_new
#pragma weak cairn_fifo_realloc
#pragma weak cairn_private_heap_alloc
#pragma weak cairn_private_heap_alloc_aligned
#pragma weak cairn_private_heap_delete
#pragma weak cairn_private_heap_free
#pragma weak cairn_private_heap_new
#pragma weak cairn_private_heap_realloc
#pragma weak cairn_pool_attach
#pragma weak cairn_pool_delete
#pragma weak cairn_pool_detach
#pragma weak cairn_pool_get_slowly
#pragma weak cairn_pool_new
#pragma weak cairn_pool_put_slowly
#pragma weak cairn_ring_alloc_slow
#pragma weak cairn_ring_close
#pragma weak cairn_ring_new
#pragma weak cairn_ring_open
#pragma weak cairn_ring_release
#pragma weak cairn_ring_seal
#pragma weak cairn_stack_alloc_slow
#pragma weak cairn_stack_delete
#pragma weak cairn_stack_new
#pragma weak cairn_stack_pop_slow
#pragma weak cairn_stack_push_slow
#pragma weak cairn_stack_realloc_slow

enum site_way { WAY_SITE, WAY_MALLOC };

// State of an object in use, written by the thread whose record uses it, like the player's slot.
// Policies that do not use it leave its memory untouched, out of the caches.
struct site_slot {
    uint64_t number; // stack: its entry; ring: its frame; reserve: its capacity in bytes
};

// Growth of a block of a reserve since its last write.
struct site_growth {
    uint64_t from, to; // bytes; both 0: no growth
};

// The frame of a block on a stack.
struct site_entry {
    cairn_mark mark;       // owner thread
    _Atomic uint32_t dead; // atomic: set with release by the freeing thread
};

struct site_frame {
    cairn_frame frame;     // owner thread, before `live` becomes 0
    _Atomic uint64_t live; // atomic: blocks not freed, plus 1 while it is open
};

struct site_local;

// The code that a program has at a site: a function that allocates a block, fills it and keeps it
// somewhere, and a function that uses the block for the last time and ends it. Each kind of policy
// has its own pair, and the same pair with blocks of malloc. The allocators' inline functions are
// expanded there as in a program. So a call of malloc costs what it costs in a program, including
// the saved registers.
struct site_calls {
    // Returns: false when the allocator cannot serve the request.
    bool (*allocate)(struct site_local *local, struct site_slot *slot, void **place, uint64_t size);
    // Allocates a block with an alignment above malloc's, or one that is not simply filled.
    // Returns: false when the allocator cannot serve the request.
    bool (*allocate_other)(struct site_local *local, struct site_slot *slot, void **place,
                           uint64_t size, size_t align, bool zero);
    // `local` is that of the allocating thread; for a magazine, that of the calling thread.
    void (*end)(struct site_local *local, struct site_slot *slot, void **place, bool own);
};

// Written by the owner thread, except where noted.
struct site_local {
    bool made;
    bool alone; // the trace has one thread: no atomic operations, as in a program with one thread
    bool by_malloc;          // const: blocks come from malloc
    enum player_touch touch; // const
    const struct program_policy *policy;
    const struct site_calls *calls; // const
    cairn_private_heap *heap;       // const: of the policy
    cairn_pool *pool;               // const: of the policy
    cairn_stack *stack;
    cairn_mark mark;            // scope: mark of its frame
    bool open;                  // scope, ring: a frame is open
    struct site_entry *entries; // stack
    uint64_t entry_count;
    cairn_fifo *fifo;
    cairn_ring *ring;
    struct site_frame *frames; // ring
    uint64_t frame;        // ring: number of the open frame, or start of the search for the next
    uint64_t frame_blocks; // ring: allocated in the open frame
    bool is_shared_pool;   // const: it has a magazine, or would have one without by_malloc
    cairn_pool_magazine *magazine;
    void *buffer; // temporary
    uint64_t buffer_bytes;
    uint64_t served, elsewhere; // numbers of blocks
    _Atomic uint64_t live; // atomic: scope: blocks in use; temporary: whether the buffer is in use
};

struct site_shared {
    cairn_private_heap *heap;
    cairn_pool *pool;
};

struct site_state {
    const struct player *player;
    struct site_slot *slots;
    struct site_growth *growths; // by slot; NULL: no policy is a reserve
    uint8_t *ways;               // enum site_way, by slot; written like `slots`
    struct site_shared *shared;  // by policy
    struct site_local **threads; // by thread: its locals by policy; written by that thread
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

// Defines the calls of a kind of policy from its inline functions name_take(local, slot, size,
// align, by_malloc) and name_give(local, slot, block, own, by_malloc). The barrier prevents the
// compiler from merging malloc and memset to calloc.
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
