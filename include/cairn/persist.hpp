// The persistent heap for C++ 17 and later: its owner, typed roots, commits that an exception
// undoes, and containers of the standard library in the heap.
//
// cairn/persist.h explains what a commit is and which threads may make a call. Header only.
//
// Example:
//
//     #include <cairn/persist.hpp>
//     #include <vector>
//
//     using names = std::vector<cairn::persistent_string,
//                               cairn::persistent_scoped_allocator<cairn::persistent_string>>;
//
//     int add_name(const char *path, const char *name)
//     {
//         cairn_persist_options options = {};
//         options.flags = CAIRN_PERSIST_CREATE;
//         cairn::persistent_heap heap(path, options);
//         names *all = heap.root<names>("names", heap.allocator<char>());
//         cairn::commit_guard guard(heap); // undoes the changes unless commit() succeeds
//         all->emplace_back(name);
//         return guard.commit();
//     }
//
// Containers: a container in the heap needs an allocator that works in the next process, too. These
// allocators hold an offset to the start of the heap and look up the open heap of this process.
// With libstdc++ (tested with version 12) use:
//
//     vector (not of bool), deque, basic_string      persistent_allocator: they hold offset_ptr
//                                                    only, so the heap may be mapped anywhere
//     list, forward_list, set, map, multiset,        fixed_allocator or pmr, in a heap that is
//     multimap, the unordered ones, vector<bool>     always opened with CAIRN_PERSIST_FIXED:
//                                                    they hold plain pointers
//
// Failure: std::bad_alloc, and std::system_error from opening. Without exceptions, a heap that
// could not be opened converts to false and errno has the reason; see cairn/cairn.hpp for the rest.
//
// Caveats:
//  - Containers of the second kind do not compile with persistent_allocator and libstdc++. Other
//    standard libraries may have other containers with plain pointers.
//  - Do not keep functions, threads, locks, files or objects with virtual functions in the heap.
//  - Do not copy objects with an offset_ptr as bytes.
//  - An abort restores containers inside the heap. Containers outside it that use its memory do not
//    notice: end them first. End them before the heap is closed, too.
//  - Closing the heap does not destroy the objects in it: they stay for the next open.
//  - gcc 12 warns (maybe-uninitialized) in the move assignment of basic_string with offset_ptr.
//    This warning is wrong: gcc does not see that a null pointer stays one.
#ifndef CAIRN_PERSIST_HPP
#define CAIRN_PERSIST_HPP

