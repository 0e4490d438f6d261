// Helpers of the tests of the decay.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/lifecycle.h"
#include "heap/sweep.h"
#include "os/memory.h"
#include "os/process.h"
#include "page/state.h"
}

namespace heap_layer
{

// Resident bytes of the pages that the blocks touch.
inline size_t resident(const std::vector<void *> &blocks, size_t size)
{
    const uintptr_t granule = os_page_size();
    std::vector<uintptr_t> pages;
    for (void *block : blocks)
        for (uintptr_t page = align_down(reinterpret_cast<uintptr_t>(block), granule);
             page < reinterpret_cast<uintptr_t>(block) + size; page += granule)
            pages.push_back(page);
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    size_t bytes = 0;
    for (uintptr_t page : pages) {
        unsigned char in_memory = 0;
        if (mincore(reinterpret_cast<void *>(page), granule, &in_memory) == 0)
            bytes += (in_memory & 1) != 0 ? granule : 0;
    }
    return bytes;
}

inline std::vector<void *> allocate_many(size_t count, size_t size)
{
    std::vector<void *> blocks;
    for (size_t i = 0; i < count; i++) {
        blocks.push_back(allocate(size));
        memset(blocks.back(), 1, size);
    }
    return blocks;
}

// A thread that runs the work that it gets, and is idle otherwise.
class IdleThread
{
  public:
    IdleThread() : thread_([this] { serve(); }) {}
    ~IdleThread()
    {
        run(nullptr);
        thread_.join();
    }
    void run(std::function<void()> body)
    {
        body_ = std::move(body);
        turn_.store(true, std::memory_order_release);
        while (turn_.load(std::memory_order_acquire))
            std::this_thread::yield();
    }

  private:
    void serve()
    {
        for (bool more = true; more; turn_.store(false, std::memory_order_release)) {
            while (!turn_.load(std::memory_order_acquire))
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            more = static_cast<bool>(body_);
            if (more)
                body_();
            body_ = nullptr;
        }
    }

    std::function<void()> body_;
    std::atomic<bool> turn_{false};
    std::thread thread_;
};

// Ends the decay interval; the next call that checks the time does the due work. No two intervals
// begin in one millisecond, or in one tick of a coarse clock.
inline void end_interval()
{
    const uint64_t now = os_now_ms();
    while (os_now_ms() == now)
        usleep(500);
    store_relaxed(&pages_state.interval_start_ms, uint64_t{0});
}

// Does all work that is due.
inline void tick_whole() { heap_housekeep(); }

// Ends `count` decay intervals, and does all work that is due after each.
inline void pass_intervals(int count)
{
    for (int i = 0; i < count; i++) {
        end_interval();
        tick_whole();
    }
}

// Frees blocks of ended threads while their heaps are held, so that the frees reclaim no slab and
// only post them.
inline void free_while_held(const std::vector<struct heap *> &ended,
                            const std::vector<void *> &blocks)
{
    for (struct heap *heap : ended)
        ASSERT_TRUE(heap_try_hold(heap));
    for (void *block : blocks)
        free_fast(block);
    for (struct heap *heap : ended)
        heap_return(heap);
}

// A whole walk over the slabs.
inline void sweep_whole()
{
    sweep_begin();
    while (sweep_walk(SWEEP_WORK))
        ;
}

} // namespace heap_layer
