// Inspection of a persistent heap: statistics that add up, and metadata damaged at each byte, which
// is reported or does no harm.

#include "region/persist_kit.h"

#include <sys/wait.h>

extern "C" {
#include "os/memory.h"
#include "region/tlsf.h"
}

namespace persist_inspect_test
{

using namespace persist;

TEST(PersistInspect, StatisticsAddUp)
{
    Directory directory;
    cairn_persist *heap = open_heap(directory.file());
    ASSERT_NE(heap, nullptr);
    cairn_persist_stats stats = stats_of(heap);
    EXPECT_EQ(stats.size_bytes, 1u << 20);
    EXPECT_EQ(stats.used_blocks, 0u);
    EXPECT_EQ(stats.last_commit, 0u);
    EXPECT_EQ(stats.error, 0);
    char *block = allocate(heap, 1000);
    memset(block, 1, 1000);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    const size_t free_before = stats.free_bytes;
    stats = stats_of(heap);
    EXPECT_EQ(stats.used_blocks, 1u);
    EXPECT_GE(stats.used_bytes, 1000u);
    EXPECT_EQ(stats.free_bytes + stats.used_bytes, free_before);
    EXPECT_EQ(stats.last_commit, 1u);
    EXPECT_EQ(stats.durable_commit, 1u);
    EXPECT_EQ(stats.syncs, 1u);
    EXPECT_GT(stats.logged_pages, 0u);
    EXPECT_GE(stats.logged_bytes, stats.logged_pages * os_page_size());
    EXPECT_EQ(stats.logged_bytes, stats.log_bytes);
    cairn_persist_close(heap);
}

// Opens and uses the heap in a child, since damaged blocks may end the process with a message.
int open_and_use(const std::string &path)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(100);
        close(STDERR_FILENO);
        cairn_persist *heap = open_heap(path);
        if (heap == nullptr)
            _exit(errno == EBADMSG ? 1 : 9);
        if (cairn_persist_check(heap) != nullptr)
            _exit(2);
        const char *found = static_cast<char *>(cairn_persist_get_root(heap, "block"));
        _exit(found != nullptr && strcmp(found, "contents") == 0 ? 0 : 8);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

// A heap in a file has no function for the case that it is full: the address would be another
// process's.
TEST(PersistInspect, AFunctionInTheFileIsRefused)
{
    Directory directory;
    const std::string path = directory.file();
    cairn_persist *heap = open_heap(path);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    cairn_persist_close(heap);
    const std::string bytes = read_file(path);
    for (const size_t field : {offsetof(struct cairn_tlsf, out_of_memory),
                               offsetof(struct cairn_tlsf, out_of_memory_context)}) {
        std::string damaged = bytes;
        damaged[PERSIST_DATA_OFFSET + PERSIST_STATE_BYTES + field] = 64;
        write_file(path, damaged);
        EXPECT_EQ(open_and_use(path), 1) << field;
    }
}

TEST(PersistInspect, MetadataFlippedAtEachByteIsFoundOrDoesNoHarm)
{
    Directory directory;
    const std::string path = directory.file();
    cairn_persist *heap = open_heap(path);
    char *block = allocate(heap, 100);
    memset(block, 0, 100);
    strcpy(block, "contents");
    cairn_persist_set_root(heap, "block", block);
    const uint64_t root =
        reinterpret_cast<uintptr_t>(cairn_offset_get(&persist_state_of(heap)->roots)) -
        reinterpret_cast<uintptr_t>(heap->base);
    const auto contents = static_cast<uint64_t>(block - heap->base);
    ASSERT_EQ(cairn_persist_commit(heap), 0);
    cairn_persist_close(heap);
    const std::string bytes = read_file(path);
    size_t found = 0;
    const auto flip = [&](uint64_t from, uint64_t to, uint64_t step) {
        for (uint64_t at = PERSIST_DATA_OFFSET + from; at < PERSIST_DATA_OFFSET + to; at += step) {
            std::string damaged = bytes;
            damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
            write_file(path, damaged);
            const int end = open_and_use(path);
            EXPECT_TRUE(end <= 2 || end == 8) << end << " at " << at;
            const uint64_t offset = at - PERSIST_DATA_OFFSET;
            const bool is_contents = offset >= contents && offset < contents + 9;
            EXPECT_TRUE(end != 8 || is_contents || offset >= root) << at;
            found += end == 1 || end == 2;
        }
    };
    flip(0, 32, 1); // the state
    flip(32, PERSIST_STATE_BYTES, stride(7));
    // the state of the allocator
    flip(PERSIST_STATE_BYTES, PERSIST_STATE_BYTES + 600, stride(5));
    // the lists of the allocator
    flip(PERSIST_STATE_BYTES + 600, PERSIST_STATE_BYTES + 9000, stride(101));
    // a block's header and a root
    flip(root - 8, root + 40, 1);
    EXPECT_GT(found, 100u);
}

} // namespace persist_inspect_test
