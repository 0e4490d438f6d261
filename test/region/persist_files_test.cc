// The files of a heap: created whole or not at all, locked, and a single file again after a close.

#include "region/persist_kit.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <sys/stat.h>

extern "C" {
#include "os/fault.h"
#include "os/file.h"
}

namespace persist_files_test
{

using namespace persist;

class Files : public testing::Test
{
  protected:
    std::vector<std::string> names() const
    {
        std::vector<std::string> names;
        const auto parent = std::filesystem::path(directory_.file()).parent_path();
        for (const auto &entry : std::filesystem::directory_iterator(parent))
            names.push_back(entry.path().filename());
        std::sort(names.begin(), names.end());
        return names;
    }
    using Names = std::vector<std::string>;

    Directory directory_;
};

TEST_F(Files, OneWhenClosedThreeWhenOpen)
{
    cairn_persist *heap = open_heap(directory_.file());
    ASSERT_NE(heap, nullptr);
    EXPECT_EQ(names(), (Names{"heap", "heap.log0", "heap.log1"}));
    EXPECT_EQ(cairn_persist_close(heap), 0);
    EXPECT_EQ(names(), Names{"heap"});
}

TEST_F(Files, OneWriterOrManyReaders)
{
    cairn_persist *heap = open_heap(directory_.file());
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    const char *why = nullptr;
    EXPECT_EQ(open_heap(directory_.file(), Options(), &why), nullptr);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_STREQ(why, "the heap is in use");
    EXPECT_EQ(open_heap(directory_.file(), Options().only(CAIRN_PERSIST_READ_ONLY)), nullptr);
    EXPECT_EQ(errno, EBUSY);
    cairn_persist_close(heap);
    cairn_persist *readers[3];
    for (cairn_persist *&reader : readers)
        ASSERT_NE(reader = open_heap(directory_.file(), Options().only(CAIRN_PERSIST_READ_ONLY)),
                  nullptr);
    EXPECT_EQ(open_heap(directory_.file()), nullptr);
    EXPECT_EQ(errno, EBUSY);
    for (cairn_persist *reader : readers)
        EXPECT_EQ(cairn_persist_close(reader), 0);
}

TEST_F(Files, NotMadeWhereNotAskedFor)
{
    const char *why = nullptr;
    EXPECT_EQ(open_heap(directory_.file(), Options().only(0), &why), nullptr);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_STREQ(why, "there is no such heap");
    EXPECT_EQ(open_heap("/no/such/directory/heap"), nullptr);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(open_heap("/" + std::string(5000, 'x')), nullptr);
    EXPECT_EQ(errno, ENAMETOOLONG);
    EXPECT_EQ(names(), Names{});
}

TEST_F(Files, FoundBesideTheHeapWhateverTheWorkingDirectory)
{
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(std::filesystem::path(directory_.file()).parent_path());
    std::filesystem::create_symlink("heap", "link");
    cairn_persist *heap = open_heap("heap");
    ASSERT_NE(heap, nullptr);
    std::filesystem::current_path("/");
    EXPECT_EQ(cairn_persist_close(heap), 0);
    EXPECT_EQ(names(), (Names{"heap", "link"}));
    ASSERT_NE(heap = open_heap(directory_.file("link")), nullptr);
    EXPECT_EQ(names(), (Names{"heap", "heap.log0", "heap.log1", "link"}));
    EXPECT_EQ(cairn_persist_close(heap), 0);
    std::filesystem::current_path(before);
}

// A crash during creation leaves at most a file with another name.
TEST_F(Files, AreMadeWholeOrNotAtAll)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    for (size_t call = 0; call < 60; call++) {
        os_fault_plan(call, 1, EIO);
        cairn_persist *heap = open_heap(directory_.file());
        const bool struck = os_fault_plan(0, 0, 0) > call;
        if (heap != nullptr) {
            cairn_persist_close(heap);
            EXPECT_TRUE(!struck || call > 5);
        } else {
            EXPECT_TRUE(struck);
            EXPECT_TRUE(errno == EIO || errno == ENOMEM || errno == ENOTSUP) << errno;
        }
        ASSERT_NE(heap = open_heap(directory_.file()), nullptr) << "after a fault in call " << call;
        EXPECT_EQ(check(heap), "");
        cairn_persist_close(heap);
        EXPECT_EQ(names(), Names{"heap"}) << call;
        std::filesystem::remove(directory_.file());
    }
}

// The steps of `cairn persist compact`, repeated: another file replaces the heap under the old
// file's lock, and the old file is then emptied. An open finds the old heap, the new one, or a
// lock.
TEST_F(Files, AreFoundWhileAnotherOneTakesTheirPlace)
{
    cairn_persist *heap = open_heap(directory_.file());
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    ASSERT_EQ(cairn_persist_close(heap), 0);
    std::atomic<bool> over{false};
    std::atomic<int> replaced{0};
    std::thread replacing([&] {
        const std::string path = directory_.file(), other = directory_.file("other");
        while (!over) {
            const int old = os_file_open(path.c_str(), OS_FILE_WRITE);
            if (os_file_lock(old, true) == 0 && !os_file_is_nameless(old)) {
                std::filesystem::copy_file(path, other);
                const int fresh = os_file_open(other.c_str(), OS_FILE_WRITE);
                EXPECT_EQ(os_file_lock(fresh, true), 0);
                EXPECT_EQ(rename(other.c_str(), path.c_str()), 0);
                EXPECT_EQ(os_file_truncate(old, 0), 0);
                os_file_close(fresh);
                replaced++;
            }
            os_file_close(old);
        }
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    int opened = 0;
    while (std::chrono::steady_clock::now() < end) {
        const char *why = nullptr;
        heap = open_heap(directory_.file(), Options().only(CAIRN_PERSIST_READ_ONLY), &why);
        if (heap == nullptr) {
            ASSERT_EQ(errno, EBUSY) << why;
            continue;
        }
        opened++;
        EXPECT_EQ(cairn_persist_close(heap), 0);
    }
    over = true;
    replacing.join();
    printf("%d opened, %d replaced\n", opened, replaced.load());
}

} // namespace persist_files_test
