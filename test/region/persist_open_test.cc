// Open and close: new heaps, old ones, refusals; uncommitted data does not survive.

#include "region/persist_kit.h"

#include <dirent.h>

extern "C" {
#include "os/file.h"
}

namespace persist_open_test
{

using namespace persist;

size_t open_descriptors()
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory) != nullptr)
        count++;
    closedir(directory);
    return count;
}

TEST(PersistOpen, WhatIsNotCommittedDoesNotSurviveAClose)
{
    Directory directory(testing::TempDir()); // on a disk, if there is one
    cairn_persist *heap = open_heap(directory.file());
    ASSERT_NE(heap, nullptr);
    char *block = allocate(heap, 10);
    strcpy(block, "one");
    cairn_persist_set_root(heap, "block", block);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    strcpy(block, "two");
    ASSERT_EQ(cairn_persist_close(heap), 0);
    ASSERT_NE(heap = open_heap(directory.file()), nullptr);
    EXPECT_STREQ(static_cast<char *>(cairn_persist_get_root(heap, "block")), "one");
    cairn_persist_close(heap);
}

TEST(PersistOpen, AHeapWithoutACommitIsNewAgain)
{
    Directory directory;
    cairn_persist *heap = open_heap(directory.file());
    cairn_persist_set_root(heap, "block", allocate(heap, 10));
    ASSERT_EQ(cairn_persist_close(heap), 0);
    const char *why = nullptr;
    EXPECT_EQ(open_heap(directory.file(), Options().only(CAIRN_PERSIST_READ_ONLY), &why), nullptr);
    EXPECT_EQ(errno, ENODATA) << "an unused file is not damaged, which would be EBADMSG";
    EXPECT_STREQ(why, "nothing was ever committed to the heap");
    ASSERT_NE(heap = open_heap(directory.file(), Options().only(0)), nullptr);
    EXPECT_EQ(cairn_persist_get_root(heap, "block"), nullptr);
    EXPECT_EQ(stats_of(heap).used_blocks, 0u);
    cairn_persist_close(heap);
}

TEST(PersistOpen, OptionsThatAreNotKnown)
{
    Directory directory;
    const char *why = nullptr;
    for (const Options &options :
         {Options().with(1 << 5), Options().with(1u << 31),
          Options().by(static_cast<cairn_persist_tracking>(CAIRN_PERSIST_PROTECT + 1))}) {
        EXPECT_EQ(open_heap(directory.file(), options, &why), nullptr);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_STREQ(why, "this library does not know one of the options");
        EXPECT_FALSE(std::filesystem::exists(directory.file()));
    }
}

TEST(PersistOpen, FilesThatAreNoHeap)
{
    Directory directory;
    const char *why = nullptr;
    for (size_t size : {0, 1, 5000, 200000}) {
        write_file(directory.file(), std::string(size, 'x'));
        EXPECT_EQ(open_heap(directory.file(), Options(), &why), nullptr);
        EXPECT_EQ(errno, ENOTSUP);
        EXPECT_STREQ(why,
                     size < 65536 ? "the file is too short for a heap" : "the file is not a heap");
        EXPECT_EQ(read_file(directory.file()), std::string(size, 'x')) << "untouched";
    }
}

TEST(PersistOpen, HeadersThatMakeNoSense)
{
    for (const uint64_t bytes : {0u, 4096u, 65544u}) {
        Directory directory;
        cairn_persist_close(open_heap(directory.file()));
        const int file = os_file_open(directory.file().c_str(), OS_FILE_WRITE);
        persist_header header;
        const char *why = nullptr;
        ASSERT_EQ(header_read(file, &header, &why), 0);
        header.data_bytes = bytes;
        ASSERT_EQ(header_write(file, &header), 0);
        os_file_close(file);
        for (const unsigned flags : {0u, unsigned{CAIRN_PERSIST_READ_ONLY}}) {
            EXPECT_EQ(open_heap(directory.file(), Options().only(flags), &why), nullptr) << bytes;
            EXPECT_EQ(errno, EBADMSG);
            EXPECT_STREQ(why, "the heap's header makes no sense");
        }
    }
}

TEST(PersistOpen, KeepsErrnoAndLeavesNothingBehind)
{
    Directory directory;
    const size_t before = open_descriptors();
    for (int i = 0; i < 3; i++) {
        errno = 77;
        cairn_persist *heap = open_heap(directory.file());
        ASSERT_NE(heap, nullptr);
        EXPECT_EQ(errno, 77);
        EXPECT_EQ(open_heap(directory.file()), nullptr);
        ASSERT_EQ(cairn_persist_close(heap), 0);
    }
    EXPECT_EQ(cairn_persist_close(nullptr), 0);
    EXPECT_EQ(open_descriptors(), before);
}

// Words of the allocator that a free or an allocation uses without a check: bitmaps and heads of
// lists.
TEST(PersistOpen, FindsDamagedLists)
{
    Directory directory;
    cairn_persist *heap = open_heap(directory.file());
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    const auto place_in_file = [&](const void *field) {
        return static_cast<size_t>(static_cast<const char *>(field) - heap->base) +
               PERSIST_DATA_OFFSET;
    };
    std::vector<size_t> places = {place_in_file(&tlsf->first),
                                  place_in_file(&tlsf->free_bytes) + 6};
    for (const unsigned i : {0U, 3U, 31U})
        places.push_back(place_in_file(&tlsf->second[i]));
    for (const unsigned i : {0U, 5U, 40U, 1023U})
        places.push_back(place_in_file(&tlsf->head[i]));
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    cairn_persist_close(heap);
    const std::string bytes = read_file(directory.file());
    for (const size_t place : places) {
        std::string damaged = bytes;
        damaged[place] = static_cast<char>(damaged[place] ^ 0x50);
        write_file(directory.file(), damaged);
        const char *why = nullptr;
        EXPECT_EQ(open_heap(directory.file(), Options(), &why), nullptr) << place;
        EXPECT_EQ(errno, EBADMSG);
        EXPECT_STREQ(why, "the heap's allocator is damaged");
    }
    write_file(directory.file(), bytes);
    ASSERT_NE(heap = open_heap(directory.file()), nullptr);
    cairn_persist_close(heap);
}

TEST(PersistOpen, TheOptionCheckFindsDamage)
{
    Directory directory;
    cairn_persist *heap = open_heap(directory.file());
    char *block = allocate(heap, 5000);
    memset(block, 1, 5000);
    const uint64_t header = reinterpret_cast<uintptr_t>(block) - 8 -
                            reinterpret_cast<uintptr_t>(heap->base) + PERSIST_DATA_OFFSET;
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    cairn_persist_close(heap);
    std::string bytes = read_file(directory.file());
    bytes[header] = static_cast<char>(bytes[header] ^ 1);
    write_file(directory.file(), bytes);
    const char *why = nullptr;
    EXPECT_EQ(open_heap(directory.file(), Options().with(CAIRN_PERSIST_CHECK), &why), nullptr);
    EXPECT_EQ(errno, EBADMSG);
    EXPECT_NE(why, nullptr);
    ASSERT_NE(heap = open_heap(directory.file()), nullptr)
        << "without the option damage is not searched for";
    EXPECT_NE(check(heap), "");
    cairn_persist_close(heap);
}

} // namespace persist_open_test
