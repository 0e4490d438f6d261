// Threads of the model: several short-lived threads in turn work on each lane, which is a Shadow,
// and all lanes exchange blocks. So threads use and free blocks that they did not allocate, during
// the life of the allocating thread, after its end, and after another thread adopted its heap.
//
// The calls of each lane follow from the seed. The order of the calls among the lanes is not
// reproducible.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "model/shadow.h"

namespace model
{

// Blocks on their way to a lane. The queue is bounded and allocates no memory.
class Queue
{
  public:
    bool push(const Block &block)
    {
        pthread_mutex_lock(&mutex_);
        const bool room = count_ < blocks_.size();
        if (room)
            blocks_[count_++] = block;
        pthread_mutex_unlock(&mutex_);
        return room;
    }

    bool pop(Block *block)
    {
        pthread_mutex_lock(&mutex_);
        const bool some = count_ > 0;
        if (some)
            *block = blocks_[--count_];
        pthread_mutex_unlock(&mutex_);
        return some;
    }

  private:
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    std::array<Block, 64> blocks_;
    size_t count_ = 0;
};

inline void start_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    if (pthread_create(thread, nullptr, body, argument) != 0)
        abort();
}

class Lanes
{
  public:
    Lanes(uint64_t seed, size_t count, size_t most_blocks, size_t most_bytes,
          unsigned seconds_most = 12)
        : end_(std::chrono::steady_clock::now() + std::chrono::seconds(seconds_most))
    {
        for (size_t i = 0; i < count; i++)
            lanes_.push_back(std::make_unique<Lane>(this, mix(seed) + i, most_blocks, most_bytes));
    }

    // Starts `threads` threads for each lane, one after the other, of `steps` steps each; fewer
    // when time is short.
    void start(size_t threads, size_t steps)
    {
        threads_ = threads;
        steps_ = steps;
        for (auto &lane : lanes_)
            start_thread(&lane->thread, run_lane, lane.get());
    }

    // Ends each thread after its current step. To be called before join.
    void stop() { stopped_ = true; }

    void join()
    {
        for (auto &lane : lanes_)
            pthread_join(lane->thread, nullptr);
    }

    // Collects the blocks of all lanes and checks them against each other. To be called after join.
    void collect(Shadow &all)
    {
        for (auto &lane : lanes_) {
            all.absorb(lane->shadow);
            for (Block block; lane->queue.pop(&block);)
                all.adopt(block);
        }
    }

    // Shadow::prefer() for all lanes. To be called before start.
    void prefer(size_t least, size_t most)
    {
        for (auto &lane : lanes_)
            lane->shadow.prefer(least, most);
    }

    // Shadow::allow_failures() for all lanes. To be called before start.
    void allow_failures(bool allowed)
    {
        for (auto &lane : lanes_)
            lane->shadow.allow_failures(allowed);
    }

    size_t threads_run() const { return threads_run_; }
    size_t handed_over() const { return handed_over_; }

  private:
    struct Lane {
        Lane(Lanes *all, uint64_t seed, size_t most_blocks, size_t most_bytes)
            : lanes(all), shadow(seed, most_blocks, most_bytes)
        {
        }
        Lanes *const lanes;
        Shadow shadow;
        Queue queue;
        pthread_t thread{};
    };

    bool late() const { return stopped_ || std::chrono::steady_clock::now() > end_; }

    static void *run_lane(void *argument)
    {
        Lane *lane = static_cast<Lane *>(argument);
        for (size_t i = 0; i < lane->lanes->threads_ && !lane->lanes->late(); i++) {
            pthread_t worker;
            start_thread(&worker, work, lane);
            pthread_join(worker, nullptr);
            lane->lanes->threads_run_++;
        }
        return nullptr;
    }

    static void *work(void *argument)
    {
        Lane *lane = static_cast<Lane *>(argument);
        Lanes *lanes = lane->lanes;
        Shadow &shadow = lane->shadow;
        for (size_t i = 0; i < lanes->steps_; i++) {
            if (i % 64 == 0 && lanes->late())
                break;
            shadow.step();
            if (shadow.prefers() && shadow.random().one_in(100))
                shadow.cycle(1 + shadow.random().below(200));
            if (!shadow.empty() && shadow.random().one_in(3))
                lanes->hand_over(*lane);
            Block block;
            while (!shadow.full() && shadow.random().one_in(3) && lane->queue.pop(&block))
                shadow.adopt(block);
        }
        return nullptr;
    }

    void hand_over(Lane &lane)
    {
        const Block block = lane.shadow.give();
        Lane &other = *lanes_[lane.shadow.random().below(lanes_.size())];
        if (other.queue.push(block))
            handed_over_++;
        else
            lane.shadow.adopt(block);
    }

    const std::chrono::steady_clock::time_point end_;
    size_t threads_ = 0;
    size_t steps_ = 0;
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::atomic<bool> stopped_{false};
    std::atomic<size_t> threads_run_{0};
    std::atomic<size_t> handed_over_{0};
};

} // namespace model
