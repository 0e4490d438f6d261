// The cairn_ names: each calls its entry point, and the statistics are correct.

#include <gtest/gtest.h>
#include <malloc.h>

#include <cerrno>
#include <climits>
#include <string>
#include <vector>

#include "cairn/heap.h"

extern "C" {
#include "watch/watch.h"
}

namespace api_test
{

constexpr size_t kMiB = size_t{1} << 20;

bool is_aligned(const void *block, size_t alignment)
{
    return reinterpret_cast<uintptr_t>(block) % alignment == 0;
}

TEST(Api, TheLibraryNamesTheVersionOfItsHeaders)
{
    EXPECT_EQ(cairn_version(), std::to_string(CAIRN_VERSION_MAJOR) + "." +
                                   std::to_string(CAIRN_VERSION_MINOR) + "." +
                                   std::to_string(CAIRN_VERSION_PATCH));
}

TEST(Api, EveryNameGivesABlockThatFreeTakes)
{
    void *aligned = nullptr;
    ASSERT_EQ(cairn_posix_memalign(&aligned, 256, 100), 0);
    EXPECT_TRUE(is_aligned(aligned, 256));
    void *blocks[] = {cairn_malloc(100),
                      cairn_calloc(10, 10),
                      cairn_realloc(nullptr, 100),
                      cairn_reallocarray(nullptr, 10, 10),
                      aligned,
                      cairn_aligned_alloc(512, 100),
                      cairn_memalign(1024, 100),
                      cairn_valloc(100),
                      cairn_pvalloc(100)};
    EXPECT_TRUE(is_aligned(blocks[5], 512));
    EXPECT_TRUE(is_aligned(blocks[6], 1024));
    EXPECT_TRUE(is_aligned(blocks[7], 4096));
    EXPECT_TRUE(is_aligned(blocks[8], 4096));
    for (void *block : blocks) {
        ASSERT_NE(block, nullptr);
        EXPECT_GE(cairn_malloc_usable_size(block), 100u);
        cairn_free(block);
    }
    cairn_free_sized(cairn_malloc(77), 77);
    cairn_free_aligned_sized(cairn_aligned_alloc(128, 77), 128, 77);
    EXPECT_EQ(cairn_mallinfo2().uordblks, 0u);
}

TEST(Api, CallocIsZeroAndReallocKeeps)
{
    char *block = static_cast<char *>(cairn_calloc(100, 3));
    for (int i = 0; i < 300; i++)
        EXPECT_EQ(block[i], 0);
    memset(block, 9, 300);
    block = static_cast<char *>(cairn_realloc(block, 5000));
    block = static_cast<char *>(cairn_reallocarray(block, 100, 100));
    for (int i = 0; i < 300; i++)
        EXPECT_EQ(block[i], 9);
    cairn_free(block);
}

TEST(Api, Mallinfo2AddsUp)
{
    std::vector<void *> blocks;
    size_t bytes = 0;
    for (size_t i = 1; i < 300; i++) {
        blocks.push_back(cairn_malloc(i * 50));
        bytes += cairn_malloc_usable_size(blocks.back());
    }
    void *huge = cairn_malloc(100 * kMiB);
    struct cairn_mallinfo2 info = cairn_mallinfo2();
    EXPECT_EQ(info.uordblks, bytes);
    EXPECT_EQ(info.uordblks + info.fordblks, info.arena);
    EXPECT_EQ(info.hblks, 1u);
    EXPECT_EQ(info.hblkhd, cairn_malloc_usable_size(huge));
    const struct cairn_mallinfo old = cairn_mallinfo();
    EXPECT_EQ(old.uordblks, static_cast<int>(bytes));
    EXPECT_EQ(old.hblks, 1);
    EXPECT_EQ(old.hblkhd, static_cast<int>(info.hblkhd));
    cairn_free(huge);
    for (void *block : blocks)
        cairn_free(block);
    info = cairn_mallinfo2();
    EXPECT_EQ(info.uordblks, 0u);
    EXPECT_EQ(info.hblks, 0u);
    EXPECT_EQ(info.hblkhd, 0u);
}

// Guarded blocks are outside the arenas: their bytes are counted like those of mappings.
TEST(Api, Mallinfo2AddsUpWithGuardedBlocks)
{
    static const int error = guards_start(1);
    ASSERT_EQ(error, 0);
    constexpr size_t kBlocks = 200;
    constexpr size_t kSize = 30000;
    const struct cairn_mallinfo2 before = cairn_mallinfo2();
    std::vector<void *> blocks;
    for (size_t i = 0; i < kBlocks; i++)
        blocks.push_back(cairn_malloc(kSize));
    const struct cairn_mallinfo2 info = cairn_mallinfo2();
    EXPECT_EQ(info.uordblks, before.uordblks);
    EXPECT_LE(info.fordblks, info.arena);
    EXPECT_EQ(info.uordblks + info.fordblks, info.arena);
    EXPECT_EQ(info.hblks, before.hblks + kBlocks);
    EXPECT_EQ(info.hblkhd, before.hblkhd + kBlocks * kSize);
    for (void *block : blocks)
        cairn_free(block);
    EXPECT_EQ(cairn_mallinfo2().hblkhd, before.hblkhd);
}

// As in C17's defect report 460, in C23, and in glibc from 2.38 on; memalign rounds up, like
// glibc's.
TEST(Api, AlignedAllocRefusesWhatIsNoPowerOfTwo)
{
    for (size_t odd :
         {size_t{0}, size_t{3}, size_t{24}, size_t{100}, (size_t{1} << 62) + 1, SIZE_MAX}) {
        errno = 0;
        EXPECT_EQ(cairn_aligned_alloc(odd, 100), nullptr) << odd;
        EXPECT_EQ(errno, EINVAL) << odd;
    }
    void *block = cairn_memalign(24, 100);
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_aligned(block, 32));
    cairn_free(block);
}

