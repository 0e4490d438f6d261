// The memory of a FIFO: survivors, spare segments, purging, and refusals by the system.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "cairn/fifo.h"
#include "frame/frame_kit.h"
#include "os/resident.h"

extern "C" {
#include "os/memory.h"
#include "os/process.h"
}

namespace fifo_pages_test
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

// Resident bytes of the 64 KiB segment that contains the address.
size_t resident_of_segment(const void *address)
{
    uintptr_t start = align_down(reinterpret_cast<uintptr_t>(address), 64 * kKiB);
    return resident_in(reinterpret_cast<void *>(start), 64 * kKiB);
}

// When the last survivor of a segment dies whose dead pages were purged, the survivor's own page is
// purged as well or counted as spare.
TEST(FifoSegment, TheLastSurvivorsPagesGoBackOrAreCounted)
{
    if (!measures_memory())
        GTEST_SKIP() << "checked FIFOs use other amounts of memory";
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    std::vector<char *> objects;
    for (int i = 0; i < 300; i++) {
        objects.push_back(static_cast<char *>(cairn_fifo_alloc(fifo, 3000, 8)));
        memset(objects.back(), 1, 3000);
    }
    char *survivor = objects[150];
    for (char *object : objects)
        if (object != survivor)
            cairn_fifo_free(fifo, object);
    cairn_fifo_trim(fifo, 0);
    EXPECT_EQ(stats(fifo).spare_bytes, 0u);
    size_t held = resident_of_segment(survivor);
    EXPECT_GT(held, 0u);
    EXPECT_LE(held, 2 * os_page_size());
    cairn_fifo_free(fifo, survivor);
    EXPECT_LE(resident_of_segment(survivor), stats(fifo).spare_bytes);
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
}

// A page into which a live object reaches is not purged and not counted so, and the pages around it
// that have only dead objects are.
TEST(FifoSegment, DeadPagesAroundAnObjectOfTwoPagesAreCountedAsTheyAre)
{
    if (!measures_memory() || os_page_size() != 4096)
        GTEST_SKIP() << "checked FIFOs use other amounts of memory";
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    std::vector<char *> objects;
    char *first = static_cast<char *>(cairn_fifo_alloc(fifo, 4096, 4096));
    for (int i = 0; i < 300; i++) {
        objects.push_back(static_cast<char *>(cairn_fifo_alloc(fifo, 6000, 8)));
        memset(objects.back(), 1, 6000);
    }
    // In the second segment, a surviving object begins in one page and reaches into the next, where
    // another object begins that reaches into a third page.
    size_t at = 20;
    while (reinterpret_cast<uintptr_t>(objects[at]) / 4096 + 1 !=
               reinterpret_cast<uintptr_t>(objects[at + 1]) / 4096 ||
           resident_of_segment(objects[at + 2]) == 0)
        at++;
    cairn_fifo_free(fifo, first);
    for (size_t i = 0; i < objects.size(); i++)
        if (i != at && i != at + 1)
            cairn_fifo_free(fifo, objects[i]);
    cairn_fifo_trim(fifo, 0);
    for (int last = 0; last < 2; last++) {
        size_t busy = stats(fifo).segment_bytes - stats(fifo).returned_bytes;
        size_t current = 0; // the segment being filled is not purged
        EXPECT_EQ(resident_of_segment(objects[at]) + current,
                  busy - (stats(fifo).segment_bytes - 64 * kKiB))
            << last;
        if (last == 0)
            cairn_fifo_free(fifo, objects[at + 1]);
    }
    cairn_fifo_free(fifo, objects[at]);
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
}

// Locked memory cannot be purged: it stays counted as spare, and the purge does not loop for ever.
TEST(FifoSegment, WhatTheSystemRefusesToTakeStaysCounted)
{
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    std::vector<void *> objects;
    for (int i = 0; i < 300; i++) {
        objects.push_back(cairn_fifo_alloc(fifo, 3000, 8));
        memset(objects.back(), 1, 3000);
    }
    uintptr_t start = align_down(reinterpret_cast<uintptr_t>(objects[0]), 64 * kKiB);
    // The system call is made directly: mlock of the sanitizers does nothing.
    if (syscall(SYS_mlock, start, 512 * kKiB) != 0)
        GTEST_SKIP() << "memory cannot be locked here";
    void *keeps = objects.back();
    objects.pop_back();
    for (void *object : objects)
        cairn_fifo_free(fifo, object);
    size_t spare = stats(fifo).spare_bytes;
    EXPECT_LT(cairn_fifo_trim(fifo, 0), spare);
    EXPECT_GE(stats(fifo).spare_bytes, 512 * kKiB);
    EXPECT_EQ(syscall(SYS_munlock, start, 512 * kKiB), 0);
    EXPECT_GE(cairn_fifo_trim(fifo, 0), 512 * kKiB);
    EXPECT_EQ(stats(fifo).spare_bytes, 0u);
    cairn_fifo_free(fifo, keeps);
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

} // namespace fifo_pages_test
