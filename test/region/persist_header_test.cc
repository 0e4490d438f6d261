// The twin headers: the newer sound one counts. A header that is not sound is the remainder of a
// torn write, or the file is refused with a sentence.

#include "region/persist_kit.h"

extern "C" {
#include "os/file.h"
#include "os/memory.h"
}

namespace persist_header_test
{

using namespace persist;

class Header : public testing::Test
{
  protected:
    void SetUp() override
    {
        file_ = os_file_open(directory_.file().c_str(), OS_FILE_NEW);
        ASSERT_EQ(os_file_truncate(file_, PERSIST_DATA_OFFSET + 65536), 0);
        header_ = {};
        header_.magic = PERSIST_MAGIC;
        header_.version = PERSIST_VERSION;
        header_.page_bytes = static_cast<uint32_t>(os_page_size());
        header_.byte_order = PERSIST_BYTE_ORDER;
        header_.data_bytes = 65536;
        header_.identity = 42;
    }
    void TearDown() override { os_file_close(file_); }

    int read(persist_header *header)
    {
        why_ = nullptr;
        return header_read(file_, header, &why_);
    }
    void flip(uint64_t offset, char mask = 1)
    {
        char byte;
        ASSERT_EQ(os_file_read(file_, &byte, 1, offset), 0);
        byte = static_cast<char>(byte ^ mask);
        ASSERT_EQ(os_file_write(file_, &byte, 1, offset), 0);
    }

    Directory directory_;
    int file_ = -1;
    persist_header header_;
    const char *why_ = nullptr;
};

TEST_F(Header, TheNewerOneCounts)
{
    for (uint64_t checkpoint = 1; checkpoint < 6; checkpoint++) {
        header_.checkpoint = checkpoint;
        ASSERT_EQ(header_write(file_, &header_), 0);
        persist_header found;
        ASSERT_EQ(read(&found), 0);
        EXPECT_EQ(found.checkpoint, checkpoint);
        EXPECT_EQ(found.turn, checkpoint);
    }
}

TEST_F(Header, EveryBitFlippedInOneLeavesTheOther)
{
    header_.checkpoint = 1;
    ASSERT_EQ(header_write(file_, &header_), 0); // turn 1, the second place
    header_.checkpoint = 2;
    ASSERT_EQ(header_write(file_, &header_), 0); // turn 2, the first place
    for (uint64_t place : {0, int(PERSIST_HEADER_SPACING_BYTES)})
        for (uint64_t byte = 0; byte < PERSIST_HEADER_BYTES; byte++)
            for (int mask : {1, 16, 128}) {
                flip(place + byte, static_cast<char>(mask));
                persist_header found;
                ASSERT_EQ(read(&found), 0);
                EXPECT_EQ(found.checkpoint, place == 0 ? 1u : 2u);
                flip(place + byte, static_cast<char>(mask));
            }
}

TEST_F(Header, RefusedInOneSentence)
{
    persist_header found;
    EXPECT_EQ(read(&found), -ENOTSUP);
    EXPECT_STREQ(why_, "the file is not a heap");
    const auto refused = [&](const char *sentence, int error) {
        header_write(file_, &header_);
        header_write(file_, &header_);
        EXPECT_EQ(read(&found), error);
        EXPECT_STREQ(why_, sentence);
    };
    header_.version = 1;
    refused("the heap's format is version 1, and this library knows 2 only", -ENOTSUP);
    header_.version = PERSIST_VERSION;
    header_.byte_order = __builtin_bswap64(PERSIST_BYTE_ORDER);
    refused("the heap was written by a machine of another byte order", -ENOTSUP);
    header_.byte_order = PERSIST_BYTE_ORDER;
    header_.page_bytes *= 4;
    refused("the heap was written by a machine with another page size", -ENOTSUP);
    header_.page_bytes /= 4;
    header_.data_bytes += 1;
    refused("the heap's file is shorter than it was", -EBADMSG);
    header_.data_bytes -= 1;
    refused(nullptr, 0);
    flip(100);
    flip(PERSIST_HEADER_SPACING_BYTES + 200);
    EXPECT_EQ(read(&found), -EBADMSG);
    EXPECT_STREQ(why_, "both headers of the heap are damaged");
    ASSERT_EQ(os_file_truncate(file_, 1000), 0);
    EXPECT_EQ(read(&found), -ENOTSUP);
    EXPECT_STREQ(why_, "the file is too short for a heap");
}

} // namespace persist_header_test
