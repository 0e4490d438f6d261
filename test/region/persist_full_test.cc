// A disk that the log fills: the heap's file has its space before the log grows, so commits end
// with ENOSPC, and recovery, a checkpoint and a close need no space.

#include <unistd.h>

#include <map>
#include <set>

#include "region/persist_kit.h"

extern "C" {
#include "os/file.h"
#include "os/memory.h"
}

namespace persist_full_test
{

using namespace persist;

// A disk of a limited number of pages. A file is known by the end of its name, so a copy has the
// pages of its original.
struct Disk {
    std::map<std::string, std::set<uint64_t>> pages;
    size_t most = SIZE_MAX;

    size_t used() const
    {
        size_t sum = 0;
        for (const auto &[name, own] : pages)
            sum += own.size();
        return sum;
    }
    bool take(const std::string &name, uint64_t offset, uint64_t bytes)
    {
        for (uint64_t page = offset / 4096; page * 4096 < offset + bytes; page++) {
            if (pages[name].count(page) == 0 && used() == most)
                return false;
            pages[name].insert(page);
        }
        return true;
    }
    void release(const std::string &name, uint64_t offset, uint64_t bytes)
    {
        std::set<uint64_t> &own = pages[name];
        own.erase(own.lower_bound((offset + 4095) / 4096),
                  own.lower_bound((offset + bytes) / 4096));
    }
} g_disk;

std::string name_of(int file)
{
    char path[512] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    if (readlink(link.c_str(), path, sizeof path - 1) < 0)
        return "";
    const std::string name = path;
    const size_t at = name.rfind(".log");
    return at == std::string::npos ? "heap" : name.substr(at);
}

int watch(os_file_call call, int file, uint64_t offset, const void *, size_t *size)
{
    const std::string name = name_of(file);
    bool good = true;
    switch (call) {
    case OS_CALL_WRITE:
    case OS_CALL_RESERVE:
        good = g_disk.take(name, offset, *size);
        break;
    case OS_CALL_EXTEND:
        good = g_disk.take(name, 0, offset);
        break;
    case OS_CALL_TRUNCATE:
        g_disk.release(name, offset, uint64_t{1} << 40);
        break;
    case OS_CALL_PUNCH:
        g_disk.release(name, offset, *size);
        break;
    default:
        break;
    }
    return good ? 0 : -ENOSPC;
}

class FullDisk : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_debug)
            GTEST_SKIP() << "faults are injected in debug builds";
        g_disk = Disk();
        os_file_watch(watch);
        page_ = os_page_size();
        ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
        block_ = allocate(heap_, kPages * page_, page_);
        ASSERT_EQ(cairn_persist_set_root(heap_, "block", block_), 0);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
    }
    void TearDown() override
    {
        os_file_watch(nullptr);
        cairn_persist_close(heap_);
    }

    // Commits one new page after the other until the disk is full, and returns their number.
    size_t fill(size_t room)
    {
        g_disk.most = g_disk.used() + room;
        for (size_t i = 0; i < kPages; i++) {
            memset(block_ + i * page_, static_cast<int>(i + 1), page_);
            const int error = cairn_persist_commit(heap_);
            if (error != 0) {
                EXPECT_EQ(error, ENOSPC);
                EXPECT_EQ(g_disk.used(), g_disk.most);
                return i;
            }
        }
        ADD_FAILURE() << "the disk did not become full";
        return 0;
    }
    void expect_pages(cairn_persist *heap, size_t count) const
    {
        const char *found = static_cast<char *>(cairn_persist_get_root(heap, "block"));
        ASSERT_NE(found, nullptr);
        for (size_t i = 0; i < kPages; i++)
            ASSERT_EQ(found[i * page_], static_cast<char>(i < count ? i + 1 : 0)) << i;
    }

    static constexpr size_t kPages = 150;
    Directory directory_;
    cairn_persist *heap_ = nullptr;
    char *block_ = nullptr;
    size_t page_ = 0;
};

TEST_F(FullDisk, RecoveryNeedsNoSpace)
{
    for (size_t room : {40, 41, 57}) {
        const size_t count = fill(room);
        EXPECT_GT(count, 0U);
        copy_files(directory_.file(), directory_.file("copy"));
        const Disk before = g_disk;
        const char *why = "";
        cairn_persist *copy = open_heap(directory_.file("copy"), Options(), &why);
        EXPECT_NE(copy, nullptr) << why;
        if (copy != nullptr) {
            expect_pages(copy, count);
            cairn_persist_close(copy);
        }
        g_disk = before;
        if (HasFailure())
            return;
    }
}

TEST_F(FullDisk, ACheckpointNeedsNoSpace)
{
    const size_t count = fill(50);
    ASSERT_EQ(cairn_persist_abort(heap_), 0);
    EXPECT_EQ(cairn_persist_checkpoint(heap_), 0);
    expect_pages(heap_, count);
}

TEST_F(FullDisk, ATrimMakesPagesNeedSpaceAgain)
{
    g_disk.most = SIZE_MAX;
    memset(block_, 1, kPages * page_);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    const cairn_allocator allocator = cairn_persist_allocator(heap_);
    ASSERT_EQ(cairn_persist_remove_root(heap_, "block"), 0);
    cairn_allocator_free(allocator, block_, kPages * page_);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    ASSERT_EQ(cairn_persist_trim(heap_), 0);
    block_ = allocate(heap_, kPages * page_, page_);
    memset(block_, 2, kPages * page_); // a page that is zero, as it was, may need no space
    ASSERT_EQ(cairn_persist_set_root(heap_, "block", block_), 0);
    const size_t used = g_disk.pages["heap"].size();
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_GE(g_disk.pages["heap"].size(), used + kPages - 2);
}

} // namespace persist_full_test
