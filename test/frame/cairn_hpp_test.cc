// cairn.hpp: owners, frames, holds, typed pools. containers_test.cc tests containers, and
// test/headers/no_exceptions.cc a build without exceptions.

#include "cairn/cairn.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "frame/frame_kit.h"

namespace cairn_hpp_test
{

using namespace frame_kit;

TEST(Resource, EqualOverTheSameAllocatorOnly)
{
    cairn::stack_ptr one = cairn::make_stack();
    cairn::stack_ptr two = cairn::make_stack();
    cairn::resource a(cairn_stack_allocator(one.get()));
    cairn::resource b(cairn_stack_allocator(one.get()));
    cairn::resource c(cairn_stack_allocator(two.get()));
    EXPECT_EQ(a, b);
    EXPECT_NE(a, c);
    EXPECT_NE(a, *std::pmr::new_delete_resource());
    EXPECT_NE(*std::pmr::new_delete_resource(), a);
    std::pmr::monotonic_buffer_resource other(&a);
    EXPECT_NE(a, other);
}

TEST(Resource, ExhaustionThrows)
{
    cairn_stack_options options = {};
    options.max_bytes = 64 * kKiB;
    cairn::stack_ptr stack = cairn::make_stack(options);
    cairn::resource memory(cairn_stack_allocator(stack.get()));
    std::pmr::vector<int> numbers(&memory);
    EXPECT_THROW(numbers.resize(kMiB), std::bad_alloc);
    std::vector<int, cairn::allocator<int>> more(cairn_stack_allocator(stack.get()));
    EXPECT_THROW(more.resize(kMiB), std::bad_alloc);
    cairn::allocator<int> ints(cairn_stack_allocator(stack.get()));
    EXPECT_THROW(ignore(ints.allocate(SIZE_MAX / 2)), std::bad_array_new_length);
    more.resize(10);
}

TEST(Owner, RefusedOptionsThrow)
{
    cairn_stack_options options = {};
    options.fixed = true; // requires a buffer, which is missing
    EXPECT_THROW(ignore(cairn::make_stack(options)), std::bad_alloc);
    EXPECT_THROW(ignore(cairn::make_pool(0)), std::bad_alloc);
    EXPECT_THROW(ignore(cairn::page_run(SIZE_MAX)), std::bad_alloc);
}

TEST(Owner, EveryAllocatorHasOne)
{
    cairn::stack_ptr stack = cairn::make_stack();
    cairn::fifo_ptr fifo = cairn::make_fifo();
    cairn::ring_ptr ring = cairn::make_ring();
    cairn_pool_options options = {};
    options.shared = true;
    cairn::pool_ptr pool = cairn::make_pool(48, 16, options);
    {
        cairn::pool_magazine_ptr magazine = cairn::attach(pool.get());
        void *object = cairn_pool_magazine_get(magazine.get());
        EXPECT_NE(object, nullptr);
        cairn_pool_magazine_put(magazine.get(), object);
    }
    cairn::tlsf_ptr heap = cairn::make_tlsf(kMiB);
    cairn::tlsf_shared_ptr shared = cairn::make_shared_tlsf(kMiB);
    in_thread([&] {
        void *block = cairn_tlsf_shared_alloc(shared.get(), 100);
        EXPECT_NE(block, nullptr);
        cairn_tlsf_shared_free(shared.get(), block);
    });
    EXPECT_TRUE(stack && fifo && ring && heap && shared);
}

TEST(Heap, EndsWithItsBlocksAndMoves)
{
    cairn_private_heap_options options = {};
    options.limit_bytes = 4 * kMiB;
    cairn::private_heap heap(options);
    ASSERT_TRUE(heap);
    cairn::resource memory(heap.allocator());
    {
        std::pmr::vector<std::pmr::string> names(&memory);
        for (int i = 0; i < 100; i++)
            names.emplace_back("a name that is too long to lie within the string");
        EXPECT_GE(heap.stats().live_blocks, 101u);
        EXPECT_THROW(names.resize(kMiB), std::bad_alloc);
        EXPECT_GT(heap.stats().refusals, 0u);
    }
    EXPECT_EQ(heap.stats().live_blocks, 0u);
    auto number = heap.make_unique<int>(3);
    EXPECT_EQ(*number, 3);
    EXPECT_EQ(cairn_private_heap_of(number.get()), heap.get());
    cairn::private_heap other(std::move(heap));
    EXPECT_FALSE(heap); // NOLINT: the state after a move is tested
    EXPECT_EQ(other.stats().live_blocks, 1u);
    number.reset();
    EXPECT_EQ(other.stats().live_blocks, 0u);
    struct Thrower {
        Thrower() { throw std::runtime_error("x"); }
    };
    EXPECT_THROW(static_cast<void>(other.make<Thrower>()), std::runtime_error);
    EXPECT_EQ(other.stats().live_blocks, 0u);
    EXPECT_NE(other.make<std::string>("left to the end"), nullptr);
    heap = std::move(other);
    EXPECT_EQ(heap.stats().live_blocks, 1u);
}

TEST(PageRun, MovesGrowsAndEnds)
{
    cairn::page_run run(64 * kKiB, 4096, CAIRN_PAGES_ZERO);
    ASSERT_TRUE(run);
    EXPECT_EQ(static_cast<char *>(run.data())[64 * kKiB - 1], 0);
    paint(run.data(), 64 * kKiB, 3);
    cairn::page_run other(std::move(run));
    EXPECT_FALSE(run);
    EXPECT_EQ(run.size(), 0u);
    ASSERT_TRUE(other.resize(4 * kMiB));
    EXPECT_EQ(other.size(), 4 * kMiB);
    EXPECT_TRUE(is_painted(other.data(), 64 * kKiB, 3));
    EXPECT_FALSE(other.resize(SIZE_MAX / 2));
    EXPECT_TRUE(is_painted(other.data(), 64 * kKiB, 3));
    run = std::move(other);
    size_t size = run.size();
    void *pages = run.release();
    EXPECT_FALSE(run);
    EXPECT_EQ(cairn_pages_unmap(pages, size), 0);
}

// An object that records its destruction.
class Noting
{
  public:
    Noting(std::string &order, char letter) : order_(order), letter_(letter) {}
    ~Noting() { order_.push_back(letter_); }
    Noting(const Noting &) = delete;
    Noting &operator=(const Noting &) = delete;

