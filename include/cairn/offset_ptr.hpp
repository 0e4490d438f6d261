// A pointer that stays valid when the persistent heap is mapped at another address: it holds the
// distance from itself to its target, as cairn_offset does (cairn/persist.h).
//
// Use an offset_ptr for links inside a persistent heap that may be mapped at different addresses.
// Use plain pointers in a heap that is always opened with CAIRN_PERSIST_FIXED, and outside of
// persistent heaps.
//
// Example:
//
//     #include <cairn/offset_ptr.hpp>
//
//     struct node {
//         cairn::offset_ptr<node> next;
//         int value;
//     };
//
//     int sum(const node *first)
//     {
//         int total = 0;
//         for (; first != nullptr; first = first->next.get())
//             total += first->value;
//         return total;
//     }
//
// An offset_ptr is used as a plain pointer is, and can be the `pointer` of an allocator. The
// pointer takes 8 bytes; all zero is NULL, so that zeroed memory holds null pointers.
//
// Cost: an addition and a test for NULL for each use.
//
// Caveats:
//  - Never copy it as bytes: its value depends on its own address.
//  - The pointer and its target must be in one heap.
#ifndef CAIRN_OFFSET_PTR_HPP
#define CAIRN_OFFSET_PTR_HPP

#include <cairn/containers.hpp>
#include <cairn/persist.h>

#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <type_traits>

