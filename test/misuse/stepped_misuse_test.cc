// Double frees where two threads meet: one thread is stopped after its n-th instruction, for every
// n, others run on, and the misuse must be reported whatever n is.
//
// Each n is a process of its own.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/stopped_thread.h"
#include "cairn/heap.h"

extern "C" {
#include "heap/heap.h"
#include "heap/tracing.h"
}

namespace
{

constexpr int kPassedExit = 17; // the misuse was not reported
constexpr int kOverExit = 18;   // the stepped call ended before its n-th instruction
constexpr int kTwiceExit = 19;  // a block was handed out twice

// Stops between the owner's test and its store, see TheOwnerAndAnotherAtTheSameInstant.
constexpr int kSameInstant = config_hardened ? 20 : 3;

using stopped_thread::StoppedThread;
using Work = StoppedThread::Work;

// The process ends if the work does before it is stopped.
void stop_after(StoppedThread &stepped, long instructions)
{
    if (!stepped.stop_after(static_cast<size_t>(instructions)))
        _exit(kOverExit);
}

// A thread beside the stopped one, which may hold what it needs: waited for a while at first.
class Beside
{
  public:
    explicit Beside(Work call)
        : thread_([=] {
              call();
              is_over_ = true;
          })
    {
        for (int i = 0; i < 200 && !is_over_; i++)
            usleep(100);
    }
    ~Beside() { thread_.join(); }

  private:
    std::atomic<bool> is_over_{false};
    std::thread thread_;
};

// What becomes of scenario(n) for every n: each must end in the report of a double free, but for so
// many that do no harm. Returns how many instructions were tried.
long try_every_stop(void (*scenario)(long), long most, int pass_unharmed = 0,
                    const char *message = "cairn: double free of 0x")
{
    for (long n = 1; n <= most; n++) {
        int out[2];
        if (pipe(out) != 0)
            abort();
        const pid_t child = fork();
        if (child == 0) {
            dup2(out[1], 2);
            close(out[0]);
            alarm(100);
            scenario(n);
            _exit(kPassedExit);
        }
        close(out[1]);
        std::string text;
        char buffer[512];
        for (ssize_t got; (got = read(out[0], buffer, sizeof buffer)) > 0;)
            text.append(buffer, static_cast<size_t>(got));
        close(out[0]);
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == kOverExit)
            return n - 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == kPassedExit && pass_unharmed-- > 0)
            continue;
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
            << "stopped after instruction " << n << ": status " << status
            << (WIFEXITED(status) && WEXITSTATUS(status) == kTwiceExit ? ", handed out twice" : "");
        EXPECT_NE(text.find(message), std::string::npos)
            << "stopped after instruction " << n << ": " << text;
        if (testing::Test::HasFailure())
            return n;
    }
    return most;
}

class SteppedDoubleFree : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!stopped_thread::kCanStop)
            GTEST_SKIP() << "needs x86-64's trap flag";
    }
};

// B frees a block and is stopped on the way; C frees its neighbour; then the owner frees that.
TEST_F(SteppedDoubleFree, TheOwnersAfterARemoteFreeBesideAStalledOne)
{
    const auto scenario = [](long n) {
        void *first = cairn_malloc(200);
        void *second = cairn_malloc(200);
        StoppedThread stalled([=] { cairn_free(first); });
        stop_after(stalled, n);
        {
            Beside other([=] { cairn_free(second); });
        }
        cairn_free(second);
        _exit(kPassedExit);
    };
    EXPECT_GT(try_every_stop(scenario, 400), 40);
}

// Another thread freed a block; the owner is stopped while it collects; a third frees it again.
TEST_F(SteppedDoubleFree, ARemoteOneWhileTheOwnerCollects)
{
    const auto scenario = [](long n) {
        static void *block;
        StoppedThread owner(
            [] { (void)!cairn_malloc(3000); }, // of a class without a slab: collects
            [] { block = cairn_malloc(200); });
        cairn_free(block);
        stop_after(owner, n);
        Beside other([] {
            cairn_free(block);
            _exit(kPassedExit);
        });
        owner.finish();
    };
    EXPECT_GT(try_every_stop(scenario, 600), 100);
}

