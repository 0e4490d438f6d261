// offset_ptr behaves like a pointer, wherever it is stored itself.

#include "cairn/offset_ptr.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <type_traits>
#include <unordered_set>

namespace offset_ptr_test
{

using cairn::offset_ptr;

struct Base {
    int number = 0;
};
struct Derived : Base {
    int more = 0;
};

template <class From, class To>
constexpr bool converts = std::is_convertible_v<offset_ptr<From>, offset_ptr<To>>;
template <class From, class To>
constexpr bool casts = std::is_constructible_v<offset_ptr<To>, offset_ptr<From>>;

static_assert(converts<int, const int> && !converts<const int, int>);
static_assert(converts<int, void> && converts<int, const void> && !converts<const int, void>);
static_assert(!converts<void, int> && casts<void, int> && !casts<const void, int>);
static_assert(converts<Derived, Base> && !converts<Base, Derived> && casts<Base, Derived>);
static_assert(!casts<int, long>);
static_assert(!std::is_convertible_v<offset_ptr<int>, int *>);
static_assert(std::is_convertible_v<offset_ptr<char>, const char *>);
static_assert(!std::is_convertible_v<offset_ptr<const char>, char *>);
static_assert(!std::is_convertible_v<offset_ptr<int>, bool>);
static_assert(sizeof(offset_ptr<int>) == 8);

using Traits = std::pointer_traits<offset_ptr<int>>;
static_assert(std::is_same_v<Traits::element_type, int>);
static_assert(std::is_same_v<Traits::rebind<const long>, offset_ptr<const long>>);
static_assert(std::is_same_v<std::iterator_traits<offset_ptr<const int>>::value_type, int>);
static_assert(std::is_same_v<std::iterator_traits<offset_ptr<const int>>::reference, const int &>);

TEST(OffsetPtr, CopiesPointToTheSameWhereverTheyLie)
{
    int number = 5;
    auto first = std::make_unique<offset_ptr<int>>(&number);
    offset_ptr<int> copy = *first;
    offset_ptr<int> assigned;
    assigned = *first;
    offset_ptr<int> &itself = copy;
    copy = itself;
    EXPECT_EQ(copy.get(), &number);
    EXPECT_EQ(*assigned, 5);
    EXPECT_NE(std::memcmp(&copy, first.get(), sizeof copy), 0) << "the stored distances differ";
    std::swap(copy, *first);
    EXPECT_EQ(copy, *first);
}

TEST(OffsetPtr, NullIsZeroAndToItselfIsNot)
{
    offset_ptr<void> null = nullptr;
    uint64_t word = 1;
    std::memcpy(&word, &null, sizeof word);
    EXPECT_EQ(word, 0u);
    EXPECT_TRUE(null == nullptr && !null);
    null = &null;
    EXPECT_EQ(null.get(), &null);
    EXPECT_TRUE(null != nullptr && null);
    offset_ptr<const void> copy = null;
    EXPECT_EQ(copy.get(), &null);
    null = nullptr;
    EXPECT_TRUE(nullptr == null);
    offset_ptr<Derived> none;
    EXPECT_EQ(offset_ptr<Base>(none).get(), nullptr) << "NULL stays NULL as another type";
}

TEST(OffsetPtr, IsARandomAccessIterator)
{
    std::array<int, 1000> numbers;
    std::iota(numbers.begin(), numbers.end(), 0);
    offset_ptr<int> begin = numbers.data();
    offset_ptr<const int> end = begin + 1000;
    EXPECT_EQ(end - begin, 1000);
    EXPECT_EQ(std::accumulate(offset_ptr<const int>(begin), end, 0), 499500);
    std::reverse(begin, begin + 1000);
    EXPECT_TRUE(std::is_sorted(numbers.rbegin(), numbers.rend()));
    std::sort(begin, begin + 1000);
    EXPECT_EQ(*std::lower_bound(begin, begin + 1000, 77), 77);
    offset_ptr<int> at = begin;
    EXPECT_EQ(*at++, 0);
    EXPECT_EQ(*++at, 2);
    EXPECT_EQ(*at--, 2);
    EXPECT_EQ(*--at, 0);
    EXPECT_EQ(*(at += 10), 10);
    EXPECT_EQ(*(at -= 3), 7);
    EXPECT_EQ(at[-2], 5);
    EXPECT_EQ(*(2 + at), 9);
    EXPECT_EQ(*(at - 1), 6);
    EXPECT_TRUE(begin < end && begin <= at && end > at && end >= at && begin != end);
    EXPECT_TRUE(at == &numbers[7] && &numbers[8] != at);
}

TEST(OffsetPtr, CastsHashAndPointerTo)
{
    Derived object;
    offset_ptr<Base> base = offset_ptr<Derived>(&object);
    base->number = 3;
    EXPECT_EQ(static_cast<offset_ptr<Derived>>(base)->number, 3);
    EXPECT_EQ(static_cast<offset_ptr<Derived>>(offset_ptr<void>(&object)).get(), &object);
    EXPECT_EQ(std::pointer_traits<offset_ptr<Base>>::pointer_to(object).get(), &object);
    std::unordered_set<offset_ptr<Base>> set = {base, base, nullptr};
    EXPECT_EQ(set.size(), 2u);
    EXPECT_EQ(set.count(&object), 1u);
    EXPECT_EQ(std::hash<offset_ptr<Base>>()(base), std::hash<Base *>()(&object));
}

} // namespace offset_ptr_test
