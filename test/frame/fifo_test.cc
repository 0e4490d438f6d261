// The FIFO: allocation, frees in any order, closing, misuse, and random use against a shadow.

#include "cairn/fifo.h"

#include <sys/wait.h>

#include <deque>
#include <memory>
#include <vector>

#include "frame/frame_kit.h"

namespace
{

using namespace frame_kit;

struct Close {
    void operator()(cairn_fifo *fifo) const { cairn_fifo_close(fifo); }
};
using Fifo = std::unique_ptr<cairn_fifo, Close>;

Fifo make(cairn_fifo_options options = {}) { return Fifo(cairn_fifo_new(&options)); }

cairn_fifo_stats stats(const Fifo &fifo)
{
    cairn_fifo_stats result;
    cairn_fifo_read_stats(fifo.get(), &result);
    return result;
}

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

TEST(Fifo, AQueueStaysInOneSegment)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs keep dead segments for long";
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

TEST(Fifo, DeleteRefusesWithLiveObjects)
{
    Fifo fifo = make();
    for (size_t size : {size_t{8}, 100 * kKiB, 3 * kMiB}) {
        void *object = cairn_fifo_alloc(fifo.get(), size, 8);
        paint(object, size, size);
        EXPECT_EQ(cairn_fifo_delete(fifo.get()), EBUSY);
        EXPECT_TRUE(is_painted(object, size, size));
        cairn_fifo_free(fifo.get(), object);
    }
    EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
    EXPECT_EQ(cairn_fifo_delete(nullptr), 0);
}

TEST(Fifo, CloseIsDeferredToTheLastFree)
{
    Fifo fifo = make();
    std::vector<void *> objects;
    for (size_t i = 0; i < 5000; i++) {
        objects.push_back(cairn_fifo_alloc(fifo.get(), 100, 8));
        paint(objects.back(), 100, i);
    }
    cairn_fifo *closed = fifo.release();
    cairn_fifo_close(closed);
    for (size_t i = 0; i < objects.size(); i++) {
        ASSERT_TRUE(is_painted(objects[i], 100, i));
        cairn_fifo_free(closed, objects[i]);
    }
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

TEST(Fifo, ChildOfForkOwnsWhatItsThreadOwned)
{
    Fifo fifo = make();
    void *object = cairn_fifo_alloc(fifo.get(), 1000, 8);
    paint(object, 1000, 1);
    pid_t child = fork();
    if (child == 0) {
        bool good = is_painted(object, 1000, 1);
        for (int i = 0; i < 10000; i++)
            good = good && cairn_fifo_alloc(fifo.get(), 100, 8) != nullptr;
        cairn_fifo_free(fifo.get(), object);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(is_painted(object, 1000, 1));
    cairn_fifo_free(fifo.get(), object);
}

TEST(Fifo, AdoptHandsOver)
{
    Fifo fifo = make();
    void *object = cairn_fifo_alloc(fifo.get(), 8, 8);
    in_thread([&] {
        cairn_fifo_adopt(fifo.get());
        cairn_fifo_free(fifo.get(), object);
        EXPECT_EQ(cairn_fifo_delete(fifo.release()), 0);
    });
}

// Misuse.

TEST(FifoDeathTest, ForeignPointer)
{
    Fifo fifo = make();
    Fifo other = make();
    void *object = cairn_fifo_alloc(other.get(), 8, 8);
    ignore(cairn_fifo_alloc(fifo.get(), 8, 8));
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object),
                      "fifo \"fifo\": free of " + hex(object) + ", which is not an object of it");
    cairn_fifo_free(other.get(), object);
}

TEST(FifoDeathTest, DoubleFreeThatTheAccountingShows)
{
    cairn_fifo_options options = {};
    options.name = "mine";
    Fifo fifo = make(options);
    void *keeps = cairn_fifo_alloc(fifo.get(), 8, 8);
    void *object = cairn_fifo_alloc(fifo.get(), 2000, 8);
    std::vector<void *> more;
    for (int i = 0; i < 10; i++) // its page is left
        more.push_back(cairn_fifo_alloc(fifo.get(), 2000, 8));
    cairn_fifo_free(fifo.get(), object);
    for (void *neighbour : {keeps, more[0], more[1]}) // all that began in its page
        cairn_fifo_free(fifo.get(), neighbour);
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object),
                      "fifo \"mine\": double free of " + hex(object));
    for (size_t i = 2; i < more.size(); i++)
        cairn_fifo_free(fifo.get(), more[i]);
}

TEST(FifoDeathTest, DoubleFreeInThePageBeingFilled)
{
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs find it at once";
    cairn_fifo_options options = {};
    options.name = "mine";
    Fifo fifo = make(options);
    void *object = cairn_fifo_alloc(fifo.get(), 2000, 8);
    void *page = reinterpret_cast<void *>(align_down(reinterpret_cast<uintptr_t>(object), 4096));
    EXPECT_DEATH_LINE(
        {
            cairn_fifo_free(fifo.get(), object);
            cairn_fifo_free(fifo.get(), object);
            ignore(cairn_fifo_alloc(fifo.get(), 8, 4096)); // leaves the page
        },
        "fifo \"mine\": more frees than objects in the page of " + hex(page));
    cairn_fifo_free(fifo.get(), object);
}

TEST(FifoDeathTest, WrongThread)
{
    Fifo fifo = make();
    void *object = cairn_fifo_alloc(fifo.get(), 8, 8);
    std::string line = "fifo \"fifo\": used by a thread that does not own it";
    EXPECT_DEATH_LINE(in_thread([&] { ignore(cairn_fifo_alloc(fifo.get(), 8, 8)); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_free(fifo.get(), object); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_trim(fifo.get(), 0); }), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_delete(fifo.get()); }), line);
    cairn_fifo_free(fifo.get(), object);
}

TEST(FifoDeathTest, AllocationAfterClose)
{
    Fifo fifo = make();
    void *object = cairn_fifo_alloc(fifo.get(), 8, 8);
    cairn_fifo *closed = fifo.release();
    cairn_fifo_close(closed);
    EXPECT_DEATH_LINE(ignore(cairn_fifo_alloc(closed, 8, 8)),
                      "fifo \"fifo\": allocation after close");
    cairn_fifo_free(closed, object);
}

TEST(FifoDeathTest, InteriorOfALargeObject)
{
    Fifo fifo = make();
    if (frame_checked())
        GTEST_SKIP() << "checked FIFOs look at the object's header first";
    auto *object = static_cast<char *>(cairn_fifo_alloc(fifo.get(), 100 * kKiB, 8));
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo.get(), object + 8),
                      "fifo \"fifo\": free of " + hex(object + 8) +
                          ", which is not an object of it");
    cairn_fifo_free(fifo.get(), object);
}

// Random use against a shadow: first in, first out for the most part, with survivors and strays.
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
    for (uint64_t seed = 1; seed <= 8 && !testing::Test::HasFatalFailure(); seed++)
        random_use(seed);
}

} // namespace
