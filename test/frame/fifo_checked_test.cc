// Checked FIFOs find every double free and every write outside an object.

#include "cairn/fifo.h"
#include "frame/frame_kit.h"

namespace fifo_checked_test
{

using namespace frame_kit;

class FifoCheckedDeathTest : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!frame_checked() || memory_marks_active())
            GTEST_SKIP() << "no checked FIFOs, or a memory checker that reports first";
        cairn_fifo_options options = {};
        options.any_thread_free = true;
        fifo_ = cairn_fifo_new(&options);
        object_ = static_cast<char *>(cairn_fifo_alloc(fifo_, 24, 8));
    }
    cairn_fifo *fifo_ = nullptr;
    char *object_ = nullptr;
};

TEST_F(FifoCheckedDeathTest, DoubleFreeAtOnce)
{
    ignore(cairn_fifo_alloc(fifo_, 24, 8)); // keeps the page alive
    std::string line = "fifo \"fifo\": double free of " + hex(object_);
    cairn_fifo_free(fifo_, object_);
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo_, object_), line);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_free(fifo_, object_); }), line);
}

TEST_F(FifoCheckedDeathTest, DoubleFreeByOtherThreads)
{
    ignore(cairn_fifo_alloc(fifo_, 24, 8));
    in_thread([&] { cairn_fifo_free(fifo_, object_); });
    std::string line = "fifo \"fifo\": double free of " + hex(object_);
    EXPECT_DEATH_LINE(in_thread([&] { cairn_fifo_free(fifo_, object_); }), line);
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo_, object_), line);
}

TEST_F(FifoCheckedDeathTest, WritePastTheEnd)
{
    EXPECT_DEATH_LINE(
        {
            object_[24] = 0;
            cairn_fifo_free(fifo_, object_);
        },
        "fifo \"fifo\": write past the end of " + hex(object_) + " (24-byte object)");
}

TEST_F(FifoCheckedDeathTest, InteriorPointer)
{
    memset(object_, 0, 24);
    EXPECT_DEATH_LINE(cairn_fifo_free(fifo_, object_ + 8), "fifo \"fifo\": free of " +
                                                               hex(object_ + 8) +
                                                               ", which is not an object of it");
}

TEST_F(FifoCheckedDeathTest, ReallocWithAWrongSize)
{
    EXPECT_DEATH_LINE(ignore(cairn_fifo_realloc(fifo_, object_, 32, 64, 8)),
                      "fifo \"fifo\": realloc of " + hex(object_) +
                          " with old size 32 (24-byte object)");
}

} // namespace fifo_checked_test