template <size_t Size> void free_by_two(long n)
{
    void *block = cairn_malloc(Size);
    StoppedThread stalled([=] { cairn_free(block); });
    stop_after(stalled, n);
    Beside other([=] { cairn_free(block); });
    stalled.finish();
}

TEST_F(SteppedDoubleFree, TwoOtherThreadsOfASmallBlock)
{
    EXPECT_GT(try_every_stop(free_by_two<200>, 400), 40);
}

template <typename First, typename Second> void end_by_two(long n, First first, Second second)
{
    void *block = cairn_malloc(200);
    StoppedThread stalled([=] { first(block); }, [] { cairn_free(cairn_malloc(3000)); });
    stop_after(stalled, n);
    Beside other([=] { second(block); });
    stalled.finish();
}

void sized(void *block) { cairn_free_sized(block, 200); }
void grow(void *block) { (void)!cairn_realloc(block, 3000); }

// One frees with the size, the other without.
TEST_F(SteppedDoubleFree, TwoOtherThreadsOneWithTheSize)
{
    const auto sized_first = [](long n) { end_by_two(n, sized, cairn_free); };
    const auto sized_second = [](long n) { end_by_two(n, cairn_free, sized); };
    EXPECT_GT(try_every_stop(sized_first, 400), 40);
    EXPECT_GT(try_every_stop(sized_second, 400), 40);
}

// One moves the block to a larger one. Whoever is first, the other is told.
TEST_F(SteppedDoubleFree, TwoOtherThreadsOneByRealloc)
{
    const auto scenario = [](long n) { end_by_two(n, grow, cairn_free); };
    EXPECT_GT(try_every_stop(scenario, 400, 0, "cairn: "), 40);
}

// In use alone in its slab, which is not allocated from: freed by another thread it takes the slab
// with it, whose memory may serve what it is moved to.
void *alone_in_a_slab()
{
    std::array<void *, 400> blocks;
    for (void *&block : blocks)
        block = cairn_malloc(200);
    for (void *block : blocks)
        if (block != blocks[0])
            cairn_free(block);
    return blocks[0];
}

// The first free gives the slab back; the second one has found it before.
TEST_F(SteppedDoubleFree, TwoOtherThreadsOfTheLastBlockOfAnEndedThreads)
{
    const auto scenario = [](long n) {
        static void *block;
        StoppedThread stalled([] { cairn_free(block); },
                              [] {
                                  cairn_free(cairn_malloc(100));
                                  std::thread([] { block = alone_in_a_slab(); }).join();
                              });
        stop_after(stalled, n);
        Beside other([] { cairn_free(block); });
        stalled.finish();
    };
    EXPECT_GT(try_every_stop(scenario, 400, 0, "cairn: "), 40);
}

// Many packed slabs side by side, of which one block stays in use, near their beginning.
void *alone_in_packed_slabs()
{
    constexpr size_t kSlabs = 40;
    std::map<struct span *, std::vector<char *>> slabs;
    while (slabs.size() < kSlabs) {
        char *block = static_cast<char *>(cairn_malloc(8));
        struct span *slab = page_map_find(block);
        if (slab_is_packed(slab))
            slabs[slab].push_back(block);
    }
    std::map<char *, std::vector<char *>> by_address;
    for (auto &[slab, blocks] : slabs)
        by_address[slab->base] = blocks;
    // Counted from the first slab its bit lies in the header of the second one behind its own.
    constexpr size_t kHeaderWords = (sizeof(struct span) + PACKED_COLD_64 * 64) / sizeof(uint64_t);
    char *third = std::next(by_address.begin(), 2)->first;
    char *stays = third + (2 * kHeaderWords - 9 - 2 * PACKED_WORDS) * 64 * PACKED_BYTES;
    for (auto &[base, blocks] : by_address)
        for (char *block : blocks)
            if (block != stays)
                cairn_free(block);
    return stays;
}

// Likewise, and the slab's header is that of a longer free run when the second one looks at it.
TEST_F(SteppedDoubleFree, TwoOtherThreadsOfTheLastBlockOfAPackedSlab)
{
    if (!config_packed)
        GTEST_SKIP() << "hardened builds have no packed slabs";
    const auto scenario = [](long n) {
        static void *block;
        StoppedThread stalled([] { cairn_free(block); },
                              [] {
                                  cairn_free(cairn_malloc(100));
                                  std::thread([] { block = alone_in_packed_slabs(); }).join();
                              });
        stop_after(stalled, n);
        Beside other([] {
            cairn_free(block);
            (void)!cairn_malloc(1 << 20); // joins free runs
        });
        stalled.finish();
    };
    EXPECT_GT(try_every_stop(scenario, 200, 0, "cairn: "), 40);
}