namespace cairn
{
inline namespace CAIRN_HPP_NAMESPACE
{

namespace detail
{

struct nothing {
};

template <class T>
constexpr bool is_character = std::is_same_v<T, char> || std::is_same_v<T, wchar_t> ||
                              std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t> ||
#ifdef __cpp_char8_t
                              std::is_same_v<T, char8_t> ||
#endif
                              false;

// True if a static_cast converts From * to To *, but no implicit conversion does.
template <class From, class To, class = void> constexpr bool is_only_cast = false;
template <class From, class To>
constexpr bool
    is_only_cast<From, To, std::void_t<decltype(static_cast<To *>(std::declval<From *>()))>> =
        !std::is_convertible_v<From *, To *>;

} // namespace detail

template <class T> class offset_ptr
{
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using difference_type = std::ptrdiff_t;
    using pointer = offset_ptr;
    using reference = std::add_lvalue_reference_t<T>;
    using iterator_category = std::random_access_iterator_tag;
    template <class U> using rebind = offset_ptr<U>;

    constexpr offset_ptr() noexcept : offset_{0} {}
    constexpr offset_ptr(std::nullptr_t) noexcept : offset_{0} {}
    offset_ptr(T *to) noexcept { set(to); }
    offset_ptr(const offset_ptr &other) noexcept { set(other.get()); }
    template <class U, std::enable_if_t<std::is_convertible_v<U *, T *>, int> = 0>
    offset_ptr(const offset_ptr<U> &other) noexcept
    {
        set(other.get());
    }
    template <class U, std::enable_if_t<detail::is_only_cast<U, T>, int> = 0>
    explicit offset_ptr(const offset_ptr<U> &other) noexcept
    {
        set(static_cast<T *>(other.get()));
    }
    offset_ptr &operator=(const offset_ptr &other) noexcept
    {
        set(other.get());
        return *this;
    }
    offset_ptr &operator=(T *to) noexcept
    {
        set(to);
        return *this;
    }
    offset_ptr &operator=(std::nullptr_t) noexcept
    {
        offset_.distance = 0;
        return *this;
    }
    ~offset_ptr() = default;

    static offset_ptr
    pointer_to(std::conditional_t<std::is_void_v<T>, detail::nothing, T> &object) noexcept
    {
        return offset_ptr(std::addressof(object));
    }

    [[nodiscard]] T *get() const noexcept { return static_cast<T *>(cairn_offset_get(&offset_)); }
    explicit operator bool() const noexcept { return offset_.distance != 0; }
    // libstdc++'s basic_string returns its pointer as a plain one. Others do not convert by
    // themselves: containers that would keep plain pointers do not compile.
    template <class U, std::enable_if_t<detail::is_character<std::remove_const_t<T>> &&
                                            std::is_convertible_v<T *, U *>,
                                        int> = 0>
    operator U *() const noexcept
    {
        return get();
    }

    reference operator*() const noexcept { return *get(); }
    T *operator->() const noexcept { return get(); }
    reference operator[](difference_type index) const noexcept { return get()[index]; }

    offset_ptr &operator+=(difference_type count) noexcept
    {
        set(get() + count);
        return *this;
    }
    offset_ptr &operator-=(difference_type count) noexcept { return *this += -count; }
    offset_ptr &operator++() noexcept { return *this += 1; }
    offset_ptr &operator--() noexcept { return *this -= 1; }
    offset_ptr operator++(int) noexcept
    {
        T *before = get();
        set(before + 1);
        return before;
    }
    offset_ptr operator--(int) noexcept
    {
        T *before = get();
        set(before - 1);
        return before;
    }
    offset_ptr operator+(difference_type count) const noexcept { return get() + count; }
    offset_ptr operator-(difference_type count) const noexcept { return get() - count; }
    friend offset_ptr operator+(difference_type count, const offset_ptr &from) noexcept
    {
        return from + count;
    }

  private:
    void set(const volatile void *to) noexcept
    {
        cairn_offset_set(&offset_, const_cast<const void *>(to));
    }

    cairn_offset offset_;
};

template <class T, class U>
std::ptrdiff_t operator-(const offset_ptr<T> &one, const offset_ptr<U> &other) noexcept
{
    return one.get() - other.get();
}

// Compared with each other, and for equality with plain pointers and NULL.
template <class T, class U>
bool operator==(const offset_ptr<T> &one, const offset_ptr<U> &other) noexcept
{
    return one.get() == other.get();
}
template <class T, class U>
bool operator!=(const offset_ptr<T> &one, const offset_ptr<U> &other) noexcept
{
    return one.get() != other.get();
}
template <class T, class U>
bool operator<(const offset_ptr<T> &one, const offset_ptr<U> &other) noexcept
{
    return one.get() < other.get();
}
template <class T, class U>
bool operator<=(const offset_ptr<T> &one, const offset_ptr<U> &other) noexcept
{
    return one.get() <= other.get();
}
template <class T, class U>
bool operator>(const offset_ptr<T> &one, const offset_ptr<U> &other) noexcept
{
    return one.get() > other.get();
}
template <class T, class U>
bool operator>=(const offset_ptr<T> &one, const offset_ptr<U> &other) noexcept
{
    return one.get() >= other.get();
}
template <class T, class U> bool operator==(const offset_ptr<T> &one, U *other) noexcept
{
    return one.get() == other;
}
template <class T, class U> bool operator!=(const offset_ptr<T> &one, U *other) noexcept
{
    return one.get() != other;
}
template <class T, class U> bool operator==(T *one, const offset_ptr<U> &other) noexcept
{
    return one == other.get();
}
template <class T, class U> bool operator!=(T *one, const offset_ptr<U> &other) noexcept
{
    return one != other.get();
}
template <class T> bool operator==(const offset_ptr<T> &one, std::nullptr_t) noexcept
{
    return !one;
}
template <class T> bool operator!=(const offset_ptr<T> &one, std::nullptr_t) noexcept
{
    return static_cast<bool>(one);
}
template <class T> bool operator==(std::nullptr_t, const offset_ptr<T> &other) noexcept
{
    return !other;
}
template <class T> bool operator!=(std::nullptr_t, const offset_ptr<T> &other) noexcept
{
    return static_cast<bool>(other);
}

} // namespace CAIRN_HPP_NAMESPACE
} // namespace cairn

// The hash of the plain pointer. The hash changes when the heap is mapped at another address.
template <class T> struct std::hash<cairn::offset_ptr<T>> {
    std::size_t operator()(const cairn::offset_ptr<T> &pointer) const noexcept
    {
        return std::hash<T *>()(pointer.get());
    }
};

#endif