  private:
    std::string &order_;
    char letter_;
};

size_t thread_stack_used()
{
    cairn_stack_stats stats;
    cairn_stack_read_stats(cairn_thread_stack(), &stats);
    return stats.used_bytes;
}

TEST(Scope, ObjectsEndWithTheirBlock)
{
    size_t before = thread_stack_used();
    std::string order;
    try {
        cairn::scope scope;
        std::vector<int, cairn::allocator<int>> squares(scope.allocator());
        for (int i = 0; i < 100; i++)
            squares.push_back(i * i);
        scope.make<Noting>(order, 'a');
        scope.make<Noting>(order, 'b');
        EXPECT_EQ(*scope.make<int>(7), 7);
        cairn::stack_frame frame(cairn_thread_stack());
        frame.make<Noting>(order, 'c');
        throw squares[9];
    } catch (int value) {
        EXPECT_EQ(value, 81);
    }
    EXPECT_EQ(order, "cba");
    EXPECT_EQ(thread_stack_used(), before);
}

TEST(StackFrame, AConstructorThatThrowsLeavesNothing)
{
    struct Throws {
        explicit Throws(int) { throw std::runtime_error("no"); }
        ~Throws() { ADD_FAILURE() << "destroyed, but never constructed"; }
    };
    cairn::stack_ptr stack = cairn::make_stack();
    {
        cairn::stack_frame frame(stack.get());
        EXPECT_THROW(frame.make<Throws>(1), std::runtime_error);
    }
    cairn_stack_stats stats;
    cairn_stack_read_stats(stack.get(), &stats);
    EXPECT_EQ(stats.used_bytes, 0u);
}

cairn_ring_stats stats_of(const cairn::ring_ptr &ring)
{
    cairn_ring_stats stats;
    cairn_ring_read_stats(ring.get(), &stats);
    return stats;
}

struct Bytes {
    char bytes[1000];
};
struct Job {
    cairn_frame frame;
    int number;
};

TEST(RingFrame, IsUndoneWhenAnExceptionPasses)
{
    cairn::ring_ptr ring = cairn::make_ring();
    for (int i = 0; i < 3000; i++) {
        try {
            cairn::ring_frame frame(ring.get());
            ASSERT_TRUE(frame);
            memset(frame.make<Bytes>(), 1, 1000);
            cairn_ring_retain(frame.get(), 2); // for consumers that will never get it
            if (i % 2 == 0)
                throw std::runtime_error("half way");
            EXPECT_EQ(frame.make<Job>(Job{frame.get(), i})->number, i);
        } catch (const std::runtime_error &) {
        }
    }
    EXPECT_EQ(stats_of(ring).sealed, 0u);
    EXPECT_LE(stats_of(ring).chunks, 1u);
    EXPECT_EQ(cairn_ring_delete(ring.get()), 0); // no frame is out
    static_cast<void>(ring.release());
}

TEST(RingFrame, SealedItIsAHoldThatGoesThroughAQueue)
{
    cairn::ring_ptr ring = cairn::make_ring();
    std::vector<cairn_frame> queue;
    std::vector<Job *> jobs;
    for (int i = 0; i < 100; i++) {
        cairn::ring_frame frame(ring.get());
        jobs.push_back(frame.make<Job>(Job{frame.get(), i}));
        cairn::ring_hold hold = frame.seal();
        EXPECT_FALSE(frame);
        EXPECT_TRUE(hold);
        queue.push_back(hold.release());
        EXPECT_FALSE(hold);
    }
    EXPECT_EQ(cairn_ring_delete(ring.get()), EBUSY);
    in_thread([&] {
        for (int i = 0; i < 100; i++) {
            cairn::ring_hold hold(queue[static_cast<size_t>(i)]);
            EXPECT_EQ(jobs[static_cast<size_t>(i)]->number, i);
            EXPECT_EQ(hold.get().chunk, jobs[static_cast<size_t>(i)]->frame.chunk);
        }
    });
    EXPECT_EQ(cairn_ring_delete(ring.release()), 0);
}

TEST(RingHold, CopiesHoldToo)
{
    cairn::ring_ptr ring = cairn::make_ring();
    cairn::ring_frame frame(ring.get());
    auto *block = static_cast<char *>(cairn_allocator_alloc(frame.allocator(), 100, 8));
    paint(block, 100, 1);
    cairn::ring_hold first = frame.seal();
    cairn::ring_hold second = first;
    cairn::ring_hold third = std::move(first);
    second.reset();
    EXPECT_FALSE(first);
    EXPECT_FALSE(second);
    cairn::ring_hold none = second; // a copy of an empty hold is empty
    EXPECT_FALSE(none);
    for (int i = 0; i < 5000; i++) {
        cairn::ring_frame other(ring.get());
        memset(other.make<Bytes>(), 0, sizeof(Bytes));
        cairn::ring_hold released = other.seal();
    }
    EXPECT_TRUE(is_painted(block, 100, 1));
    third = second;
    EXPECT_LE(stats_of(ring).chunks, 1u);
}

TEST(TypedPool, MakesAndDestroys)
{
    std::string order;
    cairn::typed_pool<Noting> pool;
    ASSERT_TRUE(pool);
    Noting *first = pool.make(order, 'a');
    {
        auto second = pool.make_unique(order, 'b');
        EXPECT_EQ(order, "");
    }
    EXPECT_EQ(order, "b");
    cairn::typed_pool<Noting> moved = std::move(pool);
    moved.destroy(first);
    moved.destroy(nullptr);
    EXPECT_EQ(order, "ba");
    EXPECT_EQ(cairn_pool_check(moved.get()), nullptr);
}

TEST(TypedPool, WhatIsNotConstructedGoesBack)
{
    struct Odd {
        explicit Odd(int number)
        {
            if (number % 2 != 0)
                throw std::runtime_error("odd");
        }
    };
    cairn_pool_options options = {};
    options.max_objects = 1;
    cairn::typed_pool<Odd> pool(options);
    for (int i = 0; i < 100; i++)
        EXPECT_THROW(ignore(pool.make(1)), std::runtime_error);
    Odd *even = pool.make(2);
    EXPECT_THROW(ignore(pool.make(4)), std::bad_alloc);
    pool.destroy(even);
}

} // namespace cairn_hpp_test