// Its memory may come back as the new block, which has to stay its caller's.
template <size_t Size> void move_beside_a_free(long n, bool owned)
{
    static void *block, *moved;
    StoppedThread mover([] { moved = cairn_realloc(block, Size); },
                        [=] {
                            cairn_free(cairn_malloc(100));
                            if (owned)
                                block = alone_in_a_slab();
                            else
                                std::thread([] { block = alone_in_a_slab(); }).join();
                        },
                        [] {
                            for (int i = 0; i < 100; i++)
                                if (cairn_malloc(Size) == moved)
                                    _exit(kTwiceExit);
                        });
    stop_after(mover, n);
    Beside other([] { cairn_free(block); });
    mover.finish();
}

TEST_F(SteppedDoubleFree, AnotherFreesWhatItsOwnerMoves)
{
    const auto scenario = [](long n) { move_beside_a_free<3000>(n, true); };
    EXPECT_GT(try_every_stop(scenario, 400, kSameInstant, "cairn: "), 40);
}

TEST_F(SteppedDoubleFree, AnotherFreesWhatAThirdMovesOfAnEndedThreads)
{
    const auto to_a_slab = [](long n) { move_beside_a_free<3000>(n, false); };
    const auto to_a_run = [](long n) { move_beside_a_free<40 << 10>(n, false); };
    EXPECT_GT(try_every_stop(to_a_slab, 500, 10, "cairn: "), 40);
    EXPECT_GT(try_every_stop(to_a_run, 500, 10, "cairn: "), 40);
}

// No block is part of another, and the heap is whole.
void check_large_blocks()
{
    std::map<char *, size_t> blocks;
    for (int i = 0; i < 200; i++) {
        const size_t size = static_cast<size_t>(36 + 9 * (i % 40)) << 10;
        char *block = static_cast<char *>(cairn_malloc(size));
        blocks[block] = size;
    }
    const char *end = nullptr;
    for (const auto &[block, size] : blocks) {
        if (block < end)
            _exit(kTwiceExit);
        end = block + size;
    }
    heap_verify_all();
}

// A large block grows or shrinks where it is, and its pages must not be others' meanwhile.
template <size_t From, size_t To> void resize_beside_a_free(long n)
{
    static void *block;
    StoppedThread resizes([] { (void)!cairn_realloc(block, To); },
                          [] {
                              block = cairn_malloc(From);
                              void *behind = cairn_malloc(400 << 10);
                              (void)!cairn_malloc(33 << 10);
                              cairn_free(behind);
                              cairn_malloc_trim(0);
                          },
                          check_large_blocks);
    stop_after(resizes, n);
    Beside other([] {
        cairn_free(block);
        cairn_malloc_trim(0);
    });
    resizes.finish();
}

// What is freed after it has its length is no misuse.
TEST_F(SteppedDoubleFree, AnotherFreesWhatIsResized)
{
    EXPECT_GT(try_every_stop(resize_beside_a_free<40 << 10, 80 << 10>, 300, 300, "cairn: "), 40);
    EXPECT_GT(try_every_stop(resize_beside_a_free<80 << 10, 40 << 10>, 300, 300, "cairn: "), 40);
    EXPECT_GT(try_every_stop(resize_beside_a_free<64 << 20, 70 << 20>, 300, 300, "cairn: "), 40);
}

// A traced block's resize that fails gives it its mark again, which is nobody's once it is freed.
template <size_t Size> void fail_beside_a_free(long n)
{
    static void *block;
    static const struct heap_tracer deaf = {
        [](void *allocated, size_t, size_t, bool) { return allocated; },
        [](void *, bool) {},
        [](void *, size_t, bool) {},
    };
    StoppedThread resizes([] { (void)!heap_resize(block, SIZE_MAX / 2 + 1); },
                          [] {
                              cairn_free(cairn_malloc(Size));
                              heap_trace_start(&deaf);
                              const auto take = [] {
                                  std::array<void *, 40> blocks;
                                  for (void *&each : blocks)
                                      each = cairn_malloc(Size);
                                  block = blocks[20];
                              };
                              std::thread(take).join(); // what is freed of it is collected at once
                          },
                          [] {
                              const auto adopt = [] {
                                  std::set<void *> blocks;
                                  for (int i = 0; i < 400; i++)
                                      if (!blocks.insert(cairn_malloc(200)).second)
                                          _exit(kTwiceExit);
                              };
                              std::thread(adopt).join();
                              check_large_blocks();
                          });
    stop_after(resizes, n);
    Beside other([] {
        cairn_free(block);
        cairn_malloc_trim(0);
    });
    resizes.finish();
}

