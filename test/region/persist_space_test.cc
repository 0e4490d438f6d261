// The address of a heap: the last one if it is free, another one if that is allowed; growth.

#include "region/persist_kit.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <vector>

extern "C" {
#include "os/memory.h"
}

namespace persist_space_test
{

using namespace persist;

class Space : public testing::Test
{
  protected:
    cairn_persist *reopen(Options options = Options())
    {
        cairn_persist_close(heap_);
        return heap_ = open_heap(directory_.file(), options);
    }
    void SetUp() override { ASSERT_NE(reopen(), nullptr); }
    void TearDown() override { cairn_persist_close(heap_); }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
};

TEST_F(Space, TheLastAddressIsTriedFirst)
{
    char *block = allocate(heap_, 100);
    strcpy(block, "here");
    cairn_persist_set_root(heap_, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    for (int i = 0; i < 3; i++) {
        ASSERT_NE(reopen(Options().with(CAIRN_PERSIST_FIXED)), nullptr);
        EXPECT_EQ(cairn_persist_get_root(heap_, "block"), block);
        EXPECT_FALSE(stats_of(heap_).moved);
    }
}

TEST_F(Space, AnAddressThatIsTaken)
{
    char *block = allocate(heap_, 100);
    strcpy(block, "moved");
    cairn_persist_set_root(heap_, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    char *before = static_cast<char *>(stats_of(heap_).address);
    cairn_persist_close(heap_);
    const size_t page = os_page_size();
    ASSERT_TRUE(os_reserve_at(before + 16 * page, page));
    const char *why = nullptr;
    heap_ = open_heap(directory_.file(), Options().with(CAIRN_PERSIST_FIXED), &why);
    EXPECT_EQ(heap_, nullptr);
    EXPECT_EQ(errno, EADDRNOTAVAIL);
    EXPECT_STREQ(why, "the heap's address is taken");
    ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
    EXPECT_TRUE(stats_of(heap_).moved);
    char *found = static_cast<char *>(cairn_persist_get_root(heap_, "block"));
    EXPECT_NE(found, block);
    EXPECT_STREQ(found, "moved");
    EXPECT_EQ(check(heap_), "");
    release(heap_, found);
    EXPECT_EQ(check(heap_), "");
    os_unmap(before + 16 * page, page);
}

// The default capacity is far more than the heap needs, so fewer addresses do, too: those behind
// may be taken, or above a limit of the process.
TEST_F(Space, TheDefaultCapacityIsLessWhereFewerAddressesAreFree)
{
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    char *before = static_cast<char *>(stats_of(heap_).address);
    cairn_persist_close(heap_);
    const size_t page = os_page_size();
    char *taken = before + (size_t{1} << 30);
    const bool is_ours = os_reserve_at(taken, page);
    const Options options = Options().with(CAIRN_PERSIST_FIXED);
    heap_ = cairn_persist_open(directory_.file().c_str(), &options);
    ASSERT_NE(heap_, nullptr);
    EXPECT_EQ(stats_of(heap_).address, before);
    EXPECT_LE(stats_of(heap_).capacity_bytes, size_t{1} << 30);
    if (is_ours)
        os_unmap(taken, page);
}

TEST_F(Space, AnAddressThatIsChosen)
{
    if (config_tsan)
        GTEST_SKIP() << "the address would be in ThreadSanitizer's shadow";
    Options options;
    // no multiple of 64 GiB, of which one was drawn for the heap of the fixture
    options.address = reinterpret_cast<void *>(uintptr_t{0x230800000000});
    cairn_persist *heap = open_heap(directory_.file("other"), options);
    ASSERT_NE(heap, nullptr);
    EXPECT_EQ(stats_of(heap).address, options.address);
    cairn_persist_close(heap);
}

TEST_F(Space, GrowsToItsCapacityAndNoFurther)
{
    Options options;
    options.capacity_bytes = 4 << 20;
    ASSERT_NE(reopen(options), nullptr);
    EXPECT_EQ(stats_of(heap_).capacity_bytes, 4u << 20);
    EXPECT_EQ(cairn_persist_grow(heap_, 3 << 20), 0);
    EXPECT_EQ(stats_of(heap_).size_bytes, 3u << 20);
    EXPECT_EQ(cairn_persist_grow(heap_, 1 << 20), 0) << "a smaller size has no effect";
    EXPECT_EQ(cairn_persist_grow(heap_, (4 << 20) + 1), ENOMEM);
    char *block = allocate(heap_, 3500 << 10);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(allocate(heap_, 1 << 20), nullptr);
    EXPECT_EQ(check(heap_), "");
    memset(block, 3, 3500 << 10);
    cairn_persist_set_root(heap_, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    ASSERT_NE(reopen(), nullptr) << "with more address space";
    EXPECT_NE(allocate(heap_, 8 << 20), nullptr);
    EXPECT_EQ(static_cast<char *>(cairn_persist_get_root(heap_, "block"))[(3500 << 10) - 1], 3);
}

TEST_F(Space, GrowsByWhatIsNeededWhereTheFileMayHaveNoMore)
{
    ASSERT_NE(allocate(heap_, 16 << 20), nullptr);
    struct stat file;
    ASSERT_EQ(stat(directory_.file().c_str(), &file), 0);
    struct rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {static_cast<rlim_t>(file.st_size) + (1 << 20), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    std::vector<char *> blocks;
    while (char *block = allocate(heap_, 100'000))
        blocks.push_back(block);
    EXPECT_EQ(errno, ENOMEM);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    ASSERT_EQ(stat(directory_.file().c_str(), &file), 0);
    EXPECT_GT(static_cast<rlim_t>(file.st_size), limit.rlim_cur - 200'000);
    for (char *block : blocks)
        cairn_allocator_free(cairn_persist_allocator(heap_), block, 0);
    EXPECT_EQ(cairn_persist_check(heap_), nullptr);
    EXPECT_NE(allocate(heap_, 4 << 20), nullptr);
}

TEST_F(Space, AddressSpaceIsReservedForFourTimesTheFile)
{
    if (config_tsan)
        GTEST_SKIP() << "ThreadSanitizer has no room for a reservation of 16 GiB";
    cairn_persist_close(heap_);
    heap_ = cairn_persist_open(directory_.file().c_str(), nullptr);
    ASSERT_NE(heap_, nullptr);
    EXPECT_EQ(stats_of(heap_).capacity_bytes, size_t{16} << 30);
}

TEST_F(Space, HugeAndSparse)
{
    if (config_tsan)
        GTEST_SKIP() << "ThreadSanitizer leaves too little address space";
    Options options;
    options.capacity_bytes = size_t{64} << 30;
    ASSERT_NE(reopen(options), nullptr);
    ASSERT_EQ(cairn_persist_grow(heap_, size_t{63} << 30), 0);
    char *block = allocate(heap_, size_t{62} << 30);
    ASSERT_NE(block, nullptr);
    for (size_t i = 0; i < 62; i++)
        block[i << 30] = static_cast<char>(i + 1);
    cairn_persist_set_root(heap_, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    EXPECT_LT(stats_of(heap_).logged_pages, 80u);
    ASSERT_NE(reopen(options), nullptr);
    block = static_cast<char *>(cairn_persist_get_root(heap_, "block"));
    for (size_t i = 0; i < 62; i++)
        EXPECT_EQ(block[i << 30], static_cast<char>(i + 1));
}

} // namespace persist_space_test
