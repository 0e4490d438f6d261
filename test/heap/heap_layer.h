// Helpers of the heap's unit tests: its internals for C++, and the heap of this thread.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <string.h>

#include <algorithm>
#include <vector>

extern "C" {
#include "base/atomic.h"
#include "heap/heap.h"
#include "heap/hooks.h"
#include "heap/large.h"
#include "heap/lifecycle.h"
#include "heap/misuse_report.h"
#include "heap/quarantine.h"
#include "heap/refill.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"
#include "heap/thread_heap.h"
}

namespace heap_layer
{

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

inline void *allocate(size_t size) { return malloc_fast(size, malloc_slow); }

// The span that contains a block.
inline struct span *span_of(const void *block) { return page_map_find(block); }

// The size that messages and statistics name: that of the class, or of the pages.
inline size_t block_bytes(const void *block)
{
    const struct span *span = span_of(block);
    return span_is_slab(span) ? span->size_bytes : size_t{span->pages} << PAGE_SHIFT;
}

// Makes pairs of malloc and free, with `live` blocks in use, so that lists, fresh slots and refills
// are all used.
inline void churn(size_t blocks, size_t live, size_t size)
{
    std::vector<void *> ring(live);
    for (size_t i = 0; i < blocks; i++) {
        void *&place = ring[i * 2654435761u % live];
        if (place)
            free_fast(place);
        place = allocate(size);
    }
    for (void *block : ring)
        if (block)
            free_fast(block);
}

// The heap of this thread, made if needed. It does not settle, however slow the machine is, unless
// the test sets the time of its last settling.
inline struct heap *own_heap()
{
    free_fast(allocate(1));
    thread_heap->settled_ms = UINT64_MAX / 2;
    return thread_heap;
}

// The mailbox for the heap's slabs of the class.
inline struct span *&mailbox_of(struct heap *heap, unsigned size_class)
{
    return heap->mailboxes[remote_mailbox(size_class)];
}

inline bool has_mail(const struct heap *heap)
{
    return std::any_of(std::begin(heap->mailboxes), std::end(heap->mailboxes),
                       [](const struct span *const &mailbox) { return load_relaxed(&mailbox); });
}

inline void verify()
{
    heap_verify_all();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
}

inline heap_stats stats()
{
    heap_stats stats;
    heap_read_stats(&stats);
    return stats;
}

inline page_limits limits()
{
    page_limits now;
    pages_read_limits(&now);
    return now;
}

inline void set_decay(uint64_t decay_ms)
{
    page_limits changed = limits();
    changed.decay_ms = decay_ms;
    pages_configure(&changed);
}

// For tests of this thread's heap: the heap exists before each case, and everything is verified
// after it. A decay interval takes ten seconds, so that none ends by chance while a case runs, even
// if the machine stops the process for a second. Cases that need the end of an interval bring it
// about.
class OwnHeap : public testing::Test
{
  protected:
    void SetUp() override
    {
        heap_ = own_heap();
        set_decay(20000);
    }
    void TearDown() override { verify(); }

    struct heap *heap_ = nullptr;
};

// Runs `body` on a thread of its own and waits for its end.
template <typename Body> void in_thread(Body body)
{
    pthread_t thread;
    const auto run = [](void *argument) -> void * {
        (*static_cast<Body *>(argument))();
        return nullptr;
    };
    if (pthread_create(&thread, nullptr, run, &body) != 0)
        abort();
    pthread_join(thread, nullptr);
}

} // namespace heap_layer