TEST_F(SteppedDoubleFree, AnotherFreesWhatCannotBeResizedAndIsTraced)
{
    EXPECT_GT(try_every_stop(fail_beside_a_free<200>, 900, 900, " 0x"), 40);
}

TEST_F(SteppedDoubleFree, AnotherFreesALargeBlockThatCannotBeResizedAndIsTraced)
{
    EXPECT_GT(try_every_stop(fail_beside_a_free<40 << 10>, 900, 900, " 0x"), 40);
}

TEST_F(SteppedDoubleFree, TwoThreadsOfALargeBlock)
{
    EXPECT_GT(try_every_stop(free_by_two<40 << 10>, 150), 40);
    EXPECT_GT(try_every_stop(free_by_two<1 << 20>, 150), 40);
}

// The header that the second free has found is by then another block's, of another length, which
// has to stay its caller's.
template <size_t Size> void free_beside_a_header_used_again(long n)
{
    static void *block, *other;
    StoppedThread stalled([] { cairn_free(block); },
                          [] {
                              for (int i = 0; i < 8; i++) { // its runs are kept from here on
                                  cairn_free(block);
                                  block = cairn_malloc(Size);
                              }
                              (void)!cairn_malloc(Size);
                          },
                          [] {
                              for (int i = 0; i < 20; i++)
                                  if (cairn_malloc(Size) == other ||
                                      cairn_malloc(Size + PAGE_BYTES) == other)
                                      _exit(kTwiceExit);
                          });
    struct span *header = page_map_find(block);
    stop_after(stalled, n);
    Beside frees([=] {
        cairn_free(block);
        cairn_malloc_trim(0);
        (void)!cairn_malloc(Size); // there again
        for (int i = 0; i < 20 && (i == 0 || page_map_find(other) != header); i++)
            other = cairn_malloc(Size + PAGE_BYTES);
    });
    stalled.finish();
}

TEST_F(SteppedDoubleFree, TwoThreadsOfALargeBlockWhoseHeaderIsAnothers)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "each is a mapping";
    constexpr int kNotFoundYet = 20; // then it frees what was handed out again
    const auto of_a_short_run = free_beside_a_header_used_again<40 << 10>;
    const auto of_a_long_run = free_beside_a_header_used_again<1 << 20>;
    EXPECT_GT(try_every_stop(of_a_short_run, 150, kNotFoundYet, "cairn: "), 40);
    EXPECT_GT(try_every_stop(of_a_long_run, 150, kNotFoundYet, "cairn: "), 40);
}

TEST_F(SteppedDoubleFree, TwoThreadsOfAMapping)
{
    // Once it is unmapped, nothing is known of its address.
    EXPECT_GT(try_every_stop(free_by_two<64 << 20>, 60, 0, "cairn: "), 40);
}

// Between its owner's test and store another thread's free leaves no trace: then the block was
// freed once, and nobody has it twice.
TEST_F(SteppedDoubleFree, TheOwnerAndAnotherAtTheSameInstant)
{
    const auto scenario = [](long n) {
        static void *block;
        const auto take_all = [] {
            int same = 0;
            for (int i = 0; i < 400; i++)
                same += cairn_malloc(200) == block;
            if (same > 1)
                _exit(kTwiceExit);
        };
        StoppedThread owner([] { cairn_free(block); },
                            [] {
                                (void)!cairn_malloc(200);
                                block = cairn_malloc(200);
                            },
                            take_all);
        stop_after(owner, n);
        Beside other([] { cairn_free(block); });
        owner.finish();
    };
    EXPECT_GT(try_every_stop(scenario, 200, kSameInstant), 20);
}

} // namespace
