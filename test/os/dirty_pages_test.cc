// Written pages of a private file mapping: each kind of query finds exactly the pages that were
// written.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>

extern "C" {
#include "os/dirty_pages.h"
#include "os/file.h"
#include "os/memory.h"
}

namespace dirty_pages_test
{

constexpr size_t kPages = 600;

class Written : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_ = os_page_size();
        std::string path = testing::TempDir() + "written_XXXXXX";
        file_ = mkstemp(path.data());
        ASSERT_GE(file_, 0);
        unlink(path.c_str());
        ASSERT_EQ(ftruncate(file_, static_cast<off_t>(kPages * page_)), 0);
        start_ = static_cast<char *>(os_reserve(kPages * page_));
        ASSERT_EQ(os_file_map(file_, 0, start_, kPages * page_, OS_WRITE), 0);
        pagemap_ = os_pagemap_open();
        ASSERT_GE(pagemap_, 0);
    }
    void TearDown() override
    {
        os_unmap(start_, kPages * page_);
        os_file_close(file_);
        os_file_close(pagemap_);
        os_file_close(userfault_);
    }

    // Watches the pages by userfaultfd.
    // Returns: false when this kernel does not support it.
    bool watch()
    {
        userfault_ = os_userfault_open();
        return userfault_ >= 0 && os_userfault_watch(userfault_, start_, kPages * page_) == 0;
    }
    bool has_scan()
    {
        os_page_range range;
        uintptr_t from = reinterpret_cast<uintptr_t>(start_);
        return os_pagemap_scan(pagemap_, &from, from + page_, OS_SCAN_COPIES, &range, 1) >= 0;
    }

    template <typename Look> std::set<size_t> collect(unsigned capacity, Look look)
    {
        std::set<size_t> pages;
        os_page_range ranges[400];
        const uintptr_t start = reinterpret_cast<uintptr_t>(start_);
        const uintptr_t end = start + kPages * page_;
        uintptr_t from = start;
        while (from < end) {
            const int found = look(&from, end, ranges, capacity);
            EXPECT_GE(found, 0);
            if (found < 0)
                break;
            for (int i = 0; i < found; i++)
                for (uint64_t at = ranges[i].start;
                     at < ranges[i].end && !(ranges[i].categories & OS_PAGE_OF_FILE); at += page_)
                    EXPECT_TRUE(pages.insert((at - start) / page_).second);
        }
        return pages;
    }
    std::set<size_t> scan(os_scan kind, unsigned capacity = 400)
    {
        return collect(capacity, [&](auto *from, auto end, auto *ranges, auto room) {
            return os_pagemap_scan(pagemap_, from, end, kind, ranges, room);
        });
    }
    std::set<size_t> read_map()
    {
        return collect(400, [&](auto *from, auto end, auto *ranges, auto room) {
            return os_pagemap_read(pagemap_, from, end, ranges, room);
        });
    }

    void write(size_t page, char value = 1) { start_[page * page_ + 5] = value; }
    char read(size_t page) { return static_cast<volatile char *>(start_)[page * page_ + 5]; }

    size_t page_ = 0;
    char *start_ = nullptr;
    int file_ = -1;
    int pagemap_ = -1;
    int userfault_ = -1;
};

TEST_F(Written, CopiedPagesAreFoundBothWays)
{
    for (size_t page = 0; page < kPages; page += 2)
        (void)read(page);
    for (size_t page : {3, 4, 5, 100, 512, 599})
        write(page);
    const std::set<size_t> expected = {3, 4, 5, 100, 512, 599};
    EXPECT_EQ(read_map(), expected);
    if (!has_scan())
        GTEST_SKIP() << "PAGEMAP_SCAN is not supported";
    EXPECT_EQ(scan(OS_SCAN_COPIES), expected);
    EXPECT_EQ(scan(OS_SCAN_COPIES, 1), expected) << "one range at a time";
    EXPECT_EQ(scan(OS_SCAN_COPIES), expected) << "a scan changes nothing";
}

TEST_F(Written, DroppedPagesAreTheFilesAgain)
{
    write(7);
    ASSERT_EQ(os_purge(start_ + 7 * page_, page_), 0);
    EXPECT_EQ(read_map(), std::set<size_t>{});
    EXPECT_EQ(read(7), 0);
    if (has_scan()) {
        EXPECT_EQ(scan(OS_SCAN_COPIES), std::set<size_t>{});
    }
}

