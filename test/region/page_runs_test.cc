// cairn/pages.h: mapping, unmapping of any part, remapping, zero bytes, threads, misuse.

#include <sys/wait.h>

#include <vector>

#include "cairn/pages.h"
#include "frame/frame_kit.h"
#include "os/resident.h"

namespace page_runs_test
{

using namespace frame_kit;

constexpr size_t kPage = 4096;

char *map(size_t size, size_t align = kPage, unsigned flags = 0)
{
    return static_cast<char *>(cairn_pages_map(size, align, flags));
}

bool all_zero(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

TEST(Pages, SizesAndAlignments)
{
    std::vector<std::pair<char *, size_t>> runs;
    for (size_t size : {size_t{1}, kPage, 3 * kPage + 1, kMiB, 40 * kMiB})
        for (size_t align = 1; align <= 16 * kMiB; align *= 4) {
            char *run = map(size, align);
            ASSERT_NE(run, nullptr);
            ASSERT_TRUE(is_aligned(run, align < kPage ? kPage : align));
            run[0] = run[size - 1] = 1;
            runs.emplace_back(run, size);
        }
    for (auto [run, size] : runs)
        EXPECT_EQ(cairn_pages_unmap(run, size), 0);
}

TEST(Pages, RefusesWhatCannotBe)
{
    for (size_t size : {SIZE_MAX, size_t{PTRDIFF_MAX}, size_t{1} << 50}) {
        errno = 0;
        EXPECT_EQ(map(size), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    errno = 0;
    EXPECT_EQ(map(10, 5000), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

// Unknown flags are refused, since a program could not see that they were ignored.
TEST(Pages, RefusesFlagsThatItDoesNotKnow)
{
    const unsigned all = CAIRN_PAGES_ZERO | CAIRN_PAGES_HUGE | CAIRN_PAGES_POPULATE;
    char *run = map(kPage, kPage, all);
    ASSERT_NE(run, nullptr);
    for (unsigned flag = all + 1; flag != 0; flag <<= 1) {
        errno = 0;
        EXPECT_EQ(map(kPage, kPage, flag), nullptr);
        EXPECT_EQ(errno, EINVAL);
        errno = 0;
        EXPECT_EQ(cairn_pages_remap(run, kPage, 2 * kPage, kPage, flag | CAIRN_PAGES_ZERO),
                  nullptr);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_EQ(cairn_pages_remap(nullptr, 0, kPage, kPage, flag), nullptr);
    }
    EXPECT_EQ(cairn_pages_unmap(run, kPage), 0);
}

TEST(Pages, ZeroIsZeroAlsoWhenUsedBefore)
{
    for (size_t size : {kPage, 10 * kPage, 50 * kMiB})
        for (int round = 0; round < 3; round++) {
            char *run = map(size, kPage, CAIRN_PAGES_ZERO | (round ? CAIRN_PAGES_POPULATE : 0));
            ASSERT_TRUE(all_zero(run, size));
            memset(run, 1, size);
            EXPECT_EQ(cairn_pages_unmap(run, size), 0);
        }
}

TEST(Pages, AnyPartCanGo)
{
    for (size_t pages :
         {size_t{64}, 40 * kMiB / kPage}) { // a run of an arena, and a mapping of its own
        char *run = map(pages * kPage);
        for (size_t i = 0; i < pages; i++)
            paint(run + i * kPage, 64, i);
        EXPECT_EQ(cairn_pages_unmap(run + 10 * kPage, 5 * kPage), 0); // the middle
        EXPECT_EQ(cairn_pages_unmap(run, 2 * kPage), 0);              // the start
        EXPECT_EQ(cairn_pages_unmap(run + (pages - 3) * kPage, 3 * kPage), 0);
        std::vector<char *> others;
        for (int i = 0; i < 20; i++) {
            others.push_back(map(kPage));
            memset(others.back(), 0xff, kPage);
        }
        for (size_t i = 2; i < pages - 3; i++)
            if (i < 10 || i >= 15) {
                ASSERT_TRUE(is_painted(run + i * kPage, 64, i)) << i;
            }
        EXPECT_EQ(cairn_pages_unmap(run + 2 * kPage, 8 * kPage), 0);
        EXPECT_EQ(cairn_pages_unmap(run + 15 * kPage, (pages - 18) * kPage), 0);
        for (char *other : others)
            EXPECT_EQ(cairn_pages_unmap(other, kPage), 0);
    }
    pages_verify();
}

TEST(Pages, OneUnmapEndsSeveralPartsSideBySide)
{
    char *run = map(16 * kPage);
    memset(run, 1, 16 * kPage);
    EXPECT_EQ(cairn_pages_unmap(run + 4 * kPage, kPage), 0);
    char *again = map(kPage);
    if (again == run + 4 * kPage) { // almost always
        EXPECT_EQ(cairn_pages_unmap(run, 16 * kPage), 0);
    } else {
        EXPECT_EQ(cairn_pages_unmap(run, 4 * kPage), 0);
        EXPECT_EQ(cairn_pages_unmap(run + 5 * kPage, 11 * kPage), 0);
        EXPECT_EQ(cairn_pages_unmap(again, kPage), 0);
    }
    pages_verify();
}

TEST(Pages, RemapKeepsContents)
{
    char *run = nullptr;
    size_t old_size = 0;
    for (size_t size :
         {kPage, 3 * kPage, 100 * kPage, 50 * kMiB, 80 * kMiB, 45 * kMiB, 2 * kMiB, kPage}) {
        run = static_cast<char *>(cairn_pages_remap(run, old_size, size, kPage, CAIRN_PAGES_ZERO));
        ASSERT_NE(run, nullptr);
        for (size_t i = 0; i < size; i += kPage) {
            ASSERT_EQ(run[i + 7], i < old_size ? static_cast<char>(i / kPage) : 0) << size;
            run[i + 7] = static_cast<char>(i / kPage);
        }
        old_size = size;
    }
    EXPECT_EQ(cairn_pages_remap(run, kPage, SIZE_MAX / 4, kPage, 0), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(cairn_pages_unmap(run, kPage), 0);
}

TEST(Pages, PartsCanBeRemapped)
{
    char *run = map(10 * kPage);
    for (size_t i = 0; i < 10; i++)
        paint(run + i * kPage, 64, i);
    char *moved =
        static_cast<char *>(cairn_pages_remap(run + 3 * kPage, 2 * kPage, 20 * kPage, kPage, 0));
    ASSERT_NE(moved, nullptr);
    EXPECT_TRUE(is_painted(moved + kPage, 64, 4));
    EXPECT_TRUE(is_painted(run + 9 * kPage, 64, 9));
    EXPECT_EQ(cairn_pages_unmap(run, 3 * kPage), 0);
    EXPECT_EQ(cairn_pages_unmap(run + 5 * kPage, 5 * kPage), 0);
    EXPECT_EQ(cairn_pages_unmap(moved, 20 * kPage), 0);
}

// A run that could not shrink must not report success: the rest would stay mapped without an owner.
TEST(Pages, RefusedShrinkIsRefusedOrMoves)
{
    char *run = map(10 * kPage);
    for (size_t i = 0; i < 10; i++)
        paint(run + i * kPage, 64, i);
    char *moved = nullptr;
    pages_freeze(); // as if another thread forked: no run can be split
    std::thread([&] {
        EXPECT_EQ(cairn_allocator_resize(cairn_pages_allocator(), run, 10 * kPage, 3 * kPage),
                  nullptr);
        for (size_t i = 0; i < 10; i++)
            EXPECT_TRUE(is_painted(run + i * kPage, 64, i)) << i;
        moved = static_cast<char *>(cairn_pages_remap(run, 10 * kPage, 3 * kPage, kPage, 0));
    }).join();
    pages_thaw();
    ASSERT_NE(moved, nullptr);
    for (size_t i = 0; i < 3; i++)
        EXPECT_TRUE(is_painted(moved + i * kPage, 64, i)) << i;
    EXPECT_EQ(cairn_pages_unmap(moved, 3 * kPage), 0);
    for (size_t i = 0; i < 10; i++)
        EXPECT_NE(page_map_find(run + i * kPage)->tag, SPAN_RUN) << i;
    pages_verify();
}

TEST(Pages, PurgeGivesBack)
{
    size_t before = resident_bytes();
    char *run = map(30 * kMiB);
    memset(run, 1, 30 * kMiB);
    EXPECT_EQ(cairn_pages_unmap(run, 30 * kMiB), 0);
    cairn_pages_purge(0);
    if (measures_memory()) {
        EXPECT_LT(resident_bytes(), before + 2 * kMiB);
    }
    EXPECT_FALSE(cairn_pages_purge(0));
}

TEST(Pages, ThreadsNeverShareAPage)
{
    std::vector<std::thread> threads;
    for (uint64_t id = 0; id < 16; id++)
        threads.emplace_back([id] {
            Random random(id + 1);
            for (int i = 0; i < 2000; i++) {
                size_t size = random.below(4) ? kPage : kPage * (1 + random.below(20));
                char *run = map(size);
                ASSERT_NE(run, nullptr);
                paint(run, 64, id);
                paint(run + size - 64, 64, id + 1);
                std::this_thread::yield();
                ASSERT_TRUE(is_painted(run, 64, id));
                ASSERT_TRUE(is_painted(run + size - 64, 64, id + 1));
                ASSERT_EQ(cairn_pages_unmap(run, size), 0);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    pages_verify();
}

TEST(Pages, ChildOfForkHasThem)
{
    char *run = map(10 * kPage);
    paint(run, 64, 1);
    pid_t child = fork();
    if (child == 0) {
        bool good = is_painted(run, 64, 1) && cairn_pages_unmap(run, 10 * kPage) == 0 &&
                    map(kPage) != nullptr;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cairn_pages_unmap(run, 10 * kPage), 0);
}

TEST(Pages, EveryRefusalOfTheSystemIsSurvived)
{
    for_each_failure([] {
        bool worked = true;
        std::vector<std::pair<char *, size_t>> runs;
        for (size_t size : {kPage, 100 * kPage, 10 * kMiB, 40 * kMiB}) {
            char *run = map(size);
            worked = worked && run != nullptr;
            if (run != nullptr)
                runs.emplace_back(run, size);
        }
        for (auto &[run, size] : runs) {
            void *moved = cairn_pages_remap(run, size, 2 * size, kPage, 0);
            worked = worked && moved != nullptr;
            if (moved != nullptr) {
                run = static_cast<char *>(moved);
                size *= 2;
            }
            run[size - 1] = 1;
        }
        end_failures();
        for (auto &[run, size] : runs)
            EXPECT_EQ(cairn_pages_unmap(run, size), 0);
        cairn_pages_purge(0);
        return worked;
    });
}

// The alignment is kept also when the size does not change, and when a run grows in place.
TEST(Pages, RemapAlignsAlsoInPlace)
{
    for (size_t new_pages : {size_t{2}, size_t{1}, size_t{40}}) {
        std::vector<char *> runs;
        do {
            runs.push_back(map(2 * kPage));
            ASSERT_NE(runs.back(), nullptr);
        } while (is_aligned(runs.back(), 64 * kKiB));
        paint(runs.back(), 64, 1);
        void *aligned = cairn_pages_remap(runs.back(), 2 * kPage, new_pages * kPage, 64 * kKiB, 0);
        EXPECT_TRUE(is_aligned(aligned, 64 * kKiB)) << new_pages;
        EXPECT_TRUE(is_painted(aligned, 64, 1));
        EXPECT_EQ(cairn_pages_unmap(aligned, new_pages * kPage), 0);
        runs.pop_back();
        for (char *run : runs)
            EXPECT_EQ(cairn_pages_unmap(run, 2 * kPage), 0);
    }
}

// The new part of a run that grew in place is populated, too.
TEST(Pages, RemapPopulatesWhatIsNew)
{
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user ignores MADV_POPULATE_WRITE";
    for (size_t size : {2 * kMiB, 40 * kMiB}) {
        char *run = map(size);
        void *grown = cairn_pages_remap(run, size, 2 * size, kPage, CAIRN_PAGES_POPULATE);
        ASSERT_NE(grown, nullptr);
        EXPECT_EQ(resident_in(static_cast<char *>(grown) + size, size), size);
        EXPECT_EQ(cairn_pages_unmap(grown, 2 * size), 0);
        cairn_pages_purge(0);
    }
}

TEST(Pages, UnmapIgnoresNull)
{
    EXPECT_EQ(cairn_pages_unmap(nullptr, kPage), 0);
    EXPECT_EQ(cairn_pages_unmap(nullptr, SIZE_MAX), 0);
}

// A size that wraps around is misuse, and a remap of more than is mapped reads nothing beyond the
// run.
TEST(PagesDeathTest, RangesBeyondWhatIsMapped)
{
    char *run = map(10 * kPage);
    for (size_t size : {SIZE_MAX, SIZE_MAX - 2 * kPage, size_t{PTRDIFF_MAX}}) {
        std::string line = "pages: unmap of " + std::to_string(size) + " bytes at " + hex(run) +
                           ", more than cairn_pages_map gives";
        EXPECT_DEATH_LINE(cairn_pages_unmap(run, size), line);
        EXPECT_DEATH_LINE(ignore(cairn_pages_remap(run, size, kPage, kPage, 0)), line);
    }
    EXPECT_EQ(cairn_pages_unmap(run + 8 * kPage, 2 * kPage), 0);
    EXPECT_DEATH_LINE(ignore(cairn_pages_remap(run, 10 * kPage, 20 * kPage, kPage, 0)),
                      "pages: unmap of " + hex(run + 8 * kPage) +
                          ", which is not mapped by cairn_pages_map");
    EXPECT_EQ(cairn_pages_unmap(run, 8 * kPage), 0);
}

// A part of whole pages may be unmapped; a part of a page may not, since the rest of that page is
// in use.
TEST(PagesDeathTest, UnmapOfAPartOfAPage)
{
    for (size_t pages : {size_t{10}, 40 * kMiB / kPage}) {
        const size_t size = pages * kPage - 100;
        char *run = map(size);
        for (char *start : {run + 1, run + 100, run + 3 * kPage - 8})
            EXPECT_DEATH_LINE(cairn_pages_unmap(start, kPage),
                              "pages: unmap of " + hex(start) + ", which is inside a page");
        for (size_t part : {size_t{0}, size_t{1}, size_t{100}, 3 * kPage + 1, size - kPage})
            EXPECT_DEATH_LINE(cairn_pages_unmap(run, part),
                              "pages: unmap of " + std::to_string(part) + " bytes at " + hex(run) +
                                  ", which end inside a page of a longer run");
        EXPECT_DEATH_LINE(ignore(cairn_pages_remap(run, 100, 2 * kPage, kPage, 0)),
                          "pages: unmap of 100 bytes at " + hex(run) +
                              ", which end inside a page of a longer run");
        EXPECT_EQ(cairn_pages_unmap(run, 2 * kPage), 0);
        // the last page is in part
        EXPECT_EQ(cairn_pages_unmap(run + 2 * kPage, size - 2 * kPage), 0);
    }
}

// A block of the allocator is a whole run.
TEST(PagesDeathTest, TheAllocatorFreesWholeRuns)
{
    const cairn_allocator pages = cairn_pages_allocator();
    for (size_t size : {10 * kPage, 40 * kMiB}) {
        char *run = static_cast<char *>(cairn_allocator_alloc(pages, size - 1, kPage));
        const std::string tail = " (" + std::to_string(size) + "-byte run at " + hex(run) + ")";
        for (size_t wrong : {size_t{0}, kPage, size - kPage, size + 1})
            EXPECT_DEATH_LINE(cairn_allocator_free(pages, run, wrong),
                              "pages: free of " + std::to_string(wrong) + " bytes at " + hex(run) +
                                  tail);
        EXPECT_DEATH_LINE(cairn_allocator_free(pages, run + kPage, size - kPage),
                          "pages: free of " + std::to_string(size - kPage) + " bytes at " +
                              hex(run + kPage) + tail);
        cairn_allocator_free(pages, run, size - 1);
    }
}

TEST(PagesDeathTest, UnmapOfWhatIsNotMapped)
{
    char *run = map(10 * kPage);
    static char foreign[1];
    auto line = [](const void *pointer) {
        return "pages: unmap of " + hex(pointer) + ", which is not mapped by cairn_pages_map";
    };
    auto *page = reinterpret_cast<char *>(align_down(reinterpret_cast<uintptr_t>(foreign), kPage));
    EXPECT_DEATH_LINE(cairn_pages_unmap(foreign, 1), line(page));
    EXPECT_EQ(cairn_pages_unmap(run + 5 * kPage, kPage), 0);
    EXPECT_DEATH_LINE(cairn_pages_unmap(run + 5 * kPage, kPage), line(run + 5 * kPage));
    EXPECT_DEATH_LINE(ignore(cairn_pages_remap(run + 5 * kPage, kPage, 2 * kPage, kPage, 0)),
                      line(run + 5 * kPage));
    EXPECT_EQ(cairn_pages_unmap(run, 5 * kPage), 0);
    EXPECT_EQ(cairn_pages_unmap(run + 6 * kPage, 4 * kPage), 0);
}

} // namespace page_runs_test
