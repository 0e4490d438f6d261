// What a thread has for a site on another allocator: see sites.c.
#ifndef REPLAY_SITE_LOCAL_H
#define REPLAY_SITE_LOCAL_H

#include "player.h"

#include <cairn/fifo.h>
#include <cairn/heaps.h>
#include <cairn/pool.h>
#include <cairn/ring.h>
#include <cairn/stack.h>

enum site_way { WAY_SITE, WAY_MALLOC };

// Of an object in use; written by the thread whose record uses it, as the player's slot is.
struct site_slot {
    uint64_t number; // stack: its entry. Ring: its frame. Reserve: the bytes that it has
    enum site_way way;
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

// Owner thread, unless something else is said.
struct site_local {
    bool made;
    bool alone;     // the trace has one thread: nothing is atomic, as in a program that has one
    bool by_malloc; // const: blocks come from malloc
    const struct program_policy *policy;
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
    struct site_shared *shared;  // by policy
    struct site_local **threads; // by thread: its locals by policy; written by the thread
};

// Stack, scope, FIFO and ring: site_local.c.
void local_make(struct site_local *local);
void *local_allocate(struct site_local *local, struct site_slot *slot, uint64_t size, size_t align);
void local_free(struct site_local *local, struct site_slot *slot, void *pointer, bool own);
void *local_resize(struct site_local *local, struct site_slot *slot, void *pointer, uint64_t before,
                   uint64_t size);
void local_end(struct site_local *local);

#endif
