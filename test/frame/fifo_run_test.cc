// Objects of 16 KiB to 1 MiB: their places, the memory that they hold, and the memory that a
// survivor holds.

#include <deque>
#include <vector>

#include "frame/fifo_kit.h"

namespace fifo_run_test
{

using namespace fifo_kit;

struct Piece {
    void *object;
    size_t size;
    uint64_t tag;
};

// Writes the tag at the start, at the end, and to some places between.
void mark_run(const Piece &run)
{
    auto *bytes = static_cast<char *>(run.object);
    for (size_t at = 0; at + 8 <= run.size; at += 4096)
        memcpy(bytes + at, &run.tag, 8);
    paint(bytes + run.size - 8, 8, run.tag);
}

bool is_marked(const Piece &run)
{
    const auto *bytes = static_cast<const char *>(run.object);
    for (size_t at = 0; at + 8 <= run.size - 8; at += 4096)
        if (memcmp(bytes + at, &run.tag, 8) != 0)
            return false;
    return is_painted(bytes + run.size - 8, 8, run.tag);
}

class Queue
{
  public:
    explicit Queue(cairn_fifo *fifo) : fifo_(fifo) {}
    void put(size_t size)
    {
        Piece run = {cairn_fifo_alloc(fifo_, size, 8), size, ++tag_};
        ASSERT_NE(run.object, nullptr);
        mark_run(run);
        runs_.push_back(run);
        live_ += size;
    }
    void get()
    {
        Piece run = runs_.front();
        ASSERT_TRUE(is_marked(run));
        cairn_fifo_free(fifo_, run.object);
        runs_.pop_front();
        live_ -= run.size;
    }
    size_t live() const { return live_; }

  private:
    cairn_fifo *fifo_;
    std::deque<Piece> runs_;
    size_t live_ = 0;
    uint64_t tag_ = 0;
};

// In a queue the free groups are the oldest ones: a search for room that sees only the newest
// groups lets a small queue grow to many times its size.
TEST(FifoRun, AQueueOfRunsHoldsLittleMoreThanLives)
{
    Random random(1);
    for (size_t most : {17 * kKiB, 60 * kKiB, 300 * kKiB, kMiB}) {
        Fifo fifo = make();
        Queue queue(fifo.get());
        size_t held = 0;
        for (int i = 0; i < 3000; i++) {
            queue.put(16 * kKiB + 1 + random.below(most - 16 * kKiB));
            while (queue.live() > 47 * kMiB)
                queue.get();
            cairn_fifo_stats all = stats(fifo);
            if (all.segment_bytes + all.spare_bytes > held)
                held = all.segment_bytes + all.spare_bytes;
        }
        EXPECT_LT(held, 75 * kMiB) << most;
        while (queue.live() > 0)
            queue.get();
        EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
    }
}

// A run takes whole pages, not whole segments.
TEST(FifoRun, ARunTakesItsPages)
{
    if (frame_checked())
        GTEST_SKIP() << "checked objects are larger";
    for (size_t size : {17 * kKiB, 36 * kKiB, 65 * kKiB, 300 * kKiB}) {
        Fifo fifo = make();
        Queue queue(fifo.get());
        while (queue.live() < 40 * kMiB)
            queue.put(size);
        size_t pages = (size + 4095) / 4096 * 4096;
        EXPECT_LT(stats(fifo).segment_bytes, queue.live() / size * pages * 21 / 20) << size;
        while (queue.live() > 0)
            queue.get();
    }
}

TEST(FifoRun, OneAtATimeStaysWhereItIs)
{
    Fifo fifo = make();
    for (int i = 0; i < 10000; i++) {
        void *object = cairn_fifo_alloc(fifo.get(), 16 * kKiB + 1 + static_cast<size_t>(i) * 4, 8);
        ASSERT_NE(object, nullptr);
        cairn_fifo_free(fifo.get(), object);
    }
    if (!frame_checked()) {
        EXPECT_LE(stats(fifo).segment_bytes + stats(fifo).spare_bytes, 256 * kKiB);
    }
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
}

TEST(FifoRun, ASurvivorHoldsItsPagesOnly)
{
    if (!measures_memory())
        GTEST_SKIP() << "checked objects are larger";
    Fifo fifo = make();
    std::vector<Piece> runs;
    for (uint64_t i = 0; i < 600; i++) {
        size_t size = 17 * kKiB + i % 7 * 9000;
        runs.push_back({cairn_fifo_alloc(fifo.get(), size, 8), size, i});
        mark_run(runs.back());
    }
    size_t surviving = 0;
    for (Piece &run : runs) {
        if (run.tag % 20 == 10)
            surviving += (run.size + 4095) / 4096 * 4096;
        else
            cairn_fifo_free(fifo.get(), run.object);
    }
    // The segments that became nearly dead last are not purged yet, nor is the one being filled.
    EXPECT_LT(stats(fifo).segment_bytes - stats(fifo).returned_bytes, surviving + 8 * 64 * kKiB);
    cairn_fifo_trim(fifo.get(), 0);
    EXPECT_LE(stats(fifo).segment_bytes - stats(fifo).returned_bytes, surviving + 64 * kKiB);
    for (Piece &run : runs)
        if (run.tag % 20 == 10) {
            ASSERT_TRUE(is_marked(run));
            cairn_fifo_free(fifo.get(), run.object);
        }
    EXPECT_EQ(stats(fifo).returned_bytes, 0u);
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
}

TEST(FifoRun, MaximumIsKept)
{
    cairn_fifo_options options = {};
    options.max_bytes = 2 * kMiB;
    Fifo fifo = make(options);
    for (int round = 0; round < 3; round++) {
        std::vector<void *> objects;
        while (void *object = cairn_fifo_alloc(fifo.get(), 100 * kKiB, 8)) {
            objects.push_back(object);
            ASSERT_LE(stats(fifo).segment_bytes, options.max_bytes);
        }
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_GE(objects.size(), 18u);
        for (void *object : objects)
            cairn_fifo_free(fifo.get(), object);
    }
}

TEST(FifoRunDeathTest, InteriorPointersAndSecondFrees)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs check the object's header first";
    Fifo fifo = make();
    auto *first = static_cast<char *>(cairn_fifo_alloc(fifo.get(), 100 * kKiB, 8));
    auto *second = static_cast<char *>(cairn_fifo_alloc(fifo.get(), 100 * kKiB, 8));
    for (char *inside : {first + 8, first + 4096, first + 96 * kKiB, second + 64 * kKiB}) {
        EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), inside),
                          "fifo \"fifo\": free of " + hex(inside) +
                              ", which is not an object of it");
    }
    auto *third = static_cast<char *>(cairn_fifo_alloc(fifo.get(), 20 * kKiB, 8));
    auto *fourth = static_cast<char *>(cairn_fifo_alloc(fifo.get(), 20 * kKiB, 8));
    cairn_fifo_free(fifo.get(), third); // its segment has other objects
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), third),
                      "fifo \"fifo\": double free of " + hex(third));
    // its segment is empty then: its former content is not known
    cairn_fifo_free(fifo.get(), first);
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), first),
                      "fifo \"fifo\": more frees than objects in the page of " + hex(first));
    cairn_fifo_free(fifo.get(), second);
    cairn_fifo_free(fifo.get(), fourth);
}

