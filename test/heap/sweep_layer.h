// What the tests of giving back by time share.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/heap_sweep.h"
#include "heap/slab_sweep.h"
#include "page/state.h"
}

namespace heap_layer
{

// Bytes in memory of the pages that the blocks touch.
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

// A thread that does what it is given and is idle otherwise.
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

// The decay interval under way is over; whoever asks next does what is due.
inline void end_interval() { store_relaxed(&pages_state.interval_start_ms, uint64_t{0}); }

} // namespace heap_layer
