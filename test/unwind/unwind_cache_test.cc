// The cached walk: it finds the stack that a full walk finds, whatever changed since the last walk:
// the innermost frames, some in the middle, all frames, or callers whose frames are at addresses of
// former frames.

#include <gtest/gtest.h>

#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

extern "C" {
#include "unwind/unwind.h"
}

namespace unwind_cache_test
{

enum { FRAMES = 300 };

class UnwindCache : public testing::Test
{
  protected:
    void SetUp() override { unwind_prepare(); }
};

struct Looker {
    std::mt19937 random{1};
    std::vector<struct unwind_cache> cache{1};
    uint32_t thread = 1;
    size_t equal = 0, different = 0, refused = 0, kept = 0;
};

__attribute__((noinline)) void look(Looker *looker)
{
    static thread_local uintptr_t frames[FRAMES];
    unsigned before = looker->cache[0].used;
    unsigned depth = unwind_stack(frames, FRAMES, 0);
    const struct unwind_step *step = unwind_cached(&looker->cache[0], looker->thread);
    if (step == nullptr) {
        looker->refused++;
        return;
    }
    looker->kept += looker->cache[0].used == before;
    bool equal = depth == step->depth;
    for (unsigned i = 0; equal && i < depth; i++, step = step->outer)
        equal = i == 0 || step->address == frames[i]; // the first is an address in this function
    ++(equal ? looker->equal : looker->different);
}

__attribute__((noinline)) void descend(Looker *looker, int levels);

__attribute__((noinline)) void descend_with_room(Looker *looker, int levels)
{
    auto *room = static_cast<volatile char *>(__builtin_alloca(16 + looker->random() % 4 * 32));
    room[0] = 1;
    descend(looker, levels - 1);
    room[1] = 1;
}

__attribute__((noinline)) void descend_twice(Looker *looker, int levels)
{
    look(looker);
    descend(looker, levels - 1);
    descend(looker, levels - 3);
    look(looker);
}

void descend(Looker *looker, int levels)
{
    if (levels <= 0)
        look(looker);
    else if (looker->random() % 3 == 0)
        descend_with_room(looker, levels);
    else if (looker->random() % 4 == 0)
        descend_twice(looker, levels);
    else
        descend(looker, levels - 1);
    volatile int no_tail_call = levels;
    (void)no_tail_call;
}

void check(const Looker &made)
{
    if (made.refused > 0 && made.equal == 0)
        GTEST_SKIP() << "no stack is walked here";
    EXPECT_EQ(made.different, 0U);
    EXPECT_GT(made.equal, 100U);
    EXPECT_GT(made.kept, 0U);
}

TEST_F(UnwindCache, IsTheStackThatIsThere)
{
    Looker looker;
    for (int i = 0; i < 200; i++)
        descend(&looker, 1 + static_cast<int>(looker.random() % 25));
    check(looker);
}

TEST_F(UnwindCache, IsRightOfAThreadWithoutANumber)
{
    Looker looker;
    looker.thread = 0;
    for (int i = 0; i < 200; i++)
        descend(&looker, 1 + static_cast<int>(looker.random() % 25));
    check(looker);
}

TEST_F(UnwindCache, OneCacheServesManyThreadsInTurn)
{
    Looker looker;
    for (int i = 0; i < 40; i++)
        std::thread([&] {
            unwind_forget_thread();
            looker.thread++;
            descend(&looker, 1 + static_cast<int>(looker.random() % 25));
        }).join();
    check(looker);
}

// Functions with frames of equal layout are called in turn at one stack address, so that the frames
// inside them look alike.
__attribute__((noinline)) void look_from_one_place(Looker *looker)
{
    look(looker);
    volatile int no_tail_call = 0;
    (void)no_tail_call;
}

template <int which> __attribute__((noinline)) void look_alike(Looker *looker)
{
    look_from_one_place(looker);
    volatile int no_tail_call = which;
    (void)no_tail_call;
}

template <int which> __attribute__((noinline)) void go_alike(Looker *looker)
{
    static void (*const insides[])(Looker *) = {look_alike<0>, look_alike<1>, look_alike<2>,
                                                look_from_one_place};
    insides[looker->random() % 4](looker);
    volatile int no_tail_call = which;
    (void)no_tail_call;
}

TEST_F(UnwindCache, TellsCallersApartWhoseFramesLieAtOnePlace)
{
    static void (*const outsides[])(Looker *) = {go_alike<0>, go_alike<1>, go_alike<2>, go_alike<3>,
                                                 look_alike<3>};
    Looker looker;
    for (int i = 0; i < 400; i++)
        outsides[looker.random() % 5](&looker);
    check(looker);
}

// Adds one level, whose frame equals the one that was at this address.
__attribute__((noinline)) void recurse(Looker *looker, int levels)
{
    if (levels > 0)
        recurse(looker, levels - 1);
    else
        look(looker);
    volatile int no_tail_call = levels;
    (void)no_tail_call;
}

TEST_F(UnwindCache, CountsTheLevelsOfARecursion)
{
    Looker looker;
    for (int i = 0; i < 400; i++)
        recurse(&looker, static_cast<int>(looker.random() % 60));
    check(looker);
}

// compilers may end it in a jump
__attribute__((noinline)) void replaced(Looker *looker, int levels)
{
    if (levels % 2 == 0)
        return descend(looker, levels - 1);
    return recurse(looker, levels - 1);
}

TEST_F(UnwindCache, FollowsFunctionsThatEndInAJump)
{
    Looker looker;
    for (int i = 0; i < 300; i++)
        replaced(&looker, 1 + static_cast<int>(looker.random() % 10));
    check(looker);
}

volatile bool jumps = true; // volatile: compilers must not see that no call returns

__attribute__((noinline)) void jump_out(Looker *looker, jmp_buf *back, int levels)
{
    if (levels > 0) {
        jump_out(looker, back, levels - 1);
    } else {
        look(looker);
        if (jumps)
            longjmp(*back, 1);
    }
    volatile int no_tail_call = levels;
    (void)no_tail_call;
}

TEST_F(UnwindCache, IsRightAfterALongJump)
{
    Looker looker;
    for (int i = 0; i < 200; i++) {
        jmp_buf back;
        if (setjmp(back) == 0)
            jump_out(&looker, &back, static_cast<int>(looker.random() % 20));
        look(&looker);
        descend(&looker, 1 + static_cast<int>(looker.random() % 8));
    }
    check(looker);
}

// Sorting calls back through frames of the C library.
Looker *of_callback;
int call_back(const void *left, const void *right)
{
    look(of_callback);
    return *static_cast<const int *>(left) - *static_cast<const int *>(right);
}

TEST_F(UnwindCache, GoesThroughOtherLibraries)
{
    Looker looker;
    of_callback = &looker;
    for (int i = 0; i < 100; i++) {
        int numbers[] = {3, 1, 2, 5, 4};
        qsort(numbers, 2 + looker.random() % 4, sizeof numbers[0], call_back);
    }
    check(looker);
}

// Coroutines: stacks of the program that are made and removed, also at addresses of former stacks.
struct Coroutine {
    ucontext_t context, caller;
    void *stack = MAP_FAILED;
    size_t bytes = 0;
    Looker *looker = nullptr;
};
Coroutine *running;

void run_coroutine()
{
    Coroutine *own = running;
    for (;;) {
        descend(own->looker, 1 + static_cast<int>(own->looker->random() % 6));
        swapcontext(&own->context, &own->caller);
    }
}

void resume(Coroutine *coroutine)
{
    running = coroutine;
    swapcontext(&coroutine->caller, &coroutine->context);
}

void start(Coroutine *coroutine, Looker *looker, void *hint, size_t bytes)
{
    coroutine->looker = looker;
    coroutine->bytes = bytes;
    coroutine->stack =
        mmap(hint, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(coroutine->stack, MAP_FAILED);
    ASSERT_EQ(getcontext(&coroutine->context), 0);
    coroutine->context.uc_stack.ss_sp = coroutine->stack;
    coroutine->context.uc_stack.ss_size = bytes;
    coroutine->context.uc_link = nullptr;
    makecontext(&coroutine->context, run_coroutine, 0);
}

void stop(Coroutine *coroutine)
{
    munmap(coroutine->stack, coroutine->bytes);
    coroutine->stack = MAP_FAILED;
}

void run_coroutines(Looker *looker)
{
    enum { COROUTINES = 4, BYTES = 128 << 10 };
    Coroutine coroutines[COROUTINES];
    void *hint = nullptr;
    for (int i = 0; i < 300; i++) {
        Coroutine *one = &coroutines[looker->random() % COROUTINES];
        if (one->stack == MAP_FAILED) {
            start(one, looker, hint, static_cast<size_t>(BYTES) >> looker->random() % 2);
        } else if (looker->random() % 8 == 0) {
            hint = one->stack; // the next stack is there, and may be smaller
            stop(one);
            continue;
        }
        resume(one);
        look(looker);
    }
    for (Coroutine &one : coroutines)
        if (one.stack != MAP_FAILED)
            stop(&one);
}

TEST_F(UnwindCache, FollowsCoroutines)
{
    Looker looker;
    run_coroutines(&looker);
    check(looker);
}

TEST_F(UnwindCache, FollowsCoroutinesOfAnyThread)
{
    Looker looker;
    for (int i = 0; i < 4; i++)
        std::thread([&] {
            unwind_forget_thread();
            looker.thread++;
            run_coroutines(&looker);
        }).join();
    check(looker);
}

TEST_F(UnwindCache, StacksThatAreAlikeHaveOneHash)
{
    Looker looker;
    std::vector<uint64_t> hashes;
    for (volatile int i = 0; i < 3; i = i + 1) {
        const struct unwind_step *step = unwind_cached(&looker.cache[0], looker.thread);
        if (step == nullptr)
            GTEST_SKIP() << "no stack is walked here";
        hashes.push_back(step->hash);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_EQ(hashes[1], hashes[2]);
}

// The cache knows every frame of a stack that was unmapped, and the words of another stack are
// below it.
TEST_F(UnwindCache, TouchesNothingOfAStackThatIsGone)
{
    enum { BYTES = 64 << 10 };
    Looker looker;
    void *both = mmap(nullptr, 2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(both, MAP_FAILED);
    munmap(both, 2 * BYTES);
    Coroutine below;
    start(&below, &looker, both, BYTES);
    for (int i = 0; i < 20; i++) {
        Coroutine above;
        start(&above, &looker, static_cast<char *>(both) + BYTES, BYTES);
        resume(&above);
        resume(&below);
        stop(&above);
        resume(&below);
    }
    stop(&below);
    check(looker);
}

#if defined(__x86_64__)
// A hand-written switch pushes the start of an endless function as the return address of a
// coroutine's first function. The return address minus one is in the function before, whose frame
// is larger than the rest of the stack.
__asm__(".text\n"
        ".type before_nobody, @function\n"
        "before_nobody: .cfi_startproc\n"
        ".cfi_def_cfa_offset 0x4000\n"
        "nop\n"
        ".cfi_endproc\n"
        ".size before_nobody, . - before_nobody\n"
        ".type nobody, @function\n"
        "nobody: .cfi_startproc\n"
        "ud2\n"
        ".cfi_endproc\n"
        ".size nobody, . - nobody\n");
extern "C" void nobody() __asm__("nobody");

struct Found {
    ucontext_t context, caller;
    uintptr_t frames[FRAMES];
    unsigned depth[3];
    const struct unwind_step *step[3];
};
Found *found;

__attribute__((noinline)) void return_to_nobody()
{
    const auto frame = reinterpret_cast<volatile uintptr_t *>(__builtin_frame_address(0));
    frame[1] = reinterpret_cast<uintptr_t>(nobody);
    static struct unwind_cache cache;
    for (int i = 0; i < 3; i++) {
        found->depth[i] = unwind_stack(found->frames, FRAMES, 0);
        found->step[i] = unwind_cached(&cache, 1);
    }
    swapcontext(&found->context, &found->caller);
}

// The C runtime's unwinder would read beyond the end of the stack here.
TEST_F(UnwindCache, EndsWhereACoroutineReturnsToNobody)
{
    enum { BYTES = 64 << 10 };
    if (CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "qemu-user may say of each address that it can be read";
    auto own = std::make_unique<Found>();
    found = own.get();
    unwind_cache first{};
    if (unwind_cached(&first, 1) == nullptr)
        GTEST_SKIP() << "no stack is walked here";
    auto *stack = static_cast<char *>(mmap(nullptr, size_t{2} * BYTES, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(stack, MAP_FAILED);
    ASSERT_EQ(mprotect(stack + BYTES, BYTES, PROT_NONE), 0);
    ASSERT_EQ(getcontext(&found->context), 0);
    found->context.uc_stack.ss_sp = stack;
    found->context.uc_stack.ss_size = BYTES;
    found->context.uc_link = nullptr;
    makecontext(&found->context, return_to_nobody, 0);
    swapcontext(&found->caller, &found->context);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(found->depth[i], 2U);
        ASSERT_NE(found->step[i], nullptr);
        EXPECT_EQ(found->step[i]->depth, 2U);
        EXPECT_EQ(found->step[i]->outer->address, reinterpret_cast<uintptr_t>(nobody));
    }
    munmap(stack, size_t{2} * BYTES);
}
#endif

// Only a return address of 0 marks the end of the stack.
__attribute__((noinline)) void return_to_zero(Looker *looker)
{
    const auto frame = reinterpret_cast<volatile uintptr_t *>(__builtin_frame_address(0));
    const uintptr_t caller = frame[1];
    frame[1] = 0;
    look(looker);
    look(looker);
    descend(looker, 3);
    frame[1] = caller;
}

TEST_F(UnwindCache, EndsWhereTheReturnAddressIsZero)
{
    Looker looker;
    for (int i = 0; i < 100; i++)
        return_to_zero(&looker);
    check(looker);
}

__attribute__((noinline)) int deep(Looker *looker, int levels)
{
    int below = levels > 0 ? deep(looker, levels - 1)
                           : unwind_cached(&looker->cache[0], looker->thread) != nullptr;
    volatile int no_tail_call = below;
    return no_tail_call;
}

TEST_F(UnwindCache, RefusesWhatIsDeeperThanItHolds)
{
    Looker looker;
    EXPECT_FALSE(deep(&looker, 2 * UNWIND_CACHE_DEPTH));
    look(&looker);
    EXPECT_FALSE(deep(&looker, UNWIND_CACHE_DEPTH));
    look(&looker);
    EXPECT_EQ(looker.different, 0U);
}

// There are more stacks than the cache holds: it drops its entries, and stays correct.
TEST_F(UnwindCache, AFullCacheBeginsAnew)
{
    Looker looker;
    for (int i = 0; i < 40; i++)
        recurse(&looker, 190 + i % 30);
    for (int i = 0; i < 2000; i++)
        descend(&looker, 1 + static_cast<int>(looker.random() % 30));
    check(looker);
}

} // namespace unwind_cache_test
