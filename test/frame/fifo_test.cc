// The FIFO: allocation, frees in any order, resizing, and random use against a shadow.

#include <deque>
#include <vector>

#include "frame/fifo_kit.h"

namespace fifo_test
{

using namespace fifo_kit;

TEST(Fifo, EveryAlignmentTo2MiB)
{
    Fifo fifo = make();
    std::vector<void *> objects;
    for (int round = 0; round < 2; round++)
        for (size_t align = 1; align <= 2 * kMiB; align *= 2) {
            volatile size_t variable = align;
            objects.push_back(cairn_fifo_alloc(fifo.get(), 24, variable));
            ASSERT_NE(objects.back(), nullptr) << align;
            ASSERT_TRUE(is_aligned(objects.back(), align));
            paint(objects.back(), 24, align);
        }
    errno = 0;
    volatile size_t beyond = 4 * kMiB;
    EXPECT_EQ(cairn_fifo_alloc(fifo.get(), 24, beyond), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    for (void *object : objects)
        cairn_fifo_free(fifo.get(), object);
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
}

TEST(Fifo, EverySizeIsWritable)
{
    Fifo fifo = make();
    std::vector<std::pair<void *, size_t>> objects;
    for (size_t size = 0; size < 6 * kMiB; size = size * 5 / 4 + 1) {
        void *object = cairn_fifo_alloc(fifo.get(), size, 8);
        ASSERT_NE(object, nullptr);
        paint(object, size, size);
        objects.emplace_back(object, size);
    }
    for (auto [object, size] : objects) {
        ASSERT_TRUE(is_painted(object, size, size));
        cairn_fifo_free(fifo.get(), object);
    }
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
}

TEST(Fifo, RefusesWhatCannotBe)
{
    Fifo fifo = make();
    for (size_t size : {SIZE_MAX, SIZE_MAX - 7, SIZE_MAX - 100, size_t{PTRDIFF_MAX}}) {
        errno = 0;
        EXPECT_EQ(cairn_fifo_alloc(fifo.get(), size, 8), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    EXPECT_EQ(cairn_fifo_alloc_array(fifo.get(), SIZE_MAX / 2, 4, 8), nullptr);
    errno = 0;
    EXPECT_EQ(cairn_fifo_alloc(fifo.get(), 8, 24), nullptr);
    EXPECT_EQ(errno, EINVAL);
    cairn_fifo_free(fifo.get(), nullptr);
}

TEST(Fifo, ZeroTwinsReadZeroWhereObjectsWereBefore)
{
    Fifo fifo = make();
    for (size_t size : {size_t{100}, 3000 * size_t{12}, 2 * kMiB}) {
        void *used = cairn_fifo_alloc(fifo.get(), size, 8);
        memset(used, 1, size);
        cairn_fifo_free(fifo.get(), used);
        std::string zeros(size, 0);
        void *zero = cairn_fifo_alloc_zero(fifo.get(), size, 8);
        EXPECT_EQ(memcmp(zero, zeros.data(), size), 0) << size;
        void *array = cairn_fifo_alloc_array_zero(fifo.get(), size / 4, 4, 8);
        EXPECT_EQ(memcmp(array, zeros.data(), size / 4 * 4), 0) << size;
        cairn_fifo_free(fifo.get(), zero);
        cairn_fifo_free(fifo.get(), array);
    }
    volatile size_t many = SIZE_MAX / 2;
    EXPECT_EQ(cairn_fifo_alloc_array_zero(fifo.get(), many, 4, 8), nullptr);
}

struct Asked {
    cairn_fifo *fifo = nullptr;
    std::vector<void *> objects; // one is freed in each call
    int calls = 0;

    static bool ask(void *context, size_t)
    {
        auto *asked = static_cast<Asked *>(context);
        asked->calls++;
        if (asked->objects.empty())
            return false;
        cairn_fifo_free(asked->fifo, asked->objects.back());
        asked->objects.pop_back();
        return true;
    }
};

TEST(Fifo, OutOfMemoryIsAskedAboutUntilItSaysNo)
{
    Asked asked;
    cairn_fifo_options options = {};
    options.max_bytes = 4 * kMiB;
    options.out_of_memory = Asked::ask;
    options.out_of_memory_context = &asked;
    Fifo fifo = make(options);
    asked.fifo = fifo.get();
    for (size_t size : {100 * kKiB, kMiB, 700 * kKiB, 10 * kKiB})
        asked.objects.push_back(cairn_fifo_alloc(fifo.get(), size, 8));
    EXPECT_EQ(asked.calls, 0);
    void *object = cairn_fifo_alloc(fifo.get(), 3 * kMiB, 8);
    EXPECT_NE(object, nullptr);
    EXPECT_GT(asked.calls, 1);
    asked.calls = 0;
    errno = 0;
    EXPECT_EQ(cairn_fifo_alloc(fifo.get(), 3 * kMiB, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(asked.objects.empty());
    EXPECT_GT(asked.calls, 0);
    asked.calls = 0;
    EXPECT_EQ(cairn_fifo_alloc(fifo.get(), 5 * kMiB, 8), nullptr); // beyond the maximum
    volatile size_t beyond = 4 * kMiB;
    EXPECT_EQ(cairn_fifo_alloc(fifo.get(), 8, beyond), nullptr);
    EXPECT_EQ(asked.calls, 0);
    cairn_fifo_free(fifo.get(), object);
}

TEST(Fifo, AQueueStaysInOneSegment)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs keep dead segments for a long time";
    Fifo fifo = make();
    std::deque<void *> queue;
    for (int i = 0; i < 1000000; i++) {
        queue.push_back(cairn_fifo_alloc(fifo.get(), 8, 8));
        if (queue.size() > 1000) {
            cairn_fifo_free(fifo.get(), queue.front());
            queue.pop_front();
        }
        ASSERT_LE(stats(fifo).segment_bytes, 128 * kKiB);
    }
    EXPECT_LE(stats(fifo).spare_bytes, 128 * kKiB);
    for (void *object : queue)
        cairn_fifo_free(fifo.get(), object);
}

TEST(Fifo, ReallocGrowsTheNewestInPlaceAndMovesOthers)
{
    Fifo fifo = make();
    void *first = cairn_fifo_alloc(fifo.get(), 100, 8);
    paint(first, 100, 1);
    if (!frame_checked()) {
        EXPECT_EQ(cairn_fifo_realloc(fifo.get(), first, 100, 1000, 8), first);
        EXPECT_EQ(cairn_fifo_realloc(fifo.get(), first, 1000, 100, 8), first);
    }
    void *second = cairn_fifo_alloc(fifo.get(), 100, 8);
    paint(second, 100, 2);
    void *moved = cairn_fifo_realloc(fifo.get(), first, 100, 100000, 8);
    ASSERT_NE(moved, nullptr);
    EXPECT_NE(moved, first);
    EXPECT_TRUE(is_painted(moved, 100, 1));
    EXPECT_TRUE(is_painted(second, 100, 2));
    EXPECT_EQ(cairn_fifo_realloc(fifo.get(), moved, 100000, size_t{1} << 62, 8), nullptr);
    EXPECT_TRUE(is_painted(moved, 100, 1));
    void *smaller = cairn_fifo_realloc(fifo.get(), moved, 100000, 50, 8);
    EXPECT_TRUE(is_painted(smaller, 50, 1));
    cairn_fifo_free(fifo.get(), smaller);
    cairn_fifo_free(fifo.get(), second);
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
}

TEST(Fifo, MaximumIsKeptAndNotForEver)
{
    cairn_fifo_options options = {};
    options.max_bytes = kMiB;
    Fifo fifo = make(options);
    for (int round = 0; round < 3; round++) {
        std::vector<void *> objects;
        while (void *object = cairn_fifo_alloc(fifo.get(), 1000, 8))
            objects.push_back(object);
        EXPECT_EQ(errno, ENOMEM);
        EXPECT_GT(objects.size(), 900u);
        EXPECT_LE(objects.size(), 1048u);
        EXPECT_EQ(cairn_fifo_alloc(fifo.get(), 2 * kMiB, 8), nullptr);
        for (void *object : objects)
            cairn_fifo_free(fifo.get(), object);
    }
}

// Segments without an object do not count for the maximum.
TEST(Fifo, AMaximumAdmitsWhatFitsWhenNothingLives)
{
    cairn_fifo_options options = {};
    options.max_bytes = kMiB;
    Fifo fifo = make(options);
    for (size_t bytes : {64ul, 20000ul, 1000000ul, 64ul, 1000000ul, 20000ul, 64ul, 20000ul}) {
        void *object = cairn_fifo_alloc(fifo.get(), bytes, 8);
        ASSERT_NE(object, nullptr) << bytes;
        paint(object, bytes, bytes);
        EXPECT_LE(stats(fifo).segment_bytes, kMiB);
        EXPECT_TRUE(is_painted(object, bytes, bytes));
        cairn_fifo_free(fifo.get(), object);
    }
    EXPECT_EQ(stats(fifo).spare_bytes % (64 * kKiB), 0u);
    cairn_fifo_trim(fifo.get(), 0);
    EXPECT_EQ(stats(fifo).segment_bytes, 0u);
}

TEST(Fifo, TrimKeepsWhatItIsToldToKeep)
{
    Fifo fifo = make();
    std::vector<void *> objects;
    for (int i = 0; i < 4000; i++)
        objects.push_back(cairn_fifo_alloc(fifo.get(), 1000, 8));
    for (void *object : objects)
        cairn_fifo_free(fifo.get(), object);
    ASSERT_GT(stats(fifo).spare_bytes, 3 * kMiB);
    cairn_fifo_trim(fifo.get(), 3 * kMiB);
    EXPECT_EQ(stats(fifo).spare_bytes, 3 * kMiB);
    cairn_fifo_trim(fifo.get(), kMiB + 1);
    EXPECT_EQ(stats(fifo).spare_bytes, kMiB);
    cairn_fifo_trim(fifo.get(), 0);
    EXPECT_EQ(stats(fifo).spare_bytes, 0u);
}

// Random use against a shadow: mostly first in, first out, with survivors and frees in other
// orders.
struct Shadow {
    void *object;
    size_t size;
    size_t align;
    uint64_t tag;
};

void check(const Shadow &shadow)
{
    ASSERT_TRUE(is_painted(shadow.object, shadow.size, shadow.tag));
}

void random_use(uint64_t seed)
{
    Random random(seed);
    Fifo fifo = make();
    std::deque<Shadow> live;
    size_t most = 1 + random.below(500);
    for (int i = 0; i < 20000; i++) {
        size_t dice = random.below(100);
        if (dice < 50 || live.empty()) {
            Shadow shadow = {nullptr, random.size(seed % 4 == 0 ? 2 * kMiB : 30 * kKiB),
                             random.align(dice < 2 ? 17 : 6), random.next()};
            shadow.object = cairn_fifo_alloc(fifo.get(), shadow.size, shadow.align);
            ASSERT_NE(shadow.object, nullptr);
            ASSERT_TRUE(is_aligned(shadow.object, shadow.align));
            paint(shadow.object, shadow.size, shadow.tag);
            live.push_back(shadow);
        } else if (dice < 53) {
            Shadow &shadow = live[random.below(live.size())];
            size_t size = random.size(30 * kKiB);
            void *moved =
                cairn_fifo_realloc(fifo.get(), shadow.object, shadow.size, size, shadow.align);
            ASSERT_NE(moved, nullptr);
            ASSERT_TRUE(is_painted(moved, size < shadow.size ? size : shadow.size, shadow.tag));
            ASSERT_TRUE(is_aligned(moved, shadow.align));
            shadow.object = moved;
            shadow.size = size;
            paint(moved, size, shadow.tag);
        } else if (dice == 99 && random.below(20) == 0) {
            cairn_fifo_trim(fifo.get(), random.below(kMiB));
        }
        while (live.size() > most || (dice > 90 && !live.empty() && random.below(3) != 0)) {
            size_t which = random.below(10) != 0 ? 0 : random.below(live.size());
            check(live[which]);
            cairn_fifo_free(fifo.get(), live[which].object);
            live.erase(live.begin() + static_cast<ptrdiff_t>(which));
        }
    }
    for (const Shadow &shadow : live) {
        check(shadow);
        cairn_fifo_free(fifo.get(), shadow.object);
    }
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
}

TEST(FifoModel, RandomUse)
{
    // only one thread: ThreadSanitizer finds nothing here
    const uint64_t seeds = config_tsan ? 2 : 8;
    for (uint64_t seed = 1; seed <= seeds && !testing::Test::HasFatalFailure(); seed++)
        random_use(seed);
}

} // namespace fifo_test
