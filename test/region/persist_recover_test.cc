// Recovery: a log cut or flipped at any byte gives an earlier commit or a clear refusal; files that
// do not belong together are refused.

#include "region/persist_slots.h"

#include <set>

extern "C" {
#include "os/file.h"
}

namespace persist_recover_test
{

using namespace persist;

class Recover : public testing::Test
{
  protected:
    void SetUp() override
    {
        Options options = Options().log(1);
        options.size_bytes = 1;
        heap_ = open_heap(path(), options);
        ASSERT_NE(heap_, nullptr);
        ASSERT_TRUE(Slots::set_up(heap_));
        commit();
    }
    void TearDown() override { cairn_persist_close(heap_); }

    std::string path() const { return directory_.file(); }
    std::string copy() const { return directory_.file("copy"); }

    void commit()
    {
        slots_.note_commit(stats_of(heap_).last_commit + 1);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
    }
    void work(int commits)
    {
        for (int i = 0; i < commits; i++) {
            slots_.change(heap_, 2000);
            slots_.change(heap_, 2000);
            commit();
        }
    }

    // Opens the copy.
    // Returns: true when it holds a commit of this test, false when it was refused with a sentence.
    bool opens_or_is_refused()
    {
        const char *why = nullptr;
        cairn_persist *heap = open_heap(copy(), Options().only(CAIRN_PERSIST_READ_ONLY), &why);
        if (heap == nullptr) {
            EXPECT_TRUE(errno == EBADMSG || errno == ENOTSUP) << errno;
            EXPECT_NE(why, nullptr);
            return false;
        }
        const uint64_t number = stats_of(heap).last_commit;
        EXPECT_TRUE(slots_.knows(number)) << number;
        if (slots_.knows(number)) {
            EXPECT_EQ(Slots::read(heap), slots_.contents(number));
        }
        EXPECT_EQ(check(heap), "");
        cairn_persist_close(heap);
        return true;
    }

