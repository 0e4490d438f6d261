// Instantiates every template of cairn.hpp and persist.hpp. headers_test.py compiles it in several
// ways, and does not run it.
#include <cairn/cairn.hpp>
#include <cairn/persist.hpp>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

template class cairn::allocator<int>;
template class cairn::typed_pool<std::string>;
template class cairn::offset_ptr<const long>;
template class cairn::persistent_allocator<int>;
template class cairn::fixed_allocator<int>;
template class std::vector<int, cairn::persistent_allocator<int>>;
template class std::deque<int, cairn::persistent_allocator<int>>;
template struct std::hash<cairn::offset_ptr<int>>;

std::size_t use_a_persistent_heap(const char *path)
{
    using texts = std::vector<cairn::persistent_string,
                              cairn::persistent_scoped_allocator<cairn::persistent_string>>;
    using map =
        std::map<int, int, std::less<int>, cairn::fixed_allocator<std::pair<const int, int>>>;
    cairn::persistent_heap heap(path);
    cairn::commit_guard guard(heap);
    auto *all = heap.root<texts>("texts", heap.allocator<char>());
    all->emplace_back("x");
    all->erase(all->begin());
    (*heap.root<map>("map", heap.fixed_allocator<char>()))[1] = 2;
    std::pmr::vector<int> numbers(10, heap.resource());
    return heap.remove<map>("map") == 0 && guard.commit() == 0 ? all->size() : numbers.size();
}

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
    cairn::private_heap tenant;
    cairn::resource of_tenant(tenant.allocator());
    std::pmr::vector<int> its(tenant.stats().live_blocks, &of_tenant);
    auto one = tenant.make_unique<int>(1);
    cairn::typed_pool<std::string> texts;
    auto text = texts.make_unique("y");
    return static_cast<int>(strings.size() + numbers.size()) + (number == nullptr);
}
