// Cairn for C++ 17 and later: owners, frames and scopes that end with their block, and typed pools.
//
// Each class stands for the C functions of one header, which says what a call costs and which
// threads may make it. cairn/containers.hpp, which this header includes, has the allocators for
// containers of the standard library; cairn/persist.hpp has the persistent heap. Header only.
//
// Example:
//
//     #include <cairn/cairn.hpp>
//     #include <vector>
//
//     int sum_of_squares(int count)
//     {
//         cairn::stack_ptr stack = cairn::make_stack();
//         cairn::stack_frame frame(stack.get()); // ends with the block
//         cairn::resource memory(frame.allocator());
//         std::pmr::vector<int> numbers(&memory);
//
//         cairn::scope scope;                    // a frame of the thread's own stack, as t_scope
//         std::vector<int, cairn::allocator<int>> squares(scope.allocator());
//         int sum = 0;
//         for (int i = 0; i < count; i++) {
//             numbers.push_back(i);
//             squares.push_back(i * i);
//             sum += squares.back();
//         }
//         return sum;
//     }
//
// Failure: std::bad_alloc where the C function returns NULL. In programs compiled with
// -fno-exceptions, functions named make_... return an empty owner or NULL, objects convert to
// false, and a container ends the process with one line on stderr.
//
// Caveats:
//  - A container must end before the frame of its memory: declare it after the frame.
//  - The frame ends the memory of objects that its allocator() handed out, without destroying
//    them. Objects of stack_frame::make and scope::make are destroyed, the newest first.
//  - Objects compiled with and without exceptions cannot exchange these types: they are in
//  different
//    inline namespaces, so linking fails.
//  - RTTI is not needed.
#ifndef CAIRN_HPP
#define CAIRN_HPP

#include <cairn/containers.hpp>
#include <cairn/fifo.h>
#include <cairn/heap.h>
#include <cairn/pages.h>
#include <cairn/pool.h>
#include <cairn/private_heap.h>
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

// Deletes an allocator for std::unique_ptr. A FIFO and a ring end with the last of their objects or
// frames; all other allocators end at once. The magazines of a pool prevent its end, so they must
// end before it.
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
using tlsf_ptr = std::unique_ptr<cairn_tlsf, deleter>;               // made by cairn_tlsf_new
using tlsf_shared_ptr = std::unique_ptr<cairn_tlsf_shared, deleter>; // owns the heap, too

// Creates a stack that the calling thread owns: see cairn_stack_new.
[[nodiscard]] inline stack_ptr make_stack(const cairn_stack_options &options = {})
{
    return stack_ptr(detail::checked(cairn_stack_new(&options)));
}

// Creates a FIFO that the calling thread owns: see cairn_fifo_new.
[[nodiscard]] inline fifo_ptr make_fifo(const cairn_fifo_options &options = {})
{
    return fifo_ptr(detail::checked(cairn_fifo_new(&options)));
}

// Creates a ring that the calling thread owns: see cairn_ring_new.
[[nodiscard]] inline ring_ptr make_ring(const cairn_ring_options &options = {})
{
    return ring_ptr(detail::checked(cairn_ring_new(&options)));
}

// Creates a pool of objects of `object_size` bytes: see cairn_pool_new.
[[nodiscard]] inline pool_ptr make_pool(std::size_t object_size, std::size_t align = 0,
                                        const cairn_pool_options &options = {})
{
    return pool_ptr(detail::checked(cairn_pool_new(object_size, align, &options)));
}

// Creates a magazine on a shared pool: see cairn_pool_attach.
[[nodiscard]] inline pool_magazine_ptr attach(cairn_pool *pool)
{
    return pool_magazine_ptr(detail::checked(cairn_pool_attach(pool)));
}

// Creates a TLSF heap over a mapping of its own: see cairn_tlsf_new.
[[nodiscard]] inline tlsf_ptr make_tlsf(std::size_t size = 0)
{
    return tlsf_ptr(detail::checked(cairn_tlsf_new(size)));
}

// Creates a TLSF heap over a mapping of its own and adds a lock: see cairn_tlsf_share.
[[nodiscard]] inline tlsf_shared_ptr make_shared_tlsf(std::size_t size = 0)
{
    tlsf_ptr heap = make_tlsf(size);
    tlsf_shared_ptr shared(heap ? detail::checked(cairn_tlsf_share(heap.get())) : nullptr);
    if (shared)
        static_cast<void>(heap.release());
    return shared;
}

// A run of pages (cairn/pages.h). The object unmaps it at its end.
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

    // Changes the size of the run and keeps its contents. Returns false, and changes nothing, when
    // memory is out.
    [[nodiscard]] bool resize(std::size_t size, std::size_t align = 1, unsigned flags = 0) noexcept
    {
        void *moved = cairn_pages_remap(data_, size_, size, align, flags);
        if (moved == nullptr)
            return false;
        data_ = moved;
        size_ = size;
        return true;
    }
    // Hands the pages over: the caller must unmap them.
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

// A private heap (cairn/private_heap.h). The object deletes it with all its blocks at its end.
// Objects that are still in the heap then lose their memory without being destroyed.
class private_heap
{
  public:
    // Destroys the object and frees its block.
    struct destroyer {
        template <class T> void operator()(T *object) const noexcept
        {
            object->~T();
            cairn_free(object);
        }
    };
    template <class T> using pointer = std::unique_ptr<T, destroyer>;

