// Frees of one block by two threads, with the method of stepped.h.

#include <map>
#include <vector>

#include "misuse/stepped.h"

namespace
{

using namespace stepped;

// Thread B is stopped while it frees a block; thread C frees the neighbour; then the owner frees
// that neighbour too.
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

// Another thread freed a block; the owner is stopped while it collects; a third thread frees the
// block again.
TEST_F(SteppedDoubleFree, ARemoteOneWhileTheOwnerCollects)
{
    const auto scenario = [](long n) {
        static void *block;
        StoppedThread owner(
            [] { (void)!cairn_malloc(3000); }, // a class without a slab: this call collects
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

// One thread frees with the size, the other without.
TEST_F(SteppedDoubleFree, TwoOtherThreadsOneWithTheSize)
{
    const auto sized_first = [](long n) { end_by_two(n, sized, cairn_free); };
    const auto sized_second = [](long n) { end_by_two(n, cairn_free, sized); };
    EXPECT_GT(try_every_stop(sized_first, 400), 40);
    EXPECT_GT(try_every_stop(sized_second, 400), 40);
}

// One thread moves the block to a larger one. Whichever thread is first, the other call is
// reported.
TEST_F(SteppedDoubleFree, TwoOtherThreadsOneByRealloc)
{
    const auto scenario = [](long n) { end_by_two(n, grow, cairn_free); };
    EXPECT_GT(try_every_stop(scenario, 400, 0, "cairn: "), 40);
}

// The first free releases the slab, after the second one has looked it up.
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

// Fills many adjacent packed slabs and frees all blocks but one near their beginning.
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
        by_address[slab_start(slab)] = blocks;
    // Counted from the first slab, the bit of this block is in the header of the slab behind its
    // own.
    const size_t cold_bytes = size_classes[PACKED_CLASS].side_units * size_t{64};
    const size_t header_words = (sizeof(struct span) + cold_bytes) / sizeof(uint64_t);
    char *third = std::next(by_address.begin(), 2)->first;
    char *stays = third + (2 * header_words - 9 - 2 * PACKED_SLOTS) * 64 * PACKED_BYTES;
    for (auto &[base, blocks] : by_address)
        for (char *block : blocks)
            if (block != stays)
                cairn_free(block);
    return stays;
}

// The first free releases the slab, and its header belongs to a longer free run when the second
// free reads it.
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
            (void)!cairn_malloc(1 << 20); // merges free runs
        });
        stalled.finish();
    };
    EXPECT_GT(try_every_stop(scenario, 200, 0, "cairn: ", "(8-byte block)"), 40);
}

TEST_F(SteppedDoubleFree, TwoThreadsOfALargeBlock)
{
    EXPECT_GT(try_every_stop(free_by_two<40 << 10>, 150), 40);
    EXPECT_GT(try_every_stop(free_by_two<1 << 20>, 150), 40);
}

// The header that the second free has looked up belongs by then to another block, of another
// length, which must stay with its caller.
template <size_t Size> void free_beside_a_header_used_again(long n)
{
    static void *block, *other;
    StoppedThread stalled([] { cairn_free(block); },
                          [] {
                              for (int i = 0; i < 8; i++) { // from now on its runs are kept
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
        (void)!cairn_malloc(Size); // takes the freed run again
        for (int i = 0; i < 20 && (i == 0 || page_map_find(other) != header); i++)
            other = cairn_malloc(Size + PAGE_BYTES);
    });
    stalled.finish();
}

TEST_F(SteppedDoubleFree, TwoThreadsOfALargeBlockWhoseHeaderIsAnothers)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "each large block is a mapping";
    // stops before the header is looked up: the free then hits the new block
    constexpr int kNotFoundYet = 20;
    const auto of_a_short_run = free_beside_a_header_used_again<40 << 10>;
    const auto of_a_long_run = free_beside_a_header_used_again<1 << 20>;
    EXPECT_GT(try_every_stop(of_a_short_run, 150, kNotFoundYet, "cairn: "), 40);
    EXPECT_GT(try_every_stop(of_a_long_run, 150, kNotFoundYet, "cairn: "), 40);
}

TEST_F(SteppedDoubleFree, TwoThreadsOfAMapping)
{
    // Once the block is unmapped, nothing is known about its address.
    EXPECT_GT(try_every_stop(free_by_two<64 << 20>, 60, 0, "cairn: "), 40);
}

// Between the owner's test and its store, another thread's free leaves no trace: then the block was
// freed once, and it is handed out only once.
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
