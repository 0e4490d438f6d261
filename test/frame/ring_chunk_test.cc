// The ring between threads: one owner, many threads that release in any order, and an owner that
// ends before its frames.

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "cairn/ring.h"
#include "frame/frame_kit.h"

namespace ring_chunk_test
{

using namespace frame_kit;

struct Payload {
    cairn_frame frame;
    size_t size;
    uint64_t tag;
};

// A bag between threads that hands out payloads in random order.
class Bag
{
  public:
    // Keeps `keeps` payloads back until end(), so that get() has a choice.
    explicit Bag(size_t keeps = 50) : keeps_(keeps) {}
    void put(Payload *payload)
    {
        std::lock_guard<std::mutex> guard(mutex_);
        payloads_.push_back(payload);
        ready_.notify_one();
    }
    void end()
    {
        std::lock_guard<std::mutex> guard(mutex_);
        ended_ = true;
        ready_.notify_all();
    }
    // Takes a payload at random, after waiting for one.
    // Returns: NULL when the bag has ended and is empty.
    Payload *get(Random &random)
    {
        std::unique_lock<std::mutex> guard(mutex_);
        ready_.wait(guard, [&] { return ended_ || payloads_.size() > keeps_; });
        if (payloads_.empty())
            return nullptr;
        std::swap(payloads_[random.below(payloads_.size())], payloads_.back());
        Payload *payload = payloads_.back();
        payloads_.pop_back();
        return payload;
    }

  private:
    std::mutex mutex_;
    std::condition_variable ready_;
    std::vector<Payload *> payloads_;
    bool ended_ = false;
    const size_t keeps_;
};

Payload *make_payload(cairn_ring *ring, size_t size, uint64_t tag)
{
    cairn_frame frame = cairn_ring_open(ring);
    if (frame.chunk == nullptr)
        return nullptr;
    auto *payload =
        static_cast<Payload *>(cairn_ring_alloc(ring, sizeof(Payload) + size, alignof(Payload)));
    if (payload == nullptr) { // the maximum was reached in the middle of a frame
        cairn_ring_release(cairn_ring_seal(ring));
        return nullptr;
    }
    *payload = {frame, size, tag};
    paint(payload + 1, size, tag);
    cairn_ring_seal(ring);
    return payload;
}

void consume(Bag &bag, uint64_t seed)
{
    Random random(seed);
    while (Payload *payload = bag.get(random)) {
        ASSERT_TRUE(is_painted(payload + 1, payload->size, payload->tag));
        cairn_ring_release(payload->frame);
    }
}

void produce_and_consume(size_t consumers, int frames, unsigned holds, bool delete_first)
{
    cairn_ring *ring = cairn_ring_new(nullptr);
    Bag bag;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < consumers; i++)
        threads.emplace_back([&bag, i] { consume(bag, i + 1); });
    Random random(consumers);
    for (int i = 0; i < frames; i++) {
        Payload *payload =
            make_payload(ring, random.size(i % 500 == 0 ? 300 * kKiB : 2000), random.next());
        ASSERT_NE(payload, nullptr);
        cairn_ring_retain(payload->frame, holds - 1);
        for (unsigned hold = 0; hold < holds; hold++)
            bag.put(payload);
    }
    if (delete_first)
        cairn_ring_close(ring);
    bag.end();
    for (std::thread &thread : threads)
        thread.join();
    if (delete_first)
        return;
    cairn_ring_stats stats;
    cairn_ring_read_stats(ring, &stats);
    EXPECT_LE(stats.chunks, 1u);
    cairn_ring_close(ring);
}

TEST(RingThreads, OneConsumer) { produce_and_consume(1, 20000, 1, false); }
TEST(RingThreads, FarMoreThreadsThanProcessors) { produce_and_consume(48, 20000, 1, false); }
TEST(RingThreads, SeveralHolds) { produce_and_consume(8, 8000, 3, false); }
TEST(RingThreads, OwnerGoneWithFramesAlive) { produce_and_consume(8, 8000, 2, true); }

TEST(RingThreads, DeletedWhileTheLastReleasesAreUnderWay)
{
    for (int round = 0; round < 300; round++) {
        cairn_ring *ring = cairn_ring_new(nullptr);
        std::vector<Payload *> payloads;
        for (uint64_t i = 0; i < 90; i++)
            payloads.push_back(make_payload(ring, 3000, i));
        std::vector<std::thread> threads;
        for (size_t part = 0; part < 3; part++)
            threads.emplace_back([&, part] {
                for (size_t i = part; i < payloads.size(); i += 3)
                    cairn_ring_release(payloads[i]->frame);
            });
        cairn_ring_close(ring);
        for (std::thread &thread : threads)
            thread.join();
    }
}

TEST(RingThreads, EachThreadItsOwnRingAllReleaseForAll)
{
    constexpr size_t kThreads = 6;
    Bag bag;
    std::vector<std::thread> threads;
    for (size_t id = 0; id < kThreads; id++)
        threads.emplace_back([&bag, id] {
            cairn_ring *ring = cairn_ring_new(nullptr);
            Random random(id + 1);
            for (int i = 0; i < 3000; i++) {
                bag.put(make_payload(ring, random.size(1000), random.next()));
                Payload *payload = i > 60 ? bag.get(random) : nullptr;
                if (payload != nullptr) {
                    ASSERT_TRUE(is_painted(payload + 1, payload->size, payload->tag));
                    cairn_ring_release(payload->frame);
                }
            }
            cairn_ring_close(ring);
        });
    for (std::thread &thread : threads)
        thread.join();
    bag.end();
    consume(bag, 1);
}

TEST(RingThreads, BackpressureEndsWithReleases)
{
    cairn_ring_options options = {};
    options.max_bytes = 512 * kKiB;
    cairn_ring *ring = cairn_ring_new(&options);
    Bag bag(0); // payloads that are kept back could hold every chunk
    std::thread consumer([&bag] { consume(bag, 1); });
    for (uint64_t i = 0; i < 20000; i++) {
        Payload *payload;
        while ((payload = make_payload(ring, 500, i)) == nullptr)
            std::this_thread::yield();
        bag.put(payload);
        cairn_ring_stats stats;
        cairn_ring_read_stats(ring, &stats);
        ASSERT_LE(stats.chunk_bytes, options.max_bytes);
    }
    bag.end();
    consumer.join();
    cairn_ring_close(ring);
}

} // namespace ring_chunk_test
