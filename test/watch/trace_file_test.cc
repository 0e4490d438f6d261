// The file of a trace: chunks in the order of their bounds, whichever thread begins them; names
// that are never used twice; the final state in the header. Each case needs a process of its own.

#include "watch/trace_kit.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

extern "C" {
#include "watch/trace_format.h"
#include "watch/trace_file.h"
}

namespace trace_file_test
{

using trace_kit::Place;

std::string path;

int begin(const Place &place, uint64_t limit = 0)
{
    path = place.path();
    EXPECT_TRUE(trace_file_place(path.data(), path.size(), limit));
    int error = trace_file_begin(0, 0);
    if (error == 0)
        trace_file_set_state(TRACE_FILE_ON);
    return error;
}

// Refuses MADV_WIPEONFORK, like Linux before 4.14.
bool refuse_wiping()
{
    struct sock_filter report_misuse[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_WIPEONFORK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {std::size(report_misuse), report_misuse};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(TraceFile, IsNotBegunWhereAForkWipesNothing)
{
    const Place place;
    pid_t child = fork();
    if (child == 0) {
        if (!refuse_wiping())
            _exit(77);
        (void)trace_file_place(place.path().data(), place.path().size(), 0);
        _exit(trace_file_begin(0, 0) == -EOPNOTSUPP ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        GTEST_SKIP() << "seccomp filters are not permitted";
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(place.files().empty());
}

TEST(TraceFile, ChunksLieInTheOrderOfTheirBounds)
{
    enum { THREADS = 6, EACH = 40 };
    const Place place;
    ASSERT_EQ(begin(place), 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back([] {
            for (int j = 0; j < EACH; j++) {
                uint64_t before = load_relaxed(&trace_file.order.value);
                uint64_t first = 0;
                struct trace_chunk *chunk = trace_file_chunk(&first);
                ASSERT_NE(chunk, nullptr);
                EXPECT_LE(before, trace_file_order());
                encode_text(chunk, first, 0);
                EXPECT_LT(first, trace_file_order());
                trace_file_unmap(chunk);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    trace_file_end(TRACE_ENDED, TRACE_NO_REASON);
    EXPECT_EQ(trace_file.header->chunks, uint64_t{THREADS} * EACH);
    EXPECT_EQ(trace_file.header->end_order, uint64_t{THREADS} * EACH * 2);
    std::ifstream file(place.file(getpid()), std::ios::binary);
    uint64_t last = 0;
    for (int i = 0; i < THREADS * EACH; i++) {
        struct trace_chunk chunk;
        file.seekg(TRACE_HEADER_BYTES + static_cast<long>(i) * TRACE_CHUNK_BYTES);
        file.read(reinterpret_cast<char *>(&chunk), sizeof chunk);
        ASSERT_EQ(chunk.kind, uint32_t{TRACE_TEXT});
        ASSERT_GE(chunk.first_order, last);
        last = chunk.first_order;
    }
}

TEST(TraceFile, NeverWritesOverAFileThatIsThere)
{
    const Place place;
    std::ofstream(place.file(getpid(), 1)) << "kept";
    std::ofstream(place.file(getpid(), 2)) << "kept";
    ASSERT_EQ(begin(place), 0);
    EXPECT_EQ(trace_file.header->number, 3U);
    EXPECT_EQ(trace_kit::read(place.file(getpid(), 3)).error, "");
    std::string text;
    std::ifstream(place.file(getpid(), 1)) >> text;
    EXPECT_EQ(text, "kept");
}

TEST(TraceFile, TheFirstEndCounts)
{
    const Place place;
    ASSERT_EQ(begin(place, TRACE_HEADER_BYTES + TRACE_CHUNK_BYTES), 0);
    uint64_t first;
    struct trace_chunk *chunk = trace_file_chunk(&first);
    ASSERT_NE(chunk, nullptr);
    (void)trace_file_order();
    EXPECT_EQ(trace_file_chunk(&first), nullptr);
    EXPECT_EQ(trace_file_state(), uint32_t{TRACE_FILE_OFF});
    trace_file_end(TRACE_ENDED, TRACE_NO_REASON);
    EXPECT_EQ(trace_file.header->state, uint32_t{TRACE_CUT});
    EXPECT_EQ(trace_file.header->reason, uint32_t{TRACE_LIMIT});
    EXPECT_EQ(trace_file.header->end_order, 1U);
    EXPECT_EQ(trace_file.header->chunks, 1U);
    trace_file_unmap(chunk);
}

TEST(TraceFile, AFileThatWasRemovedEndsIt)
{
    const Place place;
    ASSERT_EQ(begin(place), 0);
    close(trace_file.file.number);
    ASSERT_EQ(unlink(place.file(getpid()).c_str()), 0);
    uint64_t first;
    EXPECT_EQ(trace_file_chunk(&first), nullptr);
    EXPECT_EQ(trace_file.header->reason, uint32_t{TRACE_DISK});
}

TEST(TraceFile, RefusesWhatCannotBe)
{
    const std::string longer(2 * TRACE_FILE_PATH_MAX, 'x');
    EXPECT_FALSE(trace_file_place(longer.data(), longer.size(), 0));
    EXPECT_EQ(trace_file_state(), uint32_t{TRACE_FILE_OFF});
    path = testing::TempDir() + "no/such/folder/t";
    ASSERT_TRUE(trace_file_place(path.data(), path.size(), 0));
    EXPECT_EQ(trace_file_begin(0, 0), -ENOENT);
}

} // namespace trace_file_test
