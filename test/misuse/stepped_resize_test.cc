// A free of a block that another thread resizes, with the method of stepped.h.

#include <map>
#include <set>

#include "misuse/stepped.h"

extern "C" {
#include "heap/hooks.h"
}

namespace
{

using namespace stepped;

// The memory of the freed block may be reused for the new block, which must stay with its caller.
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

// The caller states how many bytes are to be kept.
TEST_F(SteppedDoubleFree, AnotherFreesWhatItsOwnerMovesAndClears)
{
    const auto scenario = [](long n) {
        static void *block;
        StoppedThread mover([] { (void)!cairn_recallocarray(block, 5, 300, 10); },
                            [] {
                                cairn_free(cairn_malloc(100));
                                std::thread([] { block = alone_in_a_slab(); }).join();
                            });
        stop_after(mover, n);
        Beside other([] { cairn_free(block); });
        mover.finish();
    };
    EXPECT_GT(try_every_stop(scenario, 700, 50, "cairn: "), 40);
}

TEST_F(SteppedDoubleFree, AnotherFreesWhatAThirdMovesOfAnEndedThreads)
{
    const auto to_a_slab = [](long n) { move_beside_a_free<3000>(n, false); };
    const auto to_a_run = [](long n) { move_beside_a_free<40 << 10>(n, false); };
    EXPECT_GT(try_every_stop(to_a_slab, 500, 10, "cairn: "), 40);
    EXPECT_GT(try_every_stop(to_a_run, 500, 10, "cairn: "), 40);
}

// Checks that no two blocks overlap and that the heap is consistent.
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

// A large block grows or shrinks in place, and no other block may get its pages during that time.
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

// A free after the block has its new length is valid.
TEST_F(SteppedDoubleFree, AnotherFreesWhatIsResized)
{
    EXPECT_GT(try_every_stop(resize_beside_a_free<40 << 10, 80 << 10>, 300, 300, "cairn: "), 40);
    EXPECT_GT(try_every_stop(resize_beside_a_free<80 << 10, 40 << 10>, 300, 300, "cairn: "), 40);
    EXPECT_GT(try_every_stop(resize_beside_a_free<64 << 20, 70 << 20>, 300, 300, "cairn: "), 40);
}

// When the resize of a traced block fails, the block keeps its mark; after a free the mark has no
// owner.
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
                              std::thread(take).join(); // collects blocks that other threads freed
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

} // namespace
