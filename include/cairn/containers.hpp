// Allocators for the containers of the standard library, in C++ 17 and later: every cairn_allocator
// as std::pmr::memory_resource and as STL allocator.
//
// cairn/cairn.hpp includes this header. Include containers.hpp alone if only containers are needed.
//
// Example:
//
//     #include <cairn/containers.hpp>
//     #include <cairn/heap.h>
//     #include <cairn/stack.h>
//     #include <vector>
//
//     int count(cairn_stack *stack)
//     {
//         cairn::resource memory(cairn_stack_allocator(stack));
//         std::pmr::vector<int> numbers({1, 2, 3}, &memory);
//         std::vector<int, cairn::allocator<int>> squares({1, 4, 9}, cairn_heap_allocator());
//         return static_cast<int>(numbers.size() + squares.size());
//     }
//
// Threads: as for the allocator.
//
// Failure: std::bad_alloc. In programs compiled with -fno-exceptions, one line on stderr and abort.
//
// Caveats:
//  - A container must end before its allocator, and before the frame of its memory.
#ifndef CAIRN_CONTAINERS_HPP
#define CAIRN_CONTAINERS_HPP

#include <cairn/allocator.h>

#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <new>
#include <type_traits>

#ifdef __cpp_exceptions
#define CAIRN_HPP_THROW(exception) throw exception
#define CAIRN_HPP_NAMESPACE        with_exceptions
#else
#define CAIRN_HPP_THROW(exception) detail::end_without_memory()
#define CAIRN_HPP_NAMESPACE        without_exceptions
#endif

namespace cairn
{
inline namespace CAIRN_HPP_NAMESPACE
{

namespace detail
{

[[noreturn]] inline void end_without_memory() noexcept
{
    static constexpr char text[] = "cairn: out of memory in a program without exceptions\n";
    const auto written = ::write(STDERR_FILENO, text, sizeof text - 1);
    static_cast<void>(written);
    std::abort();
}

// Returns the block of a container; it must not be NULL.
inline void *require(void *block)
{
    if (__builtin_expect(block == nullptr, 0))
        CAIRN_HPP_THROW(std::bad_alloc());
    return block;
}

// Throws std::bad_alloc if the pointer is NULL. Without exceptions it returns NULL, which the
// program can check.
template <class Pointer> Pointer checked(Pointer pointer)
{
#ifdef __cpp_exceptions
    if (__builtin_expect(!pointer, 0))
        throw std::bad_alloc();
#endif
    return pointer;
}

inline bool same(cairn_allocator one, cairn_allocator other) noexcept
{
    return one.context == other.context && one.operations == other.operations;
}

} // namespace detail

// A memory resource over any cairn_allocator. Two are equal if they are over one allocator.
class resource final : public std::pmr::memory_resource
{
  public:
    explicit resource(cairn_allocator from) noexcept : from_(from) {}
    [[nodiscard]] cairn_allocator get() const noexcept { return from_; }

  private:
    void *do_allocate(std::size_t size, std::size_t align) override
    {
        return detail::require(cairn_allocator_alloc(from_, size, align));
    }
    void do_deallocate(void *block, std::size_t size, std::size_t) override
    {
        cairn_allocator_free(from_, block, size);
    }
    // Only objects of this final class have its table of virtual functions, so comparing the
    // tables is as good as RTTI.
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const void *table = nullptr;
        const void *other_table = nullptr;
        std::memcpy(&table, static_cast<const void *>(this), sizeof table);
        std::memcpy(&other_table, static_cast<const void *>(&other), sizeof other_table);
        return table == other_table &&
               detail::same(from_, static_cast<const resource &>(other).from_);
    }

    cairn_allocator from_;
};

// An STL allocator over any cairn_allocator. The allocator moves and swaps with its container.
template <class T> class allocator
{
  public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    allocator(cairn_allocator from) noexcept
        : from_(from) {} // implicit, so that a cairn_allocator can be passed
    template <class U> allocator(const allocator<U> &other) noexcept : from_(other.get()) {}

    [[nodiscard]] T *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            CAIRN_HPP_THROW(std::bad_array_new_length());
        return static_cast<T *>(
            detail::require(cairn_allocator_alloc(from_, count * sizeof(T), alignof(T))));
    }
    void deallocate(T *block, std::size_t count) noexcept
    {
        cairn_allocator_free(from_, block, count * sizeof(T));
    }
    [[nodiscard]] cairn_allocator get() const noexcept { return from_; }

    template <class U> bool operator==(const allocator<U> &other) const noexcept
    {
        return detail::same(from_, other.get());
    }
    template <class U> bool operator!=(const allocator<U> &other) const noexcept
    {
        return !(*this == other);
    }

  private:
    cairn_allocator from_;
};

} // namespace CAIRN_HPP_NAMESPACE
} // namespace cairn

#endif
