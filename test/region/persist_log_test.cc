// The log: whole commits are found, anything else ends the sequence, and damage is distinguished
// from a cut log.

#include "region/persist_kit.h"

extern "C" {
#include "os/file.h"
#include "os/memory.h"
}

namespace persist_log_test
{

using namespace persist;

class Log : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_ = os_page_size();
        ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr);
        char *block = allocate(heap_, 20 * page_, page_);
        for (int commit = 1; commit <= 5; commit++) {
            memset(block, commit, static_cast<size_t>(commit) * 3 * page_);
            ASSERT_EQ(cairn_persist_commit(heap_), 0);
            ends_.push_back(PERSIST_LOG_START + stats_of(heap_).log_bytes);
        }
        bytes_ = read_file(directory_.file() + ".log0").substr(0, ends_.back() + 4096);
        buffer_.resize(PERSIST_CHUNK_MAX_BYTES + 65536);
    }
    void TearDown() override { cairn_persist_close(heap_); }

    log_end walk(const std::string &bytes, uint64_t most = UINT64_MAX)
    {
        const std::string path = directory_.file("log");
        write_file(path, bytes);
        const int file = os_file_open(path.c_str(), OS_FILE_READ);
        log_end end = {};
        EXPECT_EQ(log_walk(file, log_seed(&heap_->header), page_, buffer_.data(), most, &end,
                           nullptr, nullptr),
                  0);
        os_file_close(file);
        return end;
    }
    std::string flipped(uint64_t at) const
    {
        std::string bytes = bytes_;
        bytes[at] = static_cast<char>(bytes[at] ^ 4);
        return bytes;
    }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
    size_t page_ = 0;
    std::vector<uint64_t> ends_;
    std::string bytes_;
    std::vector<char> buffer_;
};

TEST_F(Log, WholeCommitsAreFound)
{
    const log_end end = walk(bytes_);
    EXPECT_EQ(end.first, 1u);
    EXPECT_EQ(end.last, 5u);
    EXPECT_EQ(end.length, ends_[4]);
    EXPECT_EQ(end.later, 0u);
    EXPECT_EQ(walk(bytes_, ends_[2]).last, 3u) << "up to the given end";
    EXPECT_EQ(walk("").first, 0u);
    EXPECT_EQ(walk(std::string(5000, '\0')).first, 0u);
    EXPECT_EQ(walk(bytes_).pages, walk(bytes_, ends_[4]).pages);
    EXPECT_GT(walk(bytes_).pages, 15u);
}

TEST_F(Log, CutAnywhereItEndsWithTheLastWholeCommit)
{
    for (size_t cut = 0; cut < bytes_.size(); cut += 509) {
        const log_end end = walk(bytes_.substr(0, cut));
        uint64_t whole = 0; // the zeros after a chunk are not needed
        while (whole < 5 && ends_[whole] <= cut + PERSIST_SECTOR_BYTES - 1)
            whole++;
        EXPECT_LE(end.last, whole) << cut;
        EXPECT_GE(end.last + 1, whole) << cut;
    }
}

TEST_F(Log, DamageInFrontOfADurableCommitIsKnown)
{
    for (size_t commit = 0; commit < 3; commit++) {
        const uint64_t start = commit == 0 ? uint64_t{PERSIST_LOG_START} : ends_[commit - 1];
        for (uint64_t at : {start, start + 9, start + 30, start + 70, start + page_}) {
            const log_end end = walk(flipped(at));
            EXPECT_EQ(end.last + 1, end.first == 0 ? 1 : commit + 1) << at;
            EXPECT_EQ(end.later, 4u) << "the last commit records that the fourth was durable";
        }
    }
    EXPECT_EQ(walk(flipped(ends_[3] + 100)).last, 4u);
    EXPECT_EQ(walk(flipped(ends_[3] + 100)).later, 0u) << "as if the log had been cut";
}

TEST_F(Log, OfAnotherHeapOrOpeningIsNone)
{
    for (uint64_t *number : {&heap_->header.identity, &heap_->header.session}) {
        ++*number;
        EXPECT_EQ(walk(bytes_).first, 0u);
        EXPECT_EQ(walk(bytes_).later, 0u);
        --*number;
    }
}

TEST_F(Log, WhatIsLeftOfLongAgoIsNotPartOfTheRow)
{
    // Commits 1 and 2 over the former commits 1 to 5, as after a segment is used again.
    const std::string head = bytes_.substr(0, PERSIST_LOG_START);
    const std::string bytes = head + bytes_.substr(ends_[2], ends_[3] - ends_[2]) +
                              bytes_.substr(PERSIST_LOG_START);
    const log_end end = walk(bytes);
    EXPECT_EQ(end.first, 4u);
    EXPECT_EQ(end.last, 4u);
    EXPECT_EQ(end.length, PERSIST_LOG_START + ends_[3] - ends_[2]);
}

TEST(Bits, AreFoundInOrder)
{
    uint64_t words[3] = {};
    EXPECT_EQ(bit_find(words, 0, 192), 192u);
    for (size_t bit : {0, 5, 63, 64, 130, 191})
        bitmap_set(words, bit, 1);
    std::vector<size_t> found;
    for (size_t bit = bit_find(words, 0, 192); bit < 192; bit = bit_find(words, bit + 1, 192))
        found.push_back(bit);
    EXPECT_EQ(found, (std::vector<size_t>{0, 5, 63, 64, 130, 191}));
    EXPECT_EQ(bit_find(words, 131, 150), 150u);
}

} // namespace persist_log_test
