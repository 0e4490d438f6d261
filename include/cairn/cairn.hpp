// Cairn in C++ 17 and later: owners of its allocators, frames and scopes that end with their block,
// its allocators as std::pmr::memory_resource and as STL allocator, typed pools. Header only, over
// the C functions, whose headers say what it costs and which thread may call what.
//
//     cairn::stack_ptr stack = cairn::make_stack();
//     cairn::stack_frame frame(stack.get());                  // ends with the block
//     cairn::resource memory(frame.allocator());
//     std::pmr::vector<int> numbers(&memory);
//
//     cairn::scope scope;                                     // the thread's own stack, as t_scope
//     std::vector<int, cairn::allocator<int>> squares(scope.allocator());
//
//     cairn::ring_frame message(ring.get());                  // undone unless it is sealed
//     job *next = message.make<job>(number);
//     queue.put(message.seal().release());                    // cairn::ring_hold(frame) takes it
//
// Containers must be gone before the frame of their memory ends: declare them after it. What a
// frame's allocator hands out is not destroyed with the frame, only its memory ends; what
// stack_frame::make and scope::make make is destroyed, the last one first.
//
// Failure: std::bad_alloc, where the C function gives NULL. Compiled without exceptions
// (-fno-exceptions): functions named make_… give an owner of nothing or NULL, objects convert to
// false, and a container, which cannot be told, ends the process with one line on stderr. The
// program may be compiled without RTTI. Objects compiled with and without exceptions do not
// exchange these types: they lie in different inline namespaces, so the linker says so.
#ifndef CAIRN_HPP
#define CAIRN_HPP