    Directory directory_;
    Slots slots_{7};
    cairn_persist *heap_ = nullptr;
};

TEST_F(Recover, LogsFlippedAtEachByteOfTheirHeads)
{
    work(12);
    copy_files(path(), copy());
    size_t refused = 0;
    for (const char *suffix : {".log0", ".log1"}) {
        const std::string bytes = read_file(copy() + suffix);
        const size_t end = std::min(bytes.size(), bytes.find_last_not_of('\0') + 4096);
        for (size_t at = 0; at < end; at += at % 512 < 80 ? 1 : stride(127)) {
            std::string damaged = bytes;
            damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
            write_file(copy() + suffix, damaged);
            refused += !opens_or_is_refused();
            if (HasFailure())
                FAIL() << suffix << " flipped at " << at;
        }
        write_file(copy() + suffix, bytes);
    }
    EXPECT_GT(refused, 0u) << "damage before a durable commit must be refused";
    EXPECT_TRUE(opens_or_is_refused());
}

TEST_F(Recover, LogsCutOrGrownAnywhere)
{
    work(12);
    copy_files(path(), copy());
    for (const char *suffix : {".log0", ".log1"}) {
        const std::string bytes = read_file(copy() + suffix);
        for (size_t cut = 0; cut <= bytes.size(); cut += stride(cut % 512 < 100 ? 9 : 37)) {
            write_file(copy() + suffix, bytes.substr(0, cut));
            opens_or_is_refused();
            if (HasFailure())
                FAIL() << suffix << " cut at " << cut;
        }
        write_file(copy() + suffix, bytes + std::string(5000, 'x'));
        EXPECT_TRUE(opens_or_is_refused());
        write_file(copy() + suffix, bytes);
    }
}

TEST_F(Recover, HeadersFlippedAtEachByteAndCut)
{
    work(10);
    copy_files(path(), copy());
    const std::string bytes = read_file(copy());
    for (size_t place : {size_t{0}, size_t{PERSIST_HEADER_SPACING_BYTES}})
        for (size_t at = place; at < place + PERSIST_HEADER_BYTES; at++) {
            std::string damaged = bytes;
            damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
            write_file(copy(), damaged);
            opens_or_is_refused();
        }
    for (size_t cut : {0, 1, 511, 512, 40000, 65535, 65536, 100000})
        if (cut < bytes.size()) {
            write_file(copy(), bytes.substr(0, cut));
            EXPECT_FALSE(opens_or_is_refused()) << cut;
        }
}

TEST_F(Recover, ALogThatIsMissing)
{
    work(3);
    copy_files(path(), copy());
    std::filesystem::remove(copy() + ".log1");
    const char *why = nullptr;
    EXPECT_EQ(open_heap(copy(), Options(), &why), nullptr);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_STREQ(why, "log1 is missing, and commit 4 was acknowledged");
}

TEST_F(Recover, ALogOfLaterThanTheFile)
{
    work(2);
    std::filesystem::copy_file(path(), copy());
    work(40); // the log is used again
    for (const char *suffix : {".log0", ".log1"})
        std::filesystem::copy_file(path() + suffix, copy() + suffix);
    const char *why = nullptr;
    EXPECT_EQ(open_heap(copy(), Options(), &why), nullptr);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_NE(std::string(why).find("the heap's file, with commit 0, and the other log lead to"),
              std::string::npos)
        << why;
}

TEST_F(Recover, ForReadingChangesNothing)
{
    work(20);
    copy_files(path(), copy());
    const std::string before[] = {read_file(copy()), read_file(copy() + ".log0"),
                                  read_file(copy() + ".log1")};
    EXPECT_TRUE(opens_or_is_refused());
    EXPECT_EQ(read_file(copy()), before[0]);
    EXPECT_EQ(read_file(copy() + ".log0"), before[1]);
    EXPECT_EQ(read_file(copy() + ".log1"), before[2]);
}

// A crash loses a commit whose successor reached the disk before it. The next commit has the number
// and length of the lost one, so the stale successor is directly behind it in the log.
TEST_F(Recover, WhatACrashLostDoesNotComeBackBehindTheNextCommit)
{
    ASSERT_EQ(cairn_persist_close(heap_), 0);
    ASSERT_NE(heap_ = open_heap(path()), nullptr);
    char *block = reinterpret_cast<char *>(Slots::table(heap_)) + 8 * (Slots::kSlots - 1);
    const uint64_t found = stats_of(heap_).last_commit;
    cairn_persist_ticket ticket;
    for (const char value : {'\1', '\2'}) {
        *block = value;
        ASSERT_EQ(cairn_persist_commit_async(heap_, &ticket), 0);
    }
    copy_files(path(), copy());
    std::string log = read_file(copy() + ".log0");
    char &byte = log[PERSIST_LOG_START + 100]; // the first commit did not reach the disk
    byte = static_cast<char>(byte ^ 1);
    write_file(copy() + ".log0", log);

    cairn_persist *next = open_heap(copy());
    ASSERT_NE(next, nullptr);
    ASSERT_EQ(stats_of(next).last_commit, found);
    reinterpret_cast<char *>(Slots::table(next))[8 * (Slots::kSlots - 1)] = 3;
    ASSERT_EQ(cairn_persist_commit(next), 0);
    copy_files(copy(), directory_.file("again")); // as after a kill
    cairn_persist_close(next);
    next = open_heap(directory_.file("again"));
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(stats_of(next).last_commit, found + 1);
    EXPECT_EQ(reinterpret_cast<char *>(Slots::table(next))[8 * (Slots::kSlots - 1)], 3);
    cairn_persist_close(next);
}

// Files with data that a killed program left in the kernel's cache, which may not be on the disk
// yet.
std::set<std::string> g_unsettled;
bool g_written_too_early;

int watch_order(os_file_call call, int file, uint64_t, const void *, size_t *)
{
    char name[4096];
    os_file_path(file, name, sizeof name);
    if (call == OS_CALL_SYNC)
        g_unsettled.erase(name);
    else
        g_written_too_early |= !g_unsettled.empty();
    return 0;
}

TEST_F(Recover, WritesNothingBeforeTheLogAndTheHeadersThatItReadAreDurable)
{
    if (!config_debug)
        GTEST_SKIP() << "calls are watched in debug builds";
    work(5);
    copy_files(path(), copy());
    g_unsettled = {copy(), copy() + ".log0", copy() + ".log1"};
    g_written_too_early = false;
    os_file_watch(watch_order);
    cairn_persist *heap = open_heap(copy());
    os_file_watch(nullptr);
    ASSERT_NE(heap, nullptr);
    EXPECT_TRUE(g_unsettled.empty()) << *g_unsettled.begin();
    EXPECT_FALSE(g_written_too_early);
    cairn_persist_close(heap);
}

} // namespace persist_recover_test
