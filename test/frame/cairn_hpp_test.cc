// cairn.hpp with the standard containers.

#include "cairn/cairn.hpp"

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/heap.h"
#include "cairn/tlsf.h"
#include "frame/frame_kit.h"

namespace
{

using namespace frame_kit;

template <class Map> void use_map(Map &map)
{
    for (int i = 0; i < 2000; i++)
        map[i * 7 % 1000] += i;
    for (int i = 0; i < 500; i++)
        map.erase(i);
    EXPECT_EQ(map.size(), 500u);
}

TEST(Resource, PmrContainersOnEveryAllocator)
{
    cairn::stack_ptr stack = cairn::make_stack();
    cairn::fifo_ptr fifo = cairn::make_fifo();
    cairn::ring_ptr ring = cairn::make_ring();
    ignore(cairn_ring_open(ring.get()));
    cairn_tlsf *tlsf = cairn_tlsf_new(0);
    for (cairn_allocator from :
         {cairn_stack_allocator(stack.get()), cairn_fifo_allocator(fifo.get()),
          cairn_ring_allocator(ring.get()), cairn_pages_allocator(), cairn_tlsf_allocator(tlsf),
          cairn_heap_allocator()}) {
        cairn::resource memory(from);
        std::pmr::vector<std::pmr::string> strings(&memory);
        for (int i = 0; i < 300; i++)
            strings.emplace_back(std::string(static_cast<size_t>(i), 'x'));
        EXPECT_EQ(strings[299].size(), 299u);
        std::pmr::map<int, long> map(&memory);
        use_map(map);
        std::pmr::unordered_map<int, long> table(&memory);
        use_map(table);
    }
    cairn_tlsf_delete(tlsf);
    cairn_ring_release(cairn_ring_seal(ring.get()));
}

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
    more.resize(10);
}

TEST(Allocator, StandardContainers)
{
    cairn::fifo_ptr fifo = cairn::make_fifo();
    cairn_allocator from = cairn_fifo_allocator(fifo.get());
    std::vector<int, cairn::allocator<int>> numbers(1000, 0, from);
    std::iota(numbers.begin(), numbers.end(), 0);
    std::list<int, cairn::allocator<int>> list(numbers.begin(), numbers.end(), from);
    list.sort(std::greater<int>());
    EXPECT_EQ(list.front(), 999);
    std::map<int, long, std::less<int>, cairn::allocator<std::pair<const int, long>>> map(from);
    use_map(map);
    auto moved = std::move(numbers);
    EXPECT_EQ(moved[999], 999);
    auto copy = moved;
    EXPECT_EQ(copy, moved);
    EXPECT_TRUE(copy.get_allocator() == moved.get_allocator());
}

TEST(Scope, ObjectsEndWithTheirBlock)
{
    cairn_stack_stats before;
    cairn_stack_read_stats(cairn_thread_stack(), &before);
    try {
        cairn::scope scope;
        std::vector<int, cairn::allocator<int>> squares(
            cairn_stack_allocator(cairn_thread_stack()));
        for (int i = 0; i < 100; i++)
            squares.push_back(i * i);
        cairn::frame frame(cairn_thread_stack());
        throw squares[9];
    } catch (int value) {
        EXPECT_EQ(value, 81);
    }
    cairn_stack_stats after;
    cairn_stack_read_stats(cairn_thread_stack(), &after);
    EXPECT_EQ(after.used_bytes, before.used_bytes);
}

TEST(RingHold, CopiesHoldToo)
{
    cairn::ring_ptr ring = cairn::make_ring();
    ignore(cairn_ring_open(ring.get()));
    auto *block = static_cast<char *>(cairn_ring_alloc(ring.get(), 100, 8));
    paint(block, 100, 1);
    cairn::ring_hold first(cairn_ring_seal(ring.get()));
    cairn::ring_hold second = first;
    cairn::ring_hold third = std::move(first);
    second = cairn::ring_hold();
    for (int i = 0; i < 5000; i++) {
        ignore(cairn_ring_open(ring.get()));
        memset(cairn_ring_alloc(ring.get(), 500, 8), 0, 500);
        cairn::ring_hold released(cairn_ring_seal(ring.get()));
    }
    EXPECT_TRUE(is_painted(block, 100, 1));
    third = second;
    cairn_ring_stats stats;
    cairn_ring_read_stats(ring.get(), &stats);
    EXPECT_LE(stats.chunks, 1u);
}

} // namespace
