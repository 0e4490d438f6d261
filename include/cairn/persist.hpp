// C++ forms of the persistent heap (cairn/persist.h): an owner, a pointer that moves with the heap,
// and an allocator for containers that live in it. Header-only, C++17.
//
//     struct store {}; // names the heap for the allocators' types
//     cairn::persistent_heap heap("words.heap");
//     cairn::persistent_use<store> use(heap);
//     using numbers = std::vector<int, cairn::persistent_allocator<int, store>>;
//     numbers *list = heap.root<numbers>("numbers");
//     list->push_back(7);
//     heap.commit();
//
// Containers: with persistent_allocator those that keep the allocator's pointer type, of libstdc++
// up to 12 vector alone: at any address. string, map, set, list and unordered_map of libstdc++ keep
// plain pointers: with persistent_plain_allocator, in a heap opened with CAIRN_PERSIST_FIXED.
#ifndef CAIRN_PERSIST_HPP
#define CAIRN_PERSIST_HPP

#include <cairn/persist.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace cairn
{

// A random-access pointer that holds the distance to its target: valid wherever both are mapped, as
// long as both lie in one heap, or in this process only. NULL is all zero.
template <class T> class offset_ptr
{
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using difference_type = std::ptrdiff_t;
    using pointer = T *;
    using reference = std::add_lvalue_reference_t<T>;
    using iterator_category = std::random_access_iterator_tag;
    template <class U> using rebind = offset_ptr<U>;

    offset_ptr() noexcept = default;
    offset_ptr(std::nullptr_t) noexcept {}
    offset_ptr(T *to) noexcept { set(to); }
    offset_ptr(const offset_ptr &other) noexcept { set(other.get()); }
    template <class U, class = std::enable_if_t<std::is_convertible_v<U *, T *>>>
    offset_ptr(const offset_ptr<U> &other) noexcept
    {
        set(other.get());
    }
    // As static_cast does it: from void, from a base.
    template <class U, class = std::enable_if_t<!std::is_convertible_v<U *, T *>>, class = void>
    explicit offset_ptr(const offset_ptr<U> &other) noexcept
    {
        set(static_cast<T *>(other.get()));
    }
    offset_ptr &operator=(const offset_ptr &other) noexcept
    {
        set(other.get());
        return *this;
    }

    T *get() const noexcept { return static_cast<T *>(cairn_offset_get(&offset_)); }
    explicit operator bool() const noexcept { return offset_.distance != 0; }
    reference operator*() const noexcept { return *get(); }
    T *operator->() const noexcept { return get(); }
    template <class U = T> U &operator[](difference_type i) const noexcept { return get()[i]; }

    // So that std::allocator_traits and std::to_address know the way.
    template <class U = T> static offset_ptr pointer_to(U &target) noexcept
    {
        return offset_ptr(std::addressof(target));
    }

    offset_ptr &operator+=(difference_type n) noexcept
    {
        set(get() + n);
        return *this;
    }
    offset_ptr &operator-=(difference_type n) noexcept { return *this += -n; }
    offset_ptr &operator++() noexcept { return *this += 1; }
    offset_ptr &operator--() noexcept { return *this += -1; }
    offset_ptr operator++(int) noexcept
    {
        offset_ptr before = *this;
        ++*this;
        return before;
    }
    offset_ptr operator--(int) noexcept
    {
        offset_ptr before = *this;
        --*this;
        return before;
    }
    friend offset_ptr operator+(const offset_ptr &from, difference_type n) noexcept
    {
        return offset_ptr(from.get() + n);
    }
    friend offset_ptr operator+(difference_type n, const offset_ptr &from) noexcept
    {
        return from + n;
    }
    friend offset_ptr operator-(const offset_ptr &from, difference_type n) noexcept
    {
        return offset_ptr(from.get() - n);
    }
    friend difference_type operator-(const offset_ptr &a, const offset_ptr &b) noexcept
    {
        return a.get() - b.get();
    }
    friend bool operator==(const offset_ptr &a, const offset_ptr &b) noexcept
    {
        return a.get() == b.get();
    }
    friend bool operator!=(const offset_ptr &a, const offset_ptr &b) noexcept { return !(a == b); }
    friend bool operator<(const offset_ptr &a, const offset_ptr &b) noexcept
    {
        return a.get() < b.get();
    }
    friend bool operator>(const offset_ptr &a, const offset_ptr &b) noexcept { return b < a; }
    friend bool operator<=(const offset_ptr &a, const offset_ptr &b) noexcept { return !(b < a); }
    friend bool operator>=(const offset_ptr &a, const offset_ptr &b) noexcept { return !(a < b); }

  private:
    void set(const volatile void *to) noexcept
    {
        cairn_offset_set(&offset_, const_cast<const void *>(to));
    }

    cairn_offset offset_ = {0};
};

// Owns an open heap. Errors are std::system_error.
class persistent_heap
{
  public:
    explicit persistent_heap(const std::string &path, cairn_persist_options options = created())
    {
        const char *why = nullptr;
        options.why = &why;
        heap_ = cairn_persist_open(path.c_str(), &options);
        if (heap_ == nullptr)
            throw std::system_error(errno, std::generic_category(), path + ": " + why);
    }
    ~persistent_heap() { (void)cairn_persist_close(heap_); }
    persistent_heap(persistent_heap &&other) noexcept : heap_(std::exchange(other.heap_, nullptr))
    {
    }
    persistent_heap &operator=(persistent_heap &&other) noexcept
    {
        std::swap(heap_, other.heap_);
        return *this;
    }

    cairn_persist *get() const noexcept { return heap_; }
    cairn_allocator allocator() const noexcept { return cairn_persist_allocator(heap_); }

    // The object under that name; made of the arguments, and not committed, if there is none.
    template <class T, class... Arguments> T *root(const char *name, Arguments &&...arguments)
    {
        if (void *found = cairn_persist_get_root(heap_, name))
            return static_cast<T *>(found);
        void *block = cairn_allocator_alloc(allocator(), sizeof(T), alignof(T));
        if (block == nullptr)
            throw std::bad_alloc();
        T *made = new (block) T(std::forward<Arguments>(arguments)...);
        check(cairn_persist_set_root(heap_, name, made));
        return made;
    }

    void commit() { check(cairn_persist_commit(heap_)); }
    void abort() { check(cairn_persist_abort(heap_)); }

  private:
    static cairn_persist_options created()
    {
        cairn_persist_options options = {};
        options.flags = CAIRN_PERSIST_CREATE;
        return options;
    }
    static void check(int error)
    {
        if (error != 0)
            throw std::system_error(error, std::generic_category(), "persistent heap");
    }

    cairn_persist *heap_ = nullptr;
};

// A transaction: what was written since is undone at the end of the block, unless commit was
// called. No other thread may write to the heap meanwhile.
class persistent_transaction
{
  public:
    explicit persistent_transaction(persistent_heap &heap) noexcept : heap_(&heap) {}
    ~persistent_transaction()
    {
        if (heap_ != nullptr)
            (void)cairn_persist_abort(heap_->get());
    }
    persistent_transaction(const persistent_transaction &) = delete;
    persistent_transaction &operator=(const persistent_transaction &) = delete;
    void commit()
    {
        heap_->commit();
        heap_ = nullptr;
    }

  private:
    persistent_heap *heap_;
};

// Says which heap the allocators with that tag use, as long as the object lives.
template <class Tag> class persistent_use
{
  public:
    explicit persistent_use(const persistent_heap &heap) noexcept { current = heap.allocator(); }
    ~persistent_use() { current = cairn_allocator{}; }
    persistent_use(const persistent_use &) = delete;
    persistent_use &operator=(const persistent_use &) = delete;

    static inline cairn_allocator current = {};
};

// An allocator without state, so that containers in the heap hold nothing of this process. Its
// pointers are Pointer<T>.
template <class T, class Tag, template <class> class Pointer> class basic_persistent_allocator
{
  public:
    using value_type = T;
    using pointer = Pointer<T>;
    using is_always_equal = std::true_type;
    template <class U> struct rebind {
        using other = basic_persistent_allocator<U, Tag, Pointer>;
    };

    basic_persistent_allocator() noexcept = default;
    template <class U>
    basic_persistent_allocator(const basic_persistent_allocator<U, Tag, Pointer> &) noexcept
    {
    }

    pointer allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            throw std::bad_array_new_length();
        void *block =
            cairn_allocator_alloc(persistent_use<Tag>::current, count * sizeof(T), alignof(T));
        if (block == nullptr)
            throw std::bad_alloc();
        return pointer(static_cast<T *>(block));
    }
    void deallocate(pointer block, std::size_t count) noexcept
    {
        cairn_allocator_free(persistent_use<Tag>::current, address(block), count * sizeof(T));
    }
    template <class U>
    bool operator==(const basic_persistent_allocator<U, Tag, Pointer> &) const noexcept
    {
        return true;
    }
    template <class U>
    bool operator!=(const basic_persistent_allocator<U, Tag, Pointer> &) const noexcept
    {
        return false;
    }

  private:
    static void *address(T *block) noexcept { return block; }
    static void *address(const offset_ptr<T> &block) noexcept { return block.get(); }
};

template <class T> using plain_ptr = T *;
template <class T, class Tag>
using persistent_allocator = basic_persistent_allocator<T, Tag, offset_ptr>;
// For heaps that are opened with CAIRN_PERSIST_FIXED.
template <class T, class Tag>
using persistent_plain_allocator = basic_persistent_allocator<T, Tag, plain_ptr>;

} // namespace cairn

#endif