#include <cairn/persist.h>
#include <cairn/persist_containers.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace cairn
{
inline namespace CAIRN_HPP_NAMESPACE
{

// ---- the heap -------------------------------------------------------------------------------

// The number of the layout of T. A program specialises it and changes the number with the layout:
// a root is found only with the number with which it was made. Size and alignment are compared,
// too, but not the name of T, which compilers spell differently.
template <class T> struct persistent_layout {
    static constexpr std::uint64_t number = 0;
};

class persistent_heap
{
  public:
    persistent_heap() noexcept = default;
    [[nodiscard]] explicit persistent_heap(const char *path,
                                           const cairn_persist_options &options = {})
        : flags_(options.flags)
    {
        const char *why = nullptr;
        cairn_persist_options explained = options;
        explained.why = options.why != nullptr ? options.why : &why;
        heap_ = cairn_persist_open(path, &explained);
        if (heap_ != nullptr && (entry_ = detail::note_open(heap_)) == nullptr) {
            static_cast<void>(cairn_persist_close(std::exchange(heap_, nullptr)));
            errno = ENOMEM;
        }
        if (heap_ == nullptr)
            refuse(path, *explained.why);
        else
            refresh();
    }
    persistent_heap(persistent_heap &&other) noexcept
        : heap_(std::exchange(other.heap_, nullptr)), entry_(std::exchange(other.entry_, nullptr)),
          flags_(other.flags_)
    {
    }
    persistent_heap &operator=(persistent_heap &&other) noexcept
    {
        persistent_heap taken(std::move(other));
        std::swap(heap_, taken.heap_);
        std::swap(entry_, taken.entry_);
        std::swap(flags_, taken.flags_);
        return *this;
    }
    ~persistent_heap() { static_cast<void>(close()); }

    explicit operator bool() const noexcept { return heap_ != nullptr; }
    [[nodiscard]] cairn_persist *get() const noexcept { return heap_; }

    // Closes the heap as cairn_persist_close does. Uncommitted changes are lost.
    int close() noexcept
    {
        if (entry_ != nullptr)
            detail::note_closed(std::exchange(entry_, nullptr));
        return cairn_persist_close(std::exchange(heap_, nullptr));
    }

    // An allocator for containers in the heap, and for containers on the stack.
    template <class T> [[nodiscard]] persistent_allocator<T> allocator() const noexcept
    {
        return persistent_allocator<T>(reference());
    }
    template <class T> [[nodiscard]] cairn::fixed_allocator<T> fixed_allocator() const noexcept
    {
        return cairn::fixed_allocator<T>(reference());
    }

    // The memory resource of the heap, for containers of std::pmr in it. NULL if the heap was not
    // opened with CAIRN_PERSIST_FIXED, is open for reading only, or memory is out.
    [[nodiscard]] std::pmr::memory_resource *resource() noexcept
    {
        if ((flags_ & (CAIRN_PERSIST_FIXED | CAIRN_PERSIST_READ_ONLY)) != CAIRN_PERSIST_FIXED)
            return nullptr;
        void *place = cairn_persist_get_root(heap_, detail::resource_name);
        if (place == nullptr) {
            const cairn_allocator from = cairn_persist_allocator(heap_);
            const std::size_t size = sizeof(detail::persistent_resource);
            place = cairn_allocator_alloc(from, size, alignof(detail::persistent_resource));
            if (place == nullptr)
                return nullptr;
            if (cairn_persist_set_root(heap_, detail::resource_name, place) != 0) {
                cairn_allocator_free(from, place, size);
                return nullptr;
            }
            refresh();
        }
        return static_cast<detail::persistent_resource *>(place);
    }

    // The object that root<T> made with that name. NULL if there is no root of that name, or its
    // object is not a T.
    template <class T> [[nodiscard]] T *find(const char *name) const noexcept
    {
        void *object = cairn_persist_get_root(heap_, name);
        // Objects of root<T> are aligned as their labels are; other roots may have any address.
        bool labelled = reinterpret_cast<std::uintptr_t>(object) % alignof(label) == 0;
        return object != nullptr && labelled && label_of(object)->is_of<T>()
                   ? static_cast<T *>(object)
                   : nullptr;
    }
    // The object that root<T> made with that name, or a new object made of the arguments. NULL if
    // the name belongs to something else; without exceptions also if memory is out. Two threads
    // must not call it for one name at once.
    template <class T, class... Arguments>
    [[nodiscard]] T *root(const char *name, Arguments &&...arguments)
    {
        if (cairn_persist_get_root(heap_, name) != nullptr)
            return find<T>(name);
        labelled_block made(cairn_persist_allocator(heap_), sizeof(T), alignof(T));
        if (made.memory == nullptr)
            return detail::checked(static_cast<T *>(nullptr));
        T *object = ::new (made.object()) T(std::forward<Arguments>(arguments)...);
        ::new (label_of(object))
            label{label_magic, sizeof(T), alignof(T), persistent_layout<T>::number};
        if (cairn_persist_set_root(heap_, name, object) != 0) {
            object->~T();
            return detail::checked(static_cast<T *>(nullptr));
        }
        made.memory = nullptr;
        return object;
    }
    // Destroys the object and removes its name. Returns 0; ENOENT if there is no such name; EINVAL
    // if it is not a T.
    template <class T> int remove(const char *name) noexcept
    {
        if (cairn_persist_get_root(heap_, name) == nullptr)
            return ENOENT;
        T *object = find<T>(name);
        if (object == nullptr)
            return EINVAL;
        const int error = cairn_persist_remove_root(heap_, name);
        if (error != 0)
            return error;
        object->~T();
        labelled_block(cairn_persist_allocator(heap_), object, sizeof(T), alignof(T));
        return 0;
    }

    [[nodiscard]] int commit() noexcept { return cairn_persist_commit(heap_); }
    // Restores the state of the last commit. Pointers to objects made since then become invalid.
    int abort() noexcept
    {
        const int error = cairn_persist_abort(heap_);
        refresh();
        return error;
    }

  private:
    // The label in front of each object that root<T> made.
    struct label {
        std::uint64_t magic, size, align, layout;
        template <class T> bool is_of() const noexcept
        {
            return magic == label_magic && size == sizeof(T) && align == alignof(T) &&
                   layout == persistent_layout<T>::number;
        }
    };
    static constexpr std::uint64_t label_magic = 0x6c6562616c6e7263;

    static label *label_of(void *object) noexcept { return static_cast<label *>(object) - 1; }

    // Memory for a label and an object, which the guard frees.
    struct labelled_block {
        cairn_allocator from;
        std::size_t before, size, align;
        char *memory;

        labelled_block(cairn_allocator source, std::size_t object_size, std::size_t object_align)
            : from(source), before(room(object_align)), size(object_size), align(object_align),
              memory(static_cast<char *>(
                  cairn_allocator_alloc(from, before + size, align < 8 ? 8 : align)))
        {
        }
        labelled_block(cairn_allocator source, void *object, std::size_t object_size,
                       std::size_t object_align)
            : from(source), before(room(object_align)), size(object_size), align(object_align),
              memory(static_cast<char *>(object) - before)
        {
        }
        labelled_block(const labelled_block &) = delete;
        labelled_block &operator=(const labelled_block &) = delete;
        ~labelled_block()
        {
            if (memory != nullptr)
                cairn_allocator_free(from, memory, before + size);
        }
        void *object() const noexcept { return memory + before; }
        static std::size_t room(std::size_t align) noexcept
        {
            return align < sizeof(label) ? sizeof(label) : align;
        }
    };

    detail::heap_reference reference() const noexcept
    {
        return detail::heap_reference(
            entry_ != nullptr ? entry_->base.load(std::memory_order_relaxed) : nullptr);
    }

    // The resource, if there is one, made valid for this process.
    void refresh() noexcept
    {
        if ((flags_ & (CAIRN_PERSIST_FIXED | CAIRN_PERSIST_READ_ONLY)) != CAIRN_PERSIST_FIXED)
            return;
        void *place = cairn_persist_get_root(heap_, detail::resource_name);
        if (place != nullptr)
            ::new (place) detail::persistent_resource(reference());
    }

    static void refuse(const char *path, const char *why)
    {
#ifdef __cpp_exceptions
        const int error = errno;
        std::string text(path);
        if (why != nullptr)
            text.append(": ").append(why);
        throw std::system_error(error, std::generic_category(), text);
#else
        static_cast<void>(path);
        static_cast<void>(why);
#endif
    }

    cairn_persist *heap_ = nullptr;
    detail::open_heap *entry_ = nullptr;
    unsigned flags_ = 0;
};

// A transaction that ends with the enclosing block. Unless commit() was called and succeeded, the
// end of the block, for example by an exception, undoes all changes since the last commit of the
// heap. No other thread may write to the heap meanwhile. Declare objects on the stack that use
// memory of the heap after the guard.
class commit_guard
{
  public:
    [[nodiscard]] explicit commit_guard(persistent_heap &heap) noexcept : heap_(&heap) {}
    ~commit_guard()
    {
        if (heap_ != nullptr)
            static_cast<void>(heap_->abort());
    }
    commit_guard(const commit_guard &) = delete;
    commit_guard &operator=(const commit_guard &) = delete;

    // Returns 0 or a number of errno; then it may be tried again. See cairn_persist_commit.
    [[nodiscard]] int commit() noexcept
    {
        const int error = heap_ != nullptr ? heap_->commit() : 0;
        if (error == 0)
            heap_ = nullptr;
        return error;
    }

  private:
    persistent_heap *heap_;
};

} // namespace CAIRN_HPP_NAMESPACE
} // namespace cairn

#endif
