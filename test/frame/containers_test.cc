// The containers of the standard library over every allocator, by std::pmr and by cairn::allocator.

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/cairn.hpp"
#include "frame/frame_kit.h"

namespace containers_test
{

using namespace frame_kit;

struct HeapSubject {
    cairn_allocator get() { return cairn_heap_allocator(); }
};
struct StackSubject {
    cairn::stack_ptr stack = cairn::make_stack();
    cairn::stack_frame frame{stack.get()};
    cairn_allocator get() { return frame.allocator(); }
};
struct ScopeSubject {
    cairn::scope scope;
    cairn_allocator get() { return scope.allocator(); }
};
struct FifoSubject {
    cairn::fifo_ptr fifo = cairn::make_fifo();
    cairn_allocator get() { return cairn_fifo_allocator(fifo.get()); }
};
struct RingSubject {
    cairn::ring_ptr ring = cairn::make_ring();
    cairn::ring_frame frame{ring.get()};
    cairn_allocator get() { return frame.allocator(); }
};
struct TlsfSubject {
    cairn::tlsf_ptr heap = cairn::make_tlsf(16 * kMiB);
    cairn_allocator get() { return cairn_tlsf_allocator(heap.get()); }
};
struct SharedTlsfSubject {
    cairn::tlsf_shared_ptr heap = cairn::make_shared_tlsf(16 * kMiB);
    cairn_allocator get() { return cairn_tlsf_shared_allocator(heap.get()); }
};
struct PagesSubject {
    cairn_allocator get() { return cairn_pages_allocator(); }
};

template <class Subject> class Containers : public testing::Test
{
  protected:
    Subject subject_;
    cairn_allocator from_ = subject_.get();
    cairn::resource memory_{from_};
};

using Subjects = testing::Types<HeapSubject, StackSubject, ScopeSubject, FifoSubject, RingSubject,
                                TlsfSubject, SharedTlsfSubject, PagesSubject>;
TYPED_TEST_SUITE(Containers, Subjects);

// Each work function uses a container over an allocator or over a resource.
template <class Vector> void use_vector(Vector numbers)
{
    for (int i = 0; i < 2000; i++)
        numbers.push_back(i);
    numbers.erase(numbers.begin(), numbers.begin() + 1000);
    numbers.shrink_to_fit();
    Vector moved = std::move(numbers);
    Vector copy = moved;
    EXPECT_EQ(copy, moved);
    EXPECT_EQ(copy.front(), 1000);
}

template <class List> void use_list(List list)
{
    for (int i = 0; i < 500; i++)
        list.push_front(i);
    list.sort(std::less<int>());
    list.remove_if([](int number) { return number % 2 == 0; });
    List moved = std::move(list);
    EXPECT_EQ(moved.size(), 250u);
    EXPECT_EQ(moved.front(), 1);
}

template <class Map> void use_map(Map map)
{
    for (int i = 0; i < 1000; i++)
        map[i * 7 % 500] += i;
    for (int i = 0; i < 250; i++)
        map.erase(i);
    Map other(map.get_allocator());
    other.swap(map);
    EXPECT_EQ(other.size(), 250u);
    EXPECT_TRUE(map.empty());
}

template <class String> void use_string(String text)
{
    for (int i = 0; i < 300; i++)
        text += std::string(static_cast<size_t>(i), 'x').c_str();
    EXPECT_EQ(text.size(), 300u * 299 / 2);
}

template <class T> using own = cairn::allocator<T>;
using Pair = std::pair<const int, long>;

TYPED_TEST(Containers, OfOurAllocator)
{
    use_vector(std::vector<int, own<int>>(this->from_));
    use_vector(std::deque<int, own<int>>(this->from_));
    use_list(std::list<int, own<int>>(this->from_));
    use_map(std::map<int, long, std::less<int>, own<Pair>>(this->from_));
    use_map(
        std::unordered_map<int, long, std::hash<int>, std::equal_to<int>, own<Pair>>(this->from_));
    use_string(std::basic_string<char, std::char_traits<char>, own<char>>(this->from_));
}

TYPED_TEST(Containers, OfPmr)
{
    use_vector(std::pmr::vector<int>(&this->memory_));
    use_list(std::pmr::list<int>(&this->memory_));
    use_map(std::pmr::map<int, long>(&this->memory_));
    use_map(std::pmr::unordered_map<int, long>(&this->memory_));
    use_string(std::pmr::string(&this->memory_));
    // the vector passes the resource to its strings
    std::pmr::vector<std::pmr::string> strings(&this->memory_);
    for (size_t i = 0; i < 100; i++)
        strings.emplace_back(std::string(i, 'y'));
    EXPECT_EQ(strings[99].get_allocator().resource(), &this->memory_);
}

// Containers of nodes work with a pool, since their blocks are of one size.
TEST(ContainersOfNodes, OfAPool)
{
    cairn_pool_options options = {};
    options.shared = true;
    for (bool shared : {false, true}) {
        cairn::pool_ptr pool = cairn::make_pool(64, 16, shared ? options : cairn_pool_options{});
        cairn_allocator from = cairn_pool_allocator(pool.get());
        use_list(std::list<int, own<int>>(from));
        use_map(std::map<int, long, std::less<int>, own<Pair>>(from));
        cairn::resource memory(from);
        use_list(std::pmr::list<int>(&memory));
        use_map(std::pmr::map<int, long>(&memory));
        std::vector<int, own<int>> numbers(from);
        EXPECT_THROW(numbers.resize(100), std::bad_alloc); // more than one object of the pool
    }
}

TEST(ContainersOfPairs, OfDifferentAllocatorsAreNotEqual)
{
    cairn::stack_ptr stack = cairn::make_stack();
    own<int> one(cairn_stack_allocator(stack.get()));
    own<long> same(one);
    own<int> other(cairn_heap_allocator());
    EXPECT_TRUE(one == same);
    EXPECT_TRUE(one != other);
    // Elements move one by one where memory cannot change its allocator.
    std::vector<int, own<int>> numbers({1, 2, 3}, one);
    std::vector<int, own<int>> moved(std::move(numbers), other);
    EXPECT_EQ(moved.size(), 3u);
    EXPECT_TRUE(moved.get_allocator() == other);
}

} // namespace containers_test