    [[nodiscard]] explicit private_heap(const cairn_private_heap_options &options = {})
        : heap_(detail::checked(cairn_private_heap_new(&options)))
    {
    }
    private_heap(private_heap &&other) noexcept : heap_(std::exchange(other.heap_, nullptr)) {}
    private_heap &operator=(private_heap &&other) noexcept
    {
        private_heap(std::move(other)).swap(*this);
        return *this;
    }
    ~private_heap() { cairn_private_heap_delete(heap_); }

    explicit operator bool() const noexcept { return heap_ != nullptr; }
    [[nodiscard]] cairn_private_heap *get() const noexcept { return heap_; }
    // Requires that the heap converts to true. The allocator is valid until the heap ends.
    [[nodiscard]] cairn_allocator allocator() const noexcept
    {
        return cairn_private_heap_allocator(heap_);
    }
    [[nodiscard]] cairn_private_heap_stats stats() const noexcept
    {
        cairn_private_heap_stats stats;
        cairn_private_heap_read_stats(heap_, &stats);
        return stats;
    }
    // Creates an object in the heap from `arguments`. cairn_free frees its block.
    template <class T, class... Arguments> [[nodiscard]] T *make(Arguments &&...arguments)
    {
        block place = {
            detail::checked(cairn_private_heap_alloc_aligned(heap_, sizeof(T), alignof(T)))};
        if (place.memory == nullptr)
            return nullptr;
        T *object = ::new (place.memory) T(std::forward<Arguments>(arguments)...);
        place.memory = nullptr;
        return object;
    }
    // Creates an object in the heap that the returned pointer destroys. The pointer must not
    // outlive the heap.
    template <class T, class... Arguments>
    [[nodiscard]] pointer<T> make_unique(Arguments &&...arguments)
    {
        return pointer<T>(make<T>(std::forward<Arguments>(arguments)...));
    }
    void swap(private_heap &other) noexcept { std::swap(heap_, other.heap_); }

  private:
    struct block { // frees the block if the constructor throws
        void *memory;
        ~block() { cairn_free(memory); }
    };
    cairn_private_heap *heap_;
};

// ---- frames ---------------------------------------------------------------------------------

namespace detail
{

template <class T> void destroy(void *object) noexcept { static_cast<T *>(object)->~T(); }

// Creates an object in the newest frame of the stack, whose end destroys it.
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

// A frame of a stack (cairn/stack.h) that ends with the enclosing block.
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

// A frame of the stack of the thread (cairn/scope.h) that ends with the enclosing block, as
// t_scope.
class scope
{
  public:
    [[nodiscard]] scope() : mark_(cairn_scope_push()) { detail::checked(mark_.frame); }
    ~scope() { cairn_scope_pop(mark_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

    explicit operator bool() const noexcept { return mark_.frame != nullptr; }
    // Requires that the scope converts to true. The allocator is valid until the scope ends.
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

// One hold on a sealed frame of a ring (cairn/ring.h). The object releases its frame at its end; a
// copy is a further hold. To pass a hold through a queue of plain values, call release() on one
// side and make a ring_hold of the frame on the other.
class ring_hold
{
  public:
    ring_hold() noexcept = default;
    // Takes over a hold of the caller.
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
    // Hands the hold over: the caller must pass it to cairn_ring_release or make a ring_hold of it.
    [[nodiscard]] cairn_frame release() noexcept { return std::exchange(frame_, cairn_frame{}); }
    void reset() noexcept { ring_hold().swap(*this); }
    void swap(ring_hold &other) noexcept { std::swap(frame_, other.frame_); }

  private:
    cairn_frame frame_{};
};

// The open frame of a ring (cairn/ring.h). If the object ends before seal(), for example by an
// exception, the frame ends with all its blocks and holds.
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

    // Converts to true while the frame is open.
    explicit operator bool() const noexcept { return frame_.chunk != nullptr; }
    // The handle, which may be stored in the frame and is valid for a release after seal().
    [[nodiscard]] cairn_frame get() const noexcept { return frame_; }
    [[nodiscard]] cairn_allocator allocator() const noexcept { return cairn_ring_allocator(ring_); }

    // Creates an object in the frame. The last release of the frame ends it without destroying it.
    template <class T, class... Arguments> [[nodiscard]] T *make(Arguments &&...arguments)
    {
        static_assert(std::is_trivially_destructible_v<T>,
                      "objects in a frame of a ring are not destroyed");
        void *place = detail::checked(cairn_ring_alloc(ring_, sizeof(T), alignof(T)));
        return place == nullptr ? nullptr : ::new (place) T(std::forward<Arguments>(arguments)...);
    }

    // Seals the frame. Returns the first hold on it; the frame ends with its last hold.
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

// A pool (cairn/pool.h) of objects of one type, which it constructs and destroys. Objects that are
// still in use when the pool ends lose their memory without being destroyed.
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

    // Creates an object from `arguments`, for destroy().
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
    // Creates an object that the returned pointer destroys. The pointer must not outlive the pool.
    template <class... Arguments> [[nodiscard]] pointer make_unique(Arguments &&...arguments)
    {
        return pointer(make(std::forward<Arguments>(arguments)...), destroyer{pool_.get()});
    }

  private:
    struct place { // returns the memory if the constructor throws
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
