// A FIFO's memory: survivors, spare segments, what goes back and when, refusals of the system.

#include <vector>

#include "cairn/fifo.h"
#include "frame/frame_kit.h"

namespace
{

using namespace frame_kit;

cairn_fifo_stats stats(const cairn_fifo *fifo)
{
    cairn_fifo_stats result;
    cairn_fifo_read_stats(fifo, &result);
    return result;
}

TEST(FifoSegment, SurvivorsHoldTheirPagesOnly)
{
    if (frame_checked())
        GTEST_SKIP() << "objects of checked FIFOs are larger";
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    constexpr size_t kObjects = 2000000;
    std::vector<void *> window(1000);
    std::vector<void *> survivors;
    for (size_t i = 0; i < kObjects; i++) {
        void *&place = window[i % window.size()];
        cairn_fifo_free(fifo, place);
        place = cairn_fifo_alloc(fifo, 8, 8);
        paint(place, 8, i);
        if (i % 4096 == 0) {
            survivors.push_back(place);
            place = nullptr;
        }
    }
    for (void *object : window)
        cairn_fifo_free(fifo, object);
    size_t held = stats(fifo).segment_bytes - stats(fifo).returned_bytes;
    EXPECT_LT(held, survivors.size() * 2 * 4096 + 8 * 64 * kKiB);
    for (size_t i = 0; i < survivors.size(); i++) {
        ASSERT_TRUE(is_painted(survivors[i], 8, i * 4096));
        cairn_fifo_free(fifo, survivors[i]);
    }
    EXPECT_EQ(stats(fifo).returned_bytes, 0u);
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
}

TEST(FifoSegment, ObjectsAcrossPagesSurviveTheirNeighbours)
{
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    std::vector<void *> objects;
    for (size_t i = 0; i < 4000; i++) {
        objects.push_back(cairn_fifo_alloc(fifo, 3000, 8));
        paint(objects.back(), 3000, i);
    }
    for (size_t i = 0; i < objects.size(); i++)
        if (i % 16 != 0)
            cairn_fifo_free(fifo, objects[i]);
    cairn_fifo_trim(fifo, 0);
    for (size_t i = 0; i < objects.size(); i += 16) {
        ASSERT_TRUE(is_painted(objects[i], 3000, i)) << i;
        cairn_fifo_free(fifo, objects[i]);
    }
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
}

void fill_and_drain(cairn_fifo *fifo, size_t bytes)
{
    std::vector<void *> objects;
    for (size_t done = 0; done < bytes; done += 1000) {
        objects.push_back(cairn_fifo_alloc(fifo, 1000, 8));
        ASSERT_NE(objects.back(), nullptr);
        memset(objects.back(), 1, 1000);
    }
    for (void *object : objects)
        cairn_fifo_free(fifo, object);
}

TEST(FifoSegment, TrimGivesBack)
{
    size_t before = resident_bytes();
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    fill_and_drain(fifo, 50 * kMiB);
    EXPECT_GT(stats(fifo).spare_bytes, 49 * kMiB);
    cairn_fifo_trim(fifo, 10 * kMiB);
    EXPECT_LE(stats(fifo).spare_bytes, 10 * kMiB);
    cairn_fifo_trim(fifo, 0);
    EXPECT_EQ(stats(fifo).spare_bytes, 0u);
    EXPECT_LE(stats(fifo).reserved_bytes, 4 * kMiB);
    if (measures_memory()) {
        EXPECT_LT(resident_bytes(), before + 2 * kMiB);
    }
    fill_and_drain(fifo, 5 * kMiB);
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
}

TEST(FifoSegment, UnneededSegmentsGoBack)
{
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    fill_and_drain(fifo, 50 * kMiB);
    for (int interval = 0; interval < 3; interval++) {
        os_sleep_ms(FRAME_DECAY_MS + 50);
        fill_and_drain(fifo, 300 * kKiB);
    }
    EXPECT_LT(stats(fifo).spare_bytes, 2 * kMiB);
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
}

TEST(FifoSegment, EveryRefusalOfTheSystemIsSurvived)
{
    for_each_failure([] {
        cairn_fifo *fifo = cairn_fifo_new(nullptr);
        if (fifo == nullptr)
            return false;
        bool worked = true;
        std::vector<std::pair<void *, size_t>> objects;
        for (size_t size : {8, 5000, 100000, 3000000, 15000, 200, 60000}) {
            void *object = cairn_fifo_alloc(fifo, size, 8);
            worked = worked && object != nullptr;
            if (object != nullptr) {
                paint(object, size, size);
                objects.emplace_back(object, size);
            }
        }
        for (auto [object, size] : objects) {
            EXPECT_TRUE(is_painted(object, size, size));
            cairn_fifo_free(fifo, object);
        }
        cairn_fifo_trim(fifo, 0);
        end_failures();
        fill_and_drain(fifo, 3 * kMiB);
        EXPECT_EQ(cairn_fifo_delete(fifo), 0);
        return worked;
    });
}

} // namespace
