// persist.hpp: containers that work at another address, containers that need a fixed one, roots by
// type, commits that an exception undoes, and refusals.

// A false warning of gcc within std::basic_string, which persist.hpp describes; before the
// includes.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "cairn/persist.hpp"

#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <unordered_map>

#include "region/persist_kit.h"

namespace persist_hpp_test
{

using namespace persist;
using cairn::commit_guard;
using cairn::fixed_allocator;
using cairn::fixed_scoped_allocator;
using cairn::fixed_string;
using cairn::offset_ptr;
using cairn::persistent_allocator;
using cairn::persistent_heap;
using cairn::persistent_scoped_allocator;
using cairn::persistent_string;

constexpr char kLong[] = "a text that is too long to lie in its own object";

persistent_heap open_here(const Directory &directory, unsigned more = 0)
{
    Options options;
    options.only(more & CAIRN_PERSIST_READ_ONLY ? more : CAIRN_PERSIST_CREATE | more);
    options.capacity_bytes = size_t{1} << 28;
    return persistent_heap(directory.file().c_str(), options);
}

// Closes the heap, occupies its old address and opens it again at another one.
class Elsewhere
{
  public:
    Elsewhere(persistent_heap &heap, const Directory &directory)
    {
        const cairn_persist_stats before = stats_of(heap.get());
        EXPECT_EQ(heap.close(), 0);
        size_ = before.capacity_bytes;
        occupied_ = mmap(before.address, size_, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        EXPECT_EQ(occupied_, before.address);
        heap = open_here(directory);
        EXPECT_TRUE(stats_of(heap.get()).moved);
        EXPECT_NE(stats_of(heap.get()).address, before.address);
    }
    ~Elsewhere() { munmap(occupied_, size_); }
    Elsewhere(const Elsewhere &) = delete;
    Elsewhere &operator=(const Elsewhere &) = delete;

  private:
    void *occupied_;
    size_t size_;
};

bool is_in(const persistent_heap &heap, const void *address)
{
    const cairn_persist_stats stats = stats_of(heap.get());
    const auto offset =
        reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(stats.address);
    return offset < stats.size_bytes;
}

// ---- containers that move -------------------------------------------------------------------

TEST(PersistHpp, AVectorAndADequeWorkAtAnotherAddress)
{
    if (config_tsan)
        GTEST_SKIP() << "the address would be in ThreadSanitizer's shadow";
    using vector = std::vector<int, persistent_allocator<int>>;
    using deque = std::deque<long, persistent_allocator<long>>;
    Directory directory;
    persistent_heap heap = open_here(directory);
    auto *numbers = heap.root<vector>("vector", heap.allocator<int>());
    auto *queue = heap.root<deque>("deque", heap.allocator<long>());
    for (int i = 0; i < 10000; i++) {
        numbers->push_back(i);
        queue->push_front(i);
    }
    ASSERT_EQ(heap.commit(), 0);
    Elsewhere elsewhere(heap, directory);
    numbers = heap.find<vector>("vector");
    queue = heap.find<deque>("deque");
    ASSERT_TRUE(numbers != nullptr && queue != nullptr);
    ASSERT_TRUE(is_in(heap, &numbers->front()) && is_in(heap, &queue->front()));
    for (int i = 0; i < 10000; i++) {
        ASSERT_EQ((*numbers)[size_t(i)], i);
        ASSERT_EQ((*queue)[size_t(9999 - i)], i);
    }
    numbers->insert(numbers->begin() + 5, 20000, 7); // reallocates, and frees the old block
    queue->erase(queue->begin() + 10, queue->end() - 10);
    std::sort(numbers->begin(), numbers->end(), std::greater<>());
    EXPECT_EQ(numbers->front(), 9999);
    EXPECT_EQ(queue->size(), 20u);
    EXPECT_TRUE(is_in(heap, &numbers->front()));
    EXPECT_EQ(heap.remove<vector>("vector"), 0);
    EXPECT_EQ(heap.remove<deque>("deque"), 0);
    EXPECT_EQ(stats_of(heap.get()).used_blocks, 0u);
    EXPECT_EQ(check(heap.get()), "");
}

TEST(PersistHpp, StringsShortAndLongWorkAtAnotherAddress)
{
    if (config_tsan)
        GTEST_SKIP() << "the address would be in ThreadSanitizer's shadow";
    using strings = std::vector<persistent_string, persistent_scoped_allocator<persistent_string>>;
    Directory directory;
    persistent_heap heap = open_here(directory);
    auto *texts = heap.root<strings>("texts", heap.allocator<char>());
    for (int i = 0; i < 1000; i++)
        texts->emplace_back(i % 2 ? kLong : "short");
    auto *text = heap.root<persistent_string>("text", "x", heap.allocator<char>());
    ASSERT_EQ(heap.commit(), 0);
    Elsewhere elsewhere(heap, directory);
    texts = heap.find<strings>("texts");
    text = heap.find<persistent_string>("text");
    ASSERT_TRUE(texts != nullptr && text != nullptr);
    for (size_t i = 0; i < 1000; i++)
        ASSERT_STREQ((*texts)[i].c_str(), i % 2 ? kLong : "short");
    (*texts)[0] += kLong;
    texts->erase(texts->begin() + 1, texts->begin() + 500);
    std::string expected = "x";
    for (int i = 0; i < 100; i++) {
        text->append("yz").insert(text->begin(), 'w');
        expected = "w" + expected + "yz";
    }
    EXPECT_EQ(std::string(text->c_str()), expected);
    EXPECT_EQ((*texts)[0].find(kLong), 5u);
    EXPECT_TRUE(is_in(heap, (*texts)[0].data()));
    persistent_string copy(*text); // on the stack, its memory in the heap
    swap(copy, *text);
    EXPECT_EQ(copy, *text);
    EXPECT_TRUE(is_in(heap, copy.data()));
    EXPECT_EQ(heap.remove<strings>("texts"), 0);
}

struct Node {
    explicit Node(int number) : value(number) {}
    offset_ptr<Node> next;
    int value;
};

TEST(PersistHpp, AListOfOnesOwnWorksAtAnotherAddress)
{
    if (config_tsan)
        GTEST_SKIP() << "the address would be in ThreadSanitizer's shadow";
    Directory directory;
    persistent_heap heap = open_here(directory);
    auto *first = heap.root<Node>("first", 0);
    Node *last = first;
    persistent_allocator<Node> from = heap.allocator<Node>();
    for (int i = 1; i < 100; i++) {
        last->next = ::new (from.allocate(1).get()) Node(i);
        last = last->next.get();
    }
    last->next = last; // the only distance that is zero
    static_assert(sizeof(Node) == 16);
    ASSERT_EQ(heap.commit(), 0);
    Elsewhere elsewhere(heap, directory);
    offset_ptr<Node> at = heap.find<Node>("first");
    for (int i = 0; i < 99; i++, at = at->next)
        ASSERT_EQ(at->value, i);
    EXPECT_EQ(at->next->next, at);
}

// ---- containers that need their address -----------------------------------------------------

template <class T> using Fixed = fixed_allocator<T>;
using FixedMap = std::map<fixed_string, int, std::less<>,
                          fixed_scoped_allocator<std::pair<const fixed_string, int>>>;
using FixedHashed = std::unordered_map<int, long, std::hash<int>, std::equal_to<int>,
                                       Fixed<std::pair<const int, long>>>;

template <class T> T *fixed_root(persistent_heap &heap, const char *name)
{
    return heap.root<T>(name, heap.fixed_allocator<char>());
}

TEST(PersistHpp, EveryContainerWorksWhereTheHeapIsFixed)
{
    if (config_tsan)
        GTEST_SKIP() << "the kernel chooses an address that others may take";
    Directory directory;
    for (int run = 0; run < 3; run++) {
        persistent_heap heap = open_here(directory, CAIRN_PERSIST_FIXED);
        auto *map = fixed_root<FixedMap>(heap, "map");
        auto *hashed = fixed_root<FixedHashed>(heap, "hashed");
        auto *set = fixed_root<std::set<int, std::less<>, Fixed<int>>>(heap, "set");
        auto *list = fixed_root<std::list<int, Fixed<int>>>(heap, "list");
        auto *forward = fixed_root<std::forward_list<int, Fixed<int>>>(heap, "forward");
        auto *bits = fixed_root<std::vector<bool, Fixed<bool>>>(heap, "bits");
        auto *deque = fixed_root<std::deque<int, Fixed<int>>>(heap, "deque");
        ASSERT_EQ(map->size(), run * 100u);
        for (int i = run * 100; i < run * 100 + 100; i++) {
            (*map)[fixed_string((kLong + std::to_string(i)).c_str(), map->get_allocator())] = i;
            (*hashed)[i] = i;
            set->insert(i);
            list->push_back(i);
            forward->push_front(i);
            bits->push_back(i % 3 == 0);
            deque->push_front(i);
        }
        for (int i = 0; i < run * 100 + 100; i++) {
            ASSERT_EQ(map->find((kLong + std::to_string(i)).c_str())->second, i);
            ASSERT_EQ(hashed->at(i), i);
            ASSERT_EQ(set->count(i), 1u);
            ASSERT_EQ((*bits)[size_t(i)], i % 3 == 0);
        }
        EXPECT_EQ(list->back(), forward->front());
        EXPECT_EQ(list->size(), size_t(std::distance(forward->begin(), forward->end())));
        EXPECT_EQ(deque->size(), list->size());
        EXPECT_TRUE(is_in(heap, map->begin()->first.data()));
        ASSERT_EQ(heap.commit(), 0);
        EXPECT_EQ(check(heap.get()), "");
    }
}

TEST(PersistHpp, PmrContainersWorkInLaterRunsAndAfterAnAbort)
{
    if (config_tsan)
        GTEST_SKIP() << "the kernel chooses an address that others may take";
    using map = std::pmr::map<std::pmr::string, std::pmr::vector<int>>;
    Directory directory;
    for (int run = 0; run < 3; run++) {
        const pid_t child = fork(); // another process, with an address space of its own
        if (child == 0) {
            persistent_heap heap = open_here(directory, CAIRN_PERSIST_FIXED);
            auto *all = heap.root<map>("map", map::allocator_type(heap.resource()));
            std::pmr::vector<int> &numbers = (*all)[kLong];
            bool good = numbers.size() == size_t(run) * 1000;
            numbers.resize(numbers.size() + 1000);
            good = good && is_in(heap, numbers.data()) && heap.commit() == 0;
            numbers.resize(1000000);
            good = good && heap.abort() == 0;
            all->begin()->second.reserve(100000); // the resource belongs to this process again
            _exit(good && all->size() == 1 && check(heap.get()).empty() ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    persistent_heap heap = open_here(directory); // a heap that may move is refused
    EXPECT_EQ(heap.resource(), nullptr);
    heap.close();
    heap = open_here(directory, CAIRN_PERSIST_FIXED | CAIRN_PERSIST_READ_ONLY);
    EXPECT_EQ(heap.resource(), nullptr);
    ASSERT_NE(heap.find<map>("map"), nullptr) << "the map can be read all the same";
    EXPECT_EQ(heap.find<map>("map")->at(kLong).size(), 3000u);
}

// ---- roots, commits, failures ---------------------------------------------------------------

struct Version1 {
    int number;
};
struct Version2 {
    int number;
};

} // namespace persist_hpp_test

template <> struct cairn::persistent_layout<persist_hpp_test::Version2> {
    static constexpr std::uint64_t number = 2;
};

namespace persist_hpp_test
{

TEST(PersistHpp, RootsAreFoundByNameAndType)
{
    Directory directory;
    persistent_heap heap = open_here(directory);
    auto *one = heap.root<Version1>("one", Version1{5});
    ASSERT_NE(one, nullptr);
    EXPECT_EQ(heap.root<Version1>("one", Version1{6}), one) << "the root exists";
    EXPECT_EQ(one->number, 5);
    EXPECT_EQ(heap.find<Version1>("two"), nullptr);
    EXPECT_EQ(heap.find<long>("one"), nullptr) << "a type of another size";
    EXPECT_EQ(heap.find<Version2>("one"), nullptr) << "a type of another layout";
    EXPECT_EQ(heap.root<Version2>("one", Version2{6}), nullptr);
    struct alignas(256) Aligned {
        char bytes[256];
    };
    auto *aligned = heap.root<Aligned>("aligned");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % 256, 0u);
    char *plain = allocate(heap.get(), 100);
    memset(plain, 0, 100);
    ASSERT_EQ(cairn_persist_set_root(heap.get(), "plain", plain + 50), 0);
    EXPECT_EQ(heap.find<Version1>("plain"), nullptr) << "a root that root() did not make";
    EXPECT_EQ(heap.remove<Version2>("one"), EINVAL);
    EXPECT_EQ(heap.remove<Version1>("none"), ENOENT);
    EXPECT_EQ(heap.remove<Version1>("one"), 0);
    EXPECT_EQ(heap.remove<Aligned>("aligned"), 0);
    EXPECT_EQ(heap.find<Version1>("one"), nullptr);
    EXPECT_EQ(stats_of(heap.get()).used_blocks, 2u) << "the plain block and its name remain";
}

TEST(PersistHpp, AConstructorThatThrowsLeavesNothing)
{
    struct Throwing {
        Throwing() { throw 5; }
    };
    Directory directory;
    persistent_heap heap = open_here(directory);
    EXPECT_THROW(static_cast<void>(heap.root<Throwing>("x")), int);
    EXPECT_THROW(static_cast<void>(heap.root<int>("", 1)), std::bad_alloc)
        << "an empty name is invalid";
    EXPECT_EQ(stats_of(heap.get()).used_blocks, 0u);
}

TEST(PersistHpp, AnExceptionUndoesWhatTheGuardSaw)
{
    using vector = std::vector<int, persistent_allocator<int>>;
    Directory directory;
    persistent_heap heap = open_here(directory);
    auto *numbers = heap.root<vector>("numbers", heap.allocator<int>());
    numbers->push_back(1);
    ASSERT_EQ(heap.commit(), 0);
    try {
        commit_guard guard(heap);
        numbers->assign(100000, 2);
        throw 1;
    } catch (int) {
    }
    EXPECT_EQ(*numbers, vector({1}, heap.allocator<int>()));
    {
        commit_guard guard(heap);
        numbers->push_back(3);
        EXPECT_EQ(guard.commit(), 0);
        EXPECT_EQ(guard.commit(), 0) << "a second commit has no effect";
    }
    EXPECT_EQ(numbers->size(), 2u);
    EXPECT_EQ(heap.abort(), 0);
    EXPECT_EQ(numbers->size(), 2u) << "committed";
}

TEST(PersistHpp, FailuresAreExceptions)
{
    Directory directory;
    cairn_persist_options options = {};
    try {
        persistent_heap none(directory.file().c_str(), options);
        FAIL();
    } catch (const std::system_error &error) {
        EXPECT_EQ(error.code().value(), ENOENT);
        EXPECT_NE(std::string(error.what()).find(directory.file()), std::string::npos);
    }
    write_file(directory.file("other"), std::string(200000, 'x'));
    try {
        persistent_heap none(directory.file("other").c_str());
        FAIL();
    } catch (const std::system_error &error) {
        EXPECT_EQ(error.code().value(), ENOTSUP);
        EXPECT_NE(std::string(error.what()).find("the file is not a heap"), std::string::npos);
    }
    persistent_heap heap = open_here(directory);
    EXPECT_THROW(open_here(directory), std::system_error) << "the heap is in use";
    using vector = std::vector<char, persistent_allocator<char>>;
    vector large(heap.allocator<char>());
    EXPECT_THROW(large.resize(size_t{1} << 29), std::bad_alloc) << "beyond the capacity";
    EXPECT_THROW((void)heap.allocator<long>().allocate(SIZE_MAX / 4), std::bad_array_new_length);
    large.resize(1000);
    EXPECT_TRUE(is_in(heap, large.data()));
}

TEST(PersistHpp, ContainersOfSeveralHeapsKeepToTheirs)
{
    using vector = std::vector<persistent_string, persistent_scoped_allocator<persistent_string>>;
    Directory first, second;
    persistent_heap one = open_here(first);
    persistent_heap other = open_here(second);
    EXPECT_NE(one.allocator<int>(), other.allocator<int>());
    EXPECT_EQ(one.allocator<int>(), one.allocator<long>());
    auto *from = one.root<vector>("vector", one.allocator<char>());
    auto *to = other.root<vector>("vector", other.allocator<char>());
    from->emplace_back(kLong);
    *to = std::move(*from);
    ASSERT_EQ(to->size(), 1u);
    EXPECT_TRUE(is_in(other, to->data()));
    EXPECT_TRUE(is_in(other, to->front().data()));
    EXPECT_EQ(to->front(), kLong);
    persistent_heap moved = std::move(other); // the owner moves, the heap does not
    to->emplace_back(kLong);
    EXPECT_FALSE(other);
    EXPECT_EQ(moved.find<vector>("vector"), to);
}

TEST(PersistHpp, AnAllocatorWhoseHeapIsClosedEndsTheProgram)
{
    Directory directory;
    persistent_heap heap = open_here(directory);
    persistent_allocator<int> from = heap.allocator<int>();
    EXPECT_EQ(heap.close(), 0);
    EXPECT_DEATH(static_cast<void>(from.allocate(1)),
                 "^cairn: an allocator's persistent heap is not open\n$");
}

} // namespace persist_hpp_test