#include <cairn/containers.hpp>
#include <cairn/fifo.h>
#include <cairn/heap.h>
#include <cairn/heaps.h>
#include <cairn/pages.h>
#include <cairn/pool.h>
#include <cairn/ring.h>
#include <cairn/scope.h>
#include <cairn/stack.h>
#include <cairn/tlsf.h>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace cairn
{
inline namespace CAIRN_HPP_NAMESPACE
{

// ---- owners ---------------------------------------------------------------------------------

// For std::unique_ptr. A FIFO and a ring end with the last of their objects and frames, everything
// else at once: so a pool's magazines, which keep it from ending, must be gone before it.
struct deleter {
    void operator()(cairn_stack *stack) const noexcept { cairn_stack_delete(stack); }
    void operator()(cairn_fifo *fifo) const noexcept { cairn_fifo_close(fifo); }
    void operator()(cairn_ring *ring) const noexcept { cairn_ring_close(ring); }
    void operator()(cairn_pool *pool) const noexcept { cairn_pool_delete(pool); }
    void operator()(cairn_pool_magazine *magazine) const noexcept { cairn_pool_detach(magazine); }
    void operator()(cairn_tlsf *heap) const noexcept { cairn_tlsf_delete(heap); }
    void operator()(cairn_tlsf_shared *heap) const noexcept
    {
        cairn_tlsf_delete(cairn_tlsf_unshare(heap));
    }
};
using stack_ptr = std::unique_ptr<cairn_stack, deleter>;
using fifo_ptr = std::unique_ptr<cairn_fifo, deleter>;
using ring_ptr = std::unique_ptr<cairn_ring, deleter>;
using pool_ptr = std::unique_ptr<cairn_pool, deleter>;
using pool_magazine_ptr = std::unique_ptr<cairn_pool_magazine, deleter>;
using tlsf_ptr = std::unique_ptr<cairn_tlsf, deleter>;               // of cairn_tlsf_new
using tlsf_shared_ptr = std::unique_ptr<cairn_tlsf_shared, deleter>; // with its heap

[[nodiscard]] inline stack_ptr make_stack(const cairn_stack_options &options = {})
{
    return stack_ptr(detail::checked(cairn_stack_new(&options)));
}

[[nodiscard]] inline fifo_ptr make_fifo(const cairn_fifo_options &options = {})
{
    return fifo_ptr(detail::checked(cairn_fifo_new(&options)));
}

[[nodiscard]] inline ring_ptr make_ring(const cairn_ring_options &options = {})
{
    return ring_ptr(detail::checked(cairn_ring_new(&options)));
}

[[nodiscard]] inline pool_ptr make_pool(std::size_t object_size, std::size_t align = 0,
                                        const cairn_pool_options &options = {})
{
    return pool_ptr(detail::checked(cairn_pool_new(object_size, align, &options)));
}

[[nodiscard]] inline pool_magazine_ptr attach(cairn_pool *pool)
{
    return pool_magazine_ptr(detail::checked(cairn_pool_attach(pool)));
}

[[nodiscard]] inline tlsf_ptr make_tlsf(std::size_t size = 0)
{
    return tlsf_ptr(detail::checked(cairn_tlsf_new(size)));
}

[[nodiscard]] inline tlsf_shared_ptr make_shared_tlsf(std::size_t size = 0)
{
    tlsf_ptr heap = make_tlsf(size);
    tlsf_shared_ptr shared(heap ? detail::checked(cairn_tlsf_share(heap.get())) : nullptr);
    if (shared)
        static_cast<void>(heap.release());
    return shared;
}

// A run of pages, unmapped with the object.
class page_run
{
  public:
    page_run() noexcept = default;
    [[nodiscard]] explicit page_run(std::size_t size, std::size_t align = 1, unsigned flags = 0)
        : data_(detail::checked(cairn_pages_map(size, align, flags))), size_(data_ ? size : 0)
    {
    }
    page_run(page_run &&other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0))
    {
    }
    page_run &operator=(page_run &&other) noexcept
    {
        page_run(std::move(other)).swap(*this);
        return *this;
    }
    ~page_run()
    {
        if (data_ != nullptr)
            static_cast<void>(cairn_pages_unmap(data_, size_));
    }

    explicit operator bool() const noexcept { return data_ != nullptr; }
    [[nodiscard]] void *data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    // The run at a new size, with its contents; false, and it is as it was, when memory is out.
    [[nodiscard]] bool resize(std::size_t size, std::size_t align = 1, unsigned flags = 0) noexcept
    {
        void *moved = cairn_pages_remap(data_, size_, size, align, flags);
        if (moved == nullptr)
            return false;
        data_ = moved;
        size_ = size;
        return true;
    }
    // The pages are the caller's to unmap.
    [[nodiscard]] void *release() noexcept
    {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }
    void swap(page_run &other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

  private:
    void *data_ = nullptr;
    std::size_t size_ = 0;
};

// A first-class heap, ended with the object together with all its blocks. Those of objects still in
// it are not destroyed, only their memory ends.
class heap
{
  public:
    // Destroys the object and gives its block back.
    struct destroyer {
        template <class T> void operator()(T *object) const noexcept
        {
            object->~T();
            cairn_free(object);
        }
    };
    template <class T> using pointer = std::unique_ptr<T, destroyer>;

    [[nodiscard]] explicit heap(const cairn_heap_options &options = {})
        : heap_(detail::checked(cairn_heap_new(&options)))
    {
    }
    heap(heap &&other) noexcept : heap_(std::exchange(other.heap_, nullptr)) {}
    heap &operator=(heap &&other) noexcept
    {
        heap(std::move(other)).swap(*this);
        return *this;
    }
    ~heap() { cairn_heap_delete(heap_); }

    explicit operator bool() const noexcept { return heap_ != nullptr; }
    [[nodiscard]] cairn_heap *get() const noexcept { return heap_; }
    // Of a heap that is true, and until it ends.
    [[nodiscard]] cairn_allocator allocator() const noexcept
    {
        return cairn_heap_own_allocator(heap_);
    }
    [[nodiscard]] cairn_heap_own_stats stats() const noexcept
    {
        cairn_heap_own_stats stats;
        cairn_heap_read_own_stats(heap_, &stats);
        return stats;
    }
    template <class T, class... Arguments> [[nodiscard]] T *make(Arguments &&...arguments)
    {
        block place = {detail::checked(cairn_heap_alloc_aligned(heap_, sizeof(T), alignof(T)))};
        if (place.memory == nullptr)
            return nullptr;
        T *object = ::new (place.memory) T(std::forward<Arguments>(arguments)...);
        place.memory = nullptr;
        return object;
    }
    // The same, destroyed with the pointer, which must not outlive the heap.
    template <class T, class... Arguments>
    [[nodiscard]] pointer<T> make_unique(Arguments &&...arguments)
    {
        return pointer<T>(make<T>(std::forward<Arguments>(arguments)...));
    }
    void swap(heap &other) noexcept { std::swap(heap_, other.heap_); }

  private:
    struct block { // goes back when the constructor throws
        void *memory;
        ~block() { cairn_free(memory); }
    };
    cairn_heap *heap_;
};

// ---- frames ---------------------------------------------------------------------------------

namespace detail
{

template <class T> void destroy(void *object) noexcept { static_cast<T *>(object)->~T(); }

// An object in the newest frame of the stack, destroyed when that ends.
template <class T, class... Arguments> T *make_on(cairn_stack *stack, Arguments &&...arguments)
{
    void *place = checked(cairn_stack_alloc(stack, sizeof(T), alignof(T)));
    if (place == nullptr)
        return nullptr;
    T *object = ::new (place) T(std::forward<Arguments>(arguments)...);
    if constexpr (!std::is_trivially_destructible_v<T>) {
        if (cairn_stack_defer(stack, destroy<T>, object) != 0) {
            object->~T();
            return checked(static_cast<T *>(nullptr));
        }
    }
    return object;
}

} // namespace detail

// A frame of a stack, from here to the end of the block.
class stack_frame
{
  public:
    [[nodiscard]] explicit stack_frame(cairn_stack *stack)
        : stack_(stack), mark_(cairn_stack_push(stack))
    {
        detail::checked(mark_.frame);
    }
    ~stack_frame() { cairn_stack_pop(stack_, mark_); }
    stack_frame(const stack_frame &) = delete;
    stack_frame &operator=(const stack_frame &) = delete;

    explicit operator bool() const noexcept { return mark_.frame != nullptr; }
    [[nodiscard]] cairn_allocator allocator() const noexcept
    {
        return cairn_stack_allocator(stack_);
    }
    template <class T, class... Arguments> T *make(Arguments &&...arguments)
    {
        return detail::make_on<T>(stack_, std::forward<Arguments>(arguments)...);
    }

  private:
    cairn_stack *stack_;
    cairn_mark mark_;
};

// A frame of the thread's own stack, as t_scope.
class scope
{
  public:
    [[nodiscard]] scope() : mark_(cairn_scope_push()) { detail::checked(mark_.frame); }
    ~scope() { cairn_scope_pop(mark_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

    explicit operator bool() const noexcept { return mark_.frame != nullptr; }
    // Of a scope that is true, and until it ends.
    [[nodiscard]] cairn_allocator allocator() const noexcept
    {
        return cairn_stack_allocator(&cairn_thread_stack_head);
    }
    template <class T, class... Arguments> T *make(Arguments &&...arguments)
    {
        return detail::make_on<T>(&cairn_thread_stack_head, std::forward<Arguments>(arguments)...);
    }

  private:
    cairn_mark mark_;
};

// One hold on a sealed frame of a ring, released with the object; a copy is another hold. For a
// queue that carries plain values: release() on one side, ring_hold(frame) on the other.
class ring_hold
{
  public:
    ring_hold() noexcept = default;
    // Takes a hold over that the caller has.
    [[nodiscard]] explicit ring_hold(cairn_frame frame) noexcept : frame_(frame) {}
    ring_hold(ring_hold &&other) noexcept : frame_(other.release()) {}
    ring_hold(const ring_hold &other) noexcept : frame_(other.frame_)
    {
        if (*this)
            cairn_ring_retain(frame_, 1);
    }
    ring_hold &operator=(ring_hold &&other) noexcept
    {
        ring_hold(std::move(other)).swap(*this);
        return *this;
    }
    ring_hold &operator=(const ring_hold &other) noexcept
    {
        ring_hold(other).swap(*this);
        return *this;
    }
    ~ring_hold() { cairn_ring_release(frame_); }

    explicit operator bool() const noexcept { return frame_.chunk != nullptr; }
    [[nodiscard]] cairn_frame get() const noexcept { return frame_; }
    // The hold is the caller's, who releases it with cairn_ring_release or makes a ring_hold of it.
    [[nodiscard]] cairn_frame release() noexcept { return std::exchange(frame_, cairn_frame{}); }
    void reset() noexcept { ring_hold().swap(*this); }
    void swap(ring_hold &other) noexcept { std::swap(frame_, other.frame_); }

  private:
    cairn_frame frame_{};
};

// The open frame of a ring. Unless it is sealed, its end undoes it with all that was allocated in
// it and all its holds, as when an exception passes between open and seal.
class ring_frame
{
  public:
    [[nodiscard]] explicit ring_frame(cairn_ring *ring)
        : ring_(ring), before_(cairn_ring_checkpoint(ring)), frame_(cairn_ring_open(ring))
    {
        detail::checked(frame_.chunk);
    }
    ~ring_frame()
    {
        if (*this)
            static_cast<void>(cairn_ring_rewind(ring_, before_));
    }
    ring_frame(const ring_frame &) = delete;
    ring_frame &operator=(const ring_frame &) = delete;

    // Whether it is open.
    explicit operator bool() const noexcept { return frame_.chunk != nullptr; }
    // To be stored in the frame, and released once it is sealed.
    [[nodiscard]] cairn_frame get() const noexcept { return frame_; }
    [[nodiscard]] cairn_allocator allocator() const noexcept { return cairn_ring_allocator(ring_); }

    // An object in the frame, which ends with it, in any thread, without being destroyed.
    template <class T, class... Arguments> [[nodiscard]] T *make(Arguments &&...arguments)
    {
        static_assert(std::is_trivially_destructible_v<T>,
                      "nobody destroys what a ring's frame has");
        void *place = detail::checked(cairn_ring_alloc(ring_, sizeof(T), alignof(T)));
        return place == nullptr ? nullptr : ::new (place) T(std::forward<Arguments>(arguments)...);
    }

    // Ends the making: the hold that the frame has from now on.
    [[nodiscard]] ring_hold seal() noexcept
    {
        frame_ = cairn_frame{};
        return ring_hold(cairn_ring_seal(ring_));
    }

  private:
    cairn_ring *ring_;
    cairn_checkpoint before_;
    cairn_frame frame_;
};

// ---- typed pools ----------------------------------------------------------------------------

// A pool of objects of one type, which are constructed and destroyed. What is still in use when the
// pool ends is not destroyed, only its memory ends.
template <class T> class typed_pool
{
  public:
    struct destroyer {
        cairn_pool *pool;
        void operator()(T *object) const noexcept
        {
            object->~T();
            cairn_pool_put(pool, object);
        }
    };
    using pointer = std::unique_ptr<T, destroyer>;

    [[nodiscard]] explicit typed_pool(const cairn_pool_options &options = {})
        : pool_(make_pool(sizeof(T), alignof(T), options))
    {
    }
    explicit operator bool() const noexcept { return pool_ != nullptr; }
    [[nodiscard]] cairn_pool *get() const noexcept { return pool_.get(); }

    template <class... Arguments> [[nodiscard]] T *make(Arguments &&...arguments)
    {
        if (pool_ == nullptr)
            return nullptr;
        place unused = {pool_.get(), detail::checked(cairn_pool_get(pool_.get()))};
        if (unused.memory == nullptr)
            return nullptr;
        T *object = ::new (unused.memory) T(std::forward<Arguments>(arguments)...);
        unused.memory = nullptr;
        return object;
    }
    void destroy(T *object) noexcept
    {
        if (object != nullptr)
            destroyer{pool_.get()}(object);
    }
    // The same, destroyed with the pointer, which must not outlive the pool.
    template <class... Arguments> [[nodiscard]] pointer make_unique(Arguments &&...arguments)
    {
        return pointer(make(std::forward<Arguments>(arguments)...), destroyer{pool_.get()});
    }

  private:
    struct place { // goes back when the constructor throws
        cairn_pool *pool;
        void *memory;
        ~place()
        {
            if (memory != nullptr)
                cairn_pool_put(pool, memory);
        }
    };

    pool_ptr pool_;
};

} // namespace CAIRN_HPP_NAMESPACE
} // namespace cairn

#endif