TEST(Api, MallinfoSaturates)
{
    void *huge = cairn_malloc(size_t{3} << 30); // more than an int holds; never touched
    if (huge == nullptr)
        GTEST_SKIP() << "this machine has no 3 GiB";
    EXPECT_EQ(cairn_mallinfo().hblkhd, INT_MAX);
    EXPECT_GE(cairn_mallinfo2().hblkhd, size_t{3} << 30);
    cairn_free(huge);
}

TEST(Api, TrimSaysWhetherSomethingWentBack)
{
    char *block = static_cast<char *>(cairn_malloc(5 * kMiB));
    memset(block, 1, 5 * kMiB);
    cairn_free(block);
    EXPECT_GE(cairn_mallinfo2().keepcost, 5 * kMiB);
    EXPECT_EQ(cairn_malloc_trim(SIZE_MAX), 0) << "all free memory may be kept";
    EXPECT_EQ(cairn_malloc_trim(0), 1);
    EXPECT_EQ(cairn_mallinfo2().keepcost, 0u);
    EXPECT_EQ(cairn_malloc_trim(0), 0);
}

TEST(Api, MalloptKnowsGlibcsParameters)
{
    for (int known : {M_MXFAST, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX,
                      M_CHECK_ACTION, M_PERTURB, M_ARENA_TEST, M_ARENA_MAX})
        EXPECT_EQ(cairn_mallopt(known, 1), 1) << known;
    EXPECT_EQ(cairn_mallopt(12345, 1), 0);
    EXPECT_EQ(cairn_mallopt(0, 1), 0);
}

TEST(Api, MallocInfoIsXmlWithTheTrueNumbers)
{
    void *block = cairn_malloc(1000);
    char *text = nullptr;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    ASSERT_EQ(cairn_malloc_info(0, stream), 0);
    fclose(stream);
    const std::string info(text, length);
    free(text);
    EXPECT_EQ(info.rfind("<malloc version=\"", 0), 0u) << info;
    EXPECT_NE(info.find("</malloc>\n"), std::string::npos);
    const std::string bytes = std::to_string(cairn_malloc_usable_size(block));
    EXPECT_NE(info.find("<blocks count=\"1\" size=\"" + bytes + "\"/>"), std::string::npos) << info;
    EXPECT_NE(cairn_malloc_info(1, stderr), 0) << "the options must be 0";
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, nullptr, _IONBF, 0);
        EXPECT_NE(cairn_malloc_info(0, full), 0);
        fclose(full);
    }
    cairn_free(block);
}

TEST(Api, MallocStatsGoToStderr)
{
    void *block = cairn_malloc(1000);
    testing::internal::CaptureStderr();
    cairn_malloc_stats();
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(text.rfind("cairn: ", 0), 0u);
    EXPECT_NE(text.find(std::to_string(cairn_malloc_usable_size(block)) + " bytes in 1 blocks"),
              std::string::npos)
        << text;
    cairn_free(block);
}

} // namespace api_test
