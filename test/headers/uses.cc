// Every template of cairn.hpp, instantiated; compiled only, by headers_test.py, in several ways.
#include <cairn/cairn.hpp>

#include <string>
#include <vector>

template class cairn::allocator<int>;
template class cairn::typed_pool<std::string>;

int main()
{
    cairn::scope scope;
    cairn::stack_ptr stack = cairn::make_stack();
    cairn::stack_frame frame(stack.get());
    cairn::resource memory(frame.allocator());
    std::pmr::vector<std::pmr::string> strings(&memory);
    strings.emplace_back("x");
    std::vector<int, cairn::allocator<int>> numbers(scope.allocator());
    numbers.push_back(*scope.make<int>(1));
    cairn::fifo_ptr fifo = cairn::make_fifo();
    cairn::ring_ptr ring = cairn::make_ring();
    cairn::ring_frame message(ring.get());
    long *number = message.make<long>(2);
    cairn::ring_hold hold(message.seal().release());
    cairn::pool_ptr pool = cairn::make_pool(8);
    cairn::pool_magazine_ptr magazine = cairn::attach(pool.get());
    cairn::tlsf_ptr heap = cairn::make_tlsf();
    cairn::tlsf_shared_ptr shared = cairn::make_shared_tlsf();
    cairn::page_run pages(4096);
    cairn::typed_pool<std::string> texts;
    auto text = texts.make_unique("y");
    return static_cast<int>(strings.size() + numbers.size()) + (number == nullptr);
}