// Sizes around the limits of segments and groups, freed in any order.
void random_runs(uint64_t seed)
{
    Random random(seed);
    Fifo fifo = make();
    std::vector<Piece> live;
    size_t most = 1 + random.below(60);
    for (int i = 0; i < 4000; i++) {
        if (random.below(2) == 0 || live.empty()) {
            size_t pages = random.below(4) == 0 ? 1 + random.below(256) : 4 + random.below(30);
            size_t size = pages * 4096 - random.below(2) * random.below(4000);
            if (random.below(8) == 0)
                size = 1 + random.below(5000);
            Piece run = {cairn_fifo_alloc(fifo.get(), size < 16 ? 16 : size, 8),
                         size < 16 ? 16 : size, random.next()};
            ASSERT_NE(run.object, nullptr);
            mark_run(run);
            live.push_back(run);
        }
        if (random.below(1000) == 0)
            cairn_fifo_trim(fifo.get(), random.below(2) * kMiB);
        while (live.size() > most || (random.below(3) == 0 && !live.empty())) {
            size_t which = random.below(3) == 0 ? random.below(live.size()) : 0;
            ASSERT_TRUE(is_marked(live[which])) << "seed " << seed << " step " << i;
            cairn_fifo_free(fifo.get(), live[which].object);
            live.erase(live.begin() + static_cast<ptrdiff_t>(which));
        }
    }
    for (const Piece &run : live)
        cairn_fifo_free(fifo.get(), run.object);
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
}

TEST(FifoRunModel, RandomUse)
{
    for (uint64_t seed = 1; seed <= 12 && !testing::Test::HasFatalFailure(); seed++)
        random_runs(seed);
}

} // namespace fifo_run_test
