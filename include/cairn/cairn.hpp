// Cairn in C++ 17: its allocators as std::pmr::memory_resource and as STL allocator, frames and
// scopes as objects. Header only, over the C functions.
//
//     cairn::frame frame(stack);                              // ends with the block
//     cairn::resource memory(cairn_stack_allocator(stack));
//     std::pmr::vector<int> numbers(&memory);
//
//     cairn::scope scope;                                     // the thread's own stack, as t_scope
//     std::vector<int, cairn::allocator<int>> squares(cairn_stack_allocator(cairn_thread_stack()));
//
// Containers must be gone before the frame of their memory ends: declare them after it. What a
// frame's allocator hands out is not destroyed with the frame, only its memory ends.
//
// Failure: std::bad_alloc, where the C function gives NULL. Threads: as the allocator below.
#ifndef CAIRN_HPP
#define CAIRN_HPP

#include <cairn/allocator.h>
#include <cairn/fifo.h>
#include <cairn/pages.h>
#include <cairn/ring.h>
#include <cairn/scope.h>
#include <cairn/stack.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>

namespace cairn
{

// A memory resource over any allocator; equal to another exactly if both are over the same one.
class resource final : public std::pmr::memory_resource
{
  public:
    explicit resource(cairn_allocator from) noexcept : from_(from) {}
    cairn_allocator get() const noexcept { return from_; }

  private:
    void *do_allocate(std::size_t size, std::size_t align) override
    {
        void *block = cairn_allocator_alloc(from_, size, align);
        if (block == nullptr)
            throw std::bad_alloc();
        return block;
    }
    void do_deallocate(void *block, std::size_t size, std::size_t) override
    {
        cairn_allocator_free(from_, block, size);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const auto *same = dynamic_cast<const resource *>(&other);
        return same != nullptr && same->from_.context == from_.context &&
               same->from_.operations == from_.operations;
    }

    cairn_allocator from_;
};

// An STL allocator over any allocator; it moves with its container.
template <class T> class allocator
{
  public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    allocator(cairn_allocator from) noexcept
        : from_(from) {} // implicit, so that {stack allocator} will do
    template <class U> allocator(const allocator<U> &other) noexcept : from_(other.get()) {}

    T *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            throw std::bad_array_new_length();
        void *block = cairn_allocator_alloc(from_, count * sizeof(T), alignof(T));
        if (block == nullptr)
            throw std::bad_alloc();
        return static_cast<T *>(block);
    }
    void deallocate(T *block, std::size_t count) noexcept
    {
        cairn_allocator_free(from_, block, count * sizeof(T));
    }
    cairn_allocator get() const noexcept { return from_; }

    template <class U> bool operator==(const allocator<U> &other) const noexcept
    {
        return from_.context == other.get().context && from_.operations == other.get().operations;
    }
    template <class U> bool operator!=(const allocator<U> &other) const noexcept
    {
        return !(*this == other);
    }

  private:
    cairn_allocator from_;
};

// Owners, for std::unique_ptr.
struct deleter {
    void operator()(cairn_stack *stack) const noexcept { cairn_stack_delete(stack); }
    void operator()(cairn_fifo *fifo) const noexcept { cairn_fifo_close(fifo); }
    void operator()(cairn_ring *ring) const noexcept { cairn_ring_close(ring); }
};
using stack_ptr = std::unique_ptr<cairn_stack, deleter>;
using fifo_ptr = std::unique_ptr<cairn_fifo, deleter>;
using ring_ptr = std::unique_ptr<cairn_ring, deleter>;

inline stack_ptr make_stack(const cairn_stack_options &options = {})
{
    stack_ptr stack(cairn_stack_new(&options));
    if (stack == nullptr)
        throw std::bad_alloc();
    return stack;
}

inline fifo_ptr make_fifo(const cairn_fifo_options &options = {})
{
    fifo_ptr fifo(cairn_fifo_new(&options));
    if (fifo == nullptr)
        throw std::bad_alloc();
    return fifo;
}

inline ring_ptr make_ring(const cairn_ring_options &options = {})
{
    ring_ptr ring(cairn_ring_new(&options));
    if (ring == nullptr)
        throw std::bad_alloc();
    return ring;
}

// A frame of a stack, from here to the end of the block.
class frame
{
  public:
    explicit frame(cairn_stack *stack) : stack_(stack), mark_(cairn_stack_push(stack))
    {
        if (mark_.frame == nullptr)
            throw std::bad_alloc();
    }
    ~frame() { cairn_stack_pop(stack_, mark_); }
    frame(const frame &) = delete;
    frame &operator=(const frame &) = delete;

  private:
    cairn_stack *stack_;
    cairn_mark mark_;
};

// A frame of the thread's own stack, as t_scope.
class scope
{
  public:
    scope() : mark_(t_push())
    {
        if (mark_.frame == nullptr)
            throw std::bad_alloc();
    }
    ~scope() { t_pop(mark_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    cairn_mark mark_;
};

// One hold on a sealed frame of a ring; released with the object.
class ring_hold
{
  public:
    ring_hold() noexcept = default;
    explicit ring_hold(cairn_frame frame) noexcept : frame_(frame) {}
    ring_hold(ring_hold &&other) noexcept : frame_(std::exchange(other.frame_, cairn_frame{})) {}
    ring_hold &operator=(ring_hold &&other) noexcept
    {
        if (this != &other) {
            cairn_ring_release(frame_);
            frame_ = std::exchange(other.frame_, cairn_frame{});
        }
        return *this;
    }
    ring_hold(const ring_hold &other) noexcept : frame_(other.frame_)
    {
        if (frame_.chunk != nullptr)
            cairn_ring_retain(frame_, 1);
    }
    ring_hold &operator=(const ring_hold &other) noexcept { return *this = ring_hold(other); }
    ~ring_hold() { cairn_ring_release(frame_); }

  private:
    cairn_frame frame_{};
};

} // namespace cairn

#endif