TEST_F(Written, WatchedPagesAreFoundOnceForEachTimeTheyWereWritten)
{
    if (!has_scan() || !watch())
        GTEST_SKIP() << "userfaultfd does not protect asynchronously";
    using Pages = std::set<size_t>;
    (void)read(1);
    write(2);
    write(3);
    EXPECT_EQ(scan(OS_SCAN_FIRST), (Pages{2, 3}));
    EXPECT_EQ(scan(OS_SCAN_FIRST), Pages{});
    write(3, 2);
    (void)read(2);
    EXPECT_EQ(scan(OS_SCAN_FIRST), Pages{3});
    write(1);
    EXPECT_EQ(scan(OS_SCAN_FIRST, 1), Pages{1});
    // The pages are dropped, then read and written again.
    ASSERT_EQ(os_purge(start_, 8 * page_), 0);
    EXPECT_EQ(scan(OS_SCAN_FIRST), Pages{});
    EXPECT_EQ(read(2), 0);
    EXPECT_EQ(scan(OS_SCAN_FIRST), Pages{});
    write(2, 7);
    write(3, 8);
    EXPECT_EQ(scan(OS_SCAN_FIRST), (Pages{2, 3}));
    EXPECT_EQ(read(2), 7);
    write(2, 9);
    EXPECT_EQ(scan(OS_SCAN_FIRST), Pages{2});
}

// Once empty entries are protected as well, the fast scan finds exactly the written pages.
TEST_F(Written, ArmedPagesAreFoundOnceForEachTimeTheyWereWritten)
{
    if (!has_scan() || !watch())
        GTEST_SKIP() << "userfaultfd does not protect asynchronously";
    using Pages = std::set<size_t>;
    (void)read(1);
    write(2);
    EXPECT_EQ(scan(OS_SCAN_FIRST), Pages{2});
    write(3);
    EXPECT_GT(scan(OS_SCAN_EMPTY, 1).size(), kPages / 2);
    EXPECT_EQ(scan(OS_SCAN_AGAIN, 1), Pages{3})
        << "the page was written before the rest was protected";
    EXPECT_EQ(scan(OS_SCAN_AGAIN), Pages{});
    (void)read(1);
    (void)read(4);
    (void)read(599);
    EXPECT_EQ(scan(OS_SCAN_AGAIN), Pages{});
    write(2);
    write(4);
    write(598);
    EXPECT_EQ(scan(OS_SCAN_AGAIN), (Pages{2, 4, 598}));
    ASSERT_EQ(os_purge(start_, 8 * page_), 0);
    EXPECT_EQ(scan(OS_SCAN_AGAIN), Pages{});
    (void)read(2);
    EXPECT_EQ(scan(OS_SCAN_AGAIN), Pages{});
    write(2);
    EXPECT_EQ(scan(OS_SCAN_AGAIN), Pages{2});
}

TEST_F(Written, WatchedPagesSwappedOutAreFound)
{
    if (!has_scan() || !watch())
        GTEST_SKIP() << "userfaultfd does not protect asynchronously";
    for (size_t page = 0; page < kPages; page++)
        write(page);
    (void)madvise(start_, kPages * page_, MADV_PAGEOUT); // has an effect only where there is swap
    EXPECT_EQ(scan(OS_SCAN_FIRST).size(), kPages);
    (void)madvise(start_, kPages * page_, MADV_PAGEOUT);
    EXPECT_EQ(scan(OS_SCAN_FIRST).size(), 0u);
    write(11, 3);
    EXPECT_EQ(scan(OS_SCAN_FIRST), std::set<size_t>{11});
}

TEST_F(Written, ErrorsAreReturned)
{
    os_page_range range;
    uintptr_t from = reinterpret_cast<uintptr_t>(start_);
    EXPECT_LT(os_pagemap_scan(file_, &from, from + page_, OS_SCAN_COPIES, &range, 1), 0);
    EXPECT_EQ(from, reinterpret_cast<uintptr_t>(start_));
    EXPECT_LT(os_userfault_watch(file_, start_, page_), 0);
}

} // namespace dirty_pages_test
