// Allocators for containers in the persistent heap. cairn/persist.hpp includes this header and says
// which allocator is for which container; programs include that one.
//
// A container in the heap stores its allocator in the heap, too, so the allocator must not hold an
// address of one process. It holds an offset to the start of the heap and looks up the open heap of
// this process.
//
// Cost: an allocation walks along the list of the heaps that this process has open.
#ifndef CAIRN_PERSIST_CONTAINERS_HPP
#define CAIRN_PERSIST_CONTAINERS_HPP

#include <cairn/containers.hpp>
#include <cairn/offset_ptr.hpp>
#include <cairn/persist.h>

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory_resource>
#include <new>
#include <scoped_allocator>
#include <string>
#include <type_traits>

#ifdef __GLIBCXX__
// The nodes of libstdc++ that hold plain pointers although their allocator has other ones. The
// other containers with plain pointers already fail to compile.
namespace std
{
_GLIBCXX_BEGIN_NAMESPACE_VERSION
namespace __detail
{
struct _Hash_node_base;
} // namespace __detail
struct _Fwd_list_node_base;
_GLIBCXX_END_NAMESPACE_VERSION
} // namespace std
#endif

namespace cairn
{
inline namespace CAIRN_HPP_NAMESPACE
{

// ---- the list of open heaps -----------------------------------------------------------------

namespace detail
{

// One entry of the list of open heaps. The list only grows; an entry without a heap is used again.
// A thread that looks up a heap has it open, so the entry does not change meanwhile.
struct open_heap {
    std::atomic<cairn_persist *> heap{nullptr}; // taken with a compare and exchange
    std::atomic<const void *> base{nullptr};    // written by the thread that took the entry
    open_heap *next = nullptr;                  // const once it is in the list
};
CAIRN_API inline std::atomic<open_heap *> open_heaps{nullptr};

inline open_heap *find_open(const void *base) noexcept
{
    open_heap *entry = open_heaps.load(std::memory_order_acquire);
    // pairs with the release in note_open
    while (entry != nullptr && entry->base.load(std::memory_order_acquire) != base)
        entry = entry->next;
    return entry;
}

inline open_heap *take_entry(cairn_persist *heap) noexcept
{
    open_heap *first = open_heaps.load(std::memory_order_acquire);
    for (open_heap *entry = first; entry != nullptr; entry = entry->next) {
        cairn_persist *none = nullptr;
        if (entry->heap.compare_exchange_strong(none, heap))
            return entry;
    }
    auto *entry = new (std::nothrow) open_heap;
    if (entry == nullptr)
        return nullptr;
    entry->heap.store(heap, std::memory_order_relaxed);
    entry->next = first;
    while (!open_heaps.compare_exchange_weak(entry->next, entry, std::memory_order_release,
                                             std::memory_order_acquire))
        ;
    return entry;
}

// Returns NULL if there is no memory for an entry.
inline open_heap *note_open(cairn_persist *heap) noexcept
{
    cairn_persist_stats stats;
    cairn_persist_read_stats(heap, &stats);
    open_heap *entry = take_entry(heap);
    if (entry != nullptr)
        entry->base.store(stats.address, std::memory_order_release);
    return entry;
}

inline void note_closed(open_heap *entry) noexcept
{
    entry->base.store(nullptr, std::memory_order_relaxed);
    entry->heap.store(nullptr, std::memory_order_release); // pairs with take_entry's exchange
}

[[noreturn]] inline void end_without_heap() noexcept
{
    static constexpr char text[] = "cairn: an allocator's persistent heap is not open\n";
    const auto written = ::write(STDERR_FILENO, text, sizeof text - 1);
    static_cast<void>(written);
    std::abort();
}

// The value that the allocators hold: the start of the heap's memory.
class heap_reference
{
  public:
    explicit heap_reference(const void *base) noexcept : base_(base) {}
    [[nodiscard]] const void *base() const noexcept { return base_.get(); }
    [[nodiscard]] cairn_allocator get() const noexcept
    {
        const open_heap *entry = base_ ? find_open(base_.get()) : nullptr;
        if (entry == nullptr)
            end_without_heap();
        return cairn_persist_allocator(entry->heap.load(std::memory_order_relaxed));
    }
    [[nodiscard]] void *allocate(std::size_t count, std::size_t size, std::size_t align) const
    {
        if (count > std::numeric_limits<std::size_t>::max() / size)
            CAIRN_HPP_THROW(std::bad_array_new_length());
        return require(cairn_allocator_alloc(get(), count * size, align));
    }
    void free(void *block, std::size_t size) const noexcept
    {
        cairn_allocator_free(get(), block, size);
    }

  private:
    offset_ptr<const void> base_;
};

#ifdef __GLIBCXX__
template <class T> constexpr bool holds_plain_pointers() noexcept
{
    return std::is_base_of_v<std::__detail::_Hash_node_base, T> ||
           std::is_base_of_v<std::_Fwd_list_node_base, T>;
}
// vector<bool> makes its allocator of words from an allocator of bool.
template <class T, class From>
constexpr bool is_of_vector_of_bool =
    std::is_same_v<From, bool> && std::is_same_v<T, unsigned long>;
#else
template <class T> constexpr bool holds_plain_pointers() noexcept { return false; }
template <class T, class From> constexpr bool is_of_vector_of_bool = false;
#endif

} // namespace detail

// ---- allocators -----------------------------------------------------------------------------

// An allocator for containers that hold only pointers of its own type, in a heap at any address.
// The allocator stays with its container (no propagation), so that a move between heaps moves the
// elements. Two are equal if they are of one heap. Containers of different heaps must not be
// swapped.
template <class T> class persistent_allocator
{
  public:
    using value_type = T;
    using pointer = offset_ptr<T>;
    using const_pointer = offset_ptr<const T>;
    using void_pointer = offset_ptr<void>;
    using const_void_pointer = offset_ptr<const void>;
    using difference_type = std::ptrdiff_t;
    using size_type = std::size_t;
    using is_always_equal = std::false_type;

    explicit persistent_allocator(const detail::heap_reference &heap) noexcept : heap_(heap) {}
    template <class U>
    persistent_allocator(const persistent_allocator<U> &other) noexcept : heap_(other.heap())
    {
        static_assert(!detail::is_of_vector_of_bool<T, U>,
                      "vector<bool> holds plain pointers: cairn::fixed_allocator");
    }

    [[nodiscard]] pointer allocate(std::size_t count)
    {
        static_assert(!detail::holds_plain_pointers<T>(),
                      "this container holds plain pointers: cairn::fixed_allocator");
        return static_cast<T *>(heap_.allocate(count, sizeof(T), alignof(T)));
    }
    void deallocate(pointer block, std::size_t count) noexcept
    {
        heap_.free(block.get(), count * sizeof(T));
    }
    [[nodiscard]] const detail::heap_reference &heap() const noexcept { return heap_; }

    template <class U> bool operator==(const persistent_allocator<U> &other) const noexcept
    {
        return heap_.base() == other.heap().base();
    }
    template <class U> bool operator!=(const persistent_allocator<U> &other) const noexcept
    {
        return !(*this == other);
    }

  private:
    detail::heap_reference heap_;
};

// An allocator with plain pointers for any container, in a heap that is always mapped at one
// address.
template <class T> class fixed_allocator
{
  public:
    using value_type = T;
    using is_always_equal = std::false_type;

    explicit fixed_allocator(const detail::heap_reference &heap) noexcept : heap_(heap) {}
    template <class U>
    fixed_allocator(const fixed_allocator<U> &other) noexcept : heap_(other.heap())
    {
    }

    [[nodiscard]] T *allocate(std::size_t count)
    {
        return static_cast<T *>(heap_.allocate(count, sizeof(T), alignof(T)));
    }
    void deallocate(T *block, std::size_t count) noexcept { heap_.free(block, count * sizeof(T)); }
    [[nodiscard]] const detail::heap_reference &heap() const noexcept { return heap_; }

    template <class U> bool operator==(const fixed_allocator<U> &other) const noexcept
    {
        return heap_.base() == other.heap().base();
    }
    template <class U> bool operator!=(const fixed_allocator<U> &other) const noexcept
    {
        return !(*this == other);
    }

  private:
    detail::heap_reference heap_;
};

// Allocators that pass themselves on to the elements, so that these are in the heap, too.
template <class T>
using persistent_scoped_allocator = std::scoped_allocator_adaptor<persistent_allocator<T>>;
template <class T> using fixed_scoped_allocator = std::scoped_allocator_adaptor<fixed_allocator<T>>;

using persistent_string =
    std::basic_string<char, std::char_traits<char>, persistent_allocator<char>>;
using fixed_string = std::basic_string<char, std::char_traits<char>, fixed_allocator<char>>;

namespace detail
{

// A memory resource inside the heap, to which containers point. Each process makes it anew at its
// place, because its table of virtual functions belongs to the process. There is one for each heap,
// so two are equal if they are one object.
class persistent_resource final : public std::pmr::memory_resource
{
  public:
    explicit persistent_resource(const heap_reference &heap) noexcept : heap_(heap) {}

  private:
    void *do_allocate(std::size_t size, std::size_t align) override
    {
        return heap_.allocate(size, 1, align);
    }
    void do_deallocate(void *block, std::size_t size, std::size_t) override
    {
        heap_.free(block, size);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }

    heap_reference heap_;
};

inline constexpr char resource_name[] = "cairn::persistent_resource";

} // namespace detail

} // namespace CAIRN_HPP_NAMESPACE
} // namespace cairn

#endif
