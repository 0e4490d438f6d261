// The persistent heap in C++ 17 and later: its owner, roots by name and type, commits that an
// exception undoes, pointers that move with the heap, and the standard's containers in it. Header
// only, over cairn/persist.h, which says what a commit is and which thread may call what.
//
//     using names = std::vector<cairn::persistent_string,
//                               cairn::persistent_scoped_allocator<cairn::persistent_string>>;
//
//     cairn::persistent_heap heap("names.heap", options);        // CAIRN_PERSIST_CREATE
//     names *all = heap.root<names>("names", heap.allocator<char>());
//     cairn::commit_guard guard(heap);                           // aborted unless committed
//     all->emplace_back("Ada");
//     if (guard.commit() != 0)
//         …
//
// A container whose object lies in the heap needs an allocator that is found again in another
// process: these hold the heap's place in memory, as an offset, and look up who has it open here.
// There are three, for two kinds of containers. With libstdc++ (12; tested, moved where it says
// so):
//
//     vector (not of bool), deque, basic_string      persistent_allocator. Hold offset_ptr only, so
//                                                    they work wherever the heap comes to lie.
//     list, forward_list, set, map, multiset,        Hold plain pointers, whatever the allocator
//     multimap, the unordered ones, vector<bool>     says: fixed_allocator or pmr, in a heap that
//                                                    is always opened with CAIRN_PERSIST_FIXED.
//
// With persistent_allocator the second kind does not compile; there is no list of all of them that
// holds for other standard libraries. Not to be kept at all: what holds functions, threads, locks,
// files or virtual functions. Do not copy objects with an offset_ptr as bytes.
//
// gcc 12 warns (maybe-uninitialized) in basic_string's move assignment with such pointers: it does
// not see that a null pointer stays one. It is not so.
//
// An abort takes back what containers in the heap did; containers outside of it (on the stack, with
// memory of the heap) do not notice: let them be gone before. The heap may be closed once nothing
// outside uses its memory. Objects in it are not destroyed then, they stay.
//
// Failure: std::bad_alloc, and std::system_error from the opening. Without exceptions: as in
// cairn.hpp; a heap that could not be opened converts to false, and errno says why.
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

// The program's number for the layout of T, which it specialises and changes with T; roots are only
// found with the number that they were made with. Size and alignment are compared as well, but not
// T's name, which compilers spell differently.
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

    // As cairn_persist_close; what is not committed is lost.
    int close() noexcept
    {
        if (entry_ != nullptr)
            detail::note_closed(std::exchange(entry_, nullptr));
        return cairn_persist_close(std::exchange(heap_, nullptr));
    }

    // For containers, those on the stack included.
    template <class T> [[nodiscard]] persistent_allocator<T> allocator() const noexcept
    {
        return persistent_allocator<T>(reference());
    }
    template <class T> [[nodiscard]] cairn::fixed_allocator<T> fixed_allocator() const noexcept
    {
        return cairn::fixed_allocator<T>(reference());
    }

    // The heap's own resource, for std::pmr's containers in it. NULL: not opened with
    // CAIRN_PERSIST_FIXED, for reading only, or out of memory.
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

    // The object of that name that root<T> made; NULL: none, or not a T.
    template <class T> [[nodiscard]] T *find(const char *name) const noexcept
    {
        void *object = cairn_persist_get_root(heap_, name);
        // What root<T> made is aligned as its label is; a name set by hand may lead anywhere.
        bool labelled = reinterpret_cast<std::uintptr_t>(object) % alignof(label) == 0;
        return object != nullptr && labelled && label_of(object)->is_of<T>()
                   ? static_cast<T *>(object)
                   : nullptr;
    }
    // The same, and if there is no such name a new object made of the arguments. NULL: the name is
    // of something else; without exceptions also out of memory. Not by two threads at once for one
    // name.
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
    // Destroys it and forgets its name. ENOENT: there is none; EINVAL: it is not a T.
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
    // Back to the last commit. With it end all pointers to what was made since.
    int abort() noexcept
    {
        const int error = cairn_persist_abort(heap_);
        refresh();
        return error;
    }

  private:
    // Directly before each object that root<T> made.
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

    // Memory for a label and an object, given back with the guard.
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

    // The resource, when there is one, as this process needs it.
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

// From here to the end of the block: unless commit was called and succeeded, all that was done to
// the heap since its last commit is taken back then, as when an exception passes. No other thread
// may write to the heap meanwhile. An object on the stack that uses the heap's memory is declared
// after the guard.
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

    // 0 or an error number, and then it may be tried again; see cairn_persist_commit.
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
