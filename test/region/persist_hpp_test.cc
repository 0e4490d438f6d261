// The persistent heap from C++: containers of libstdc++ that live in it, across runs and moves.

#include <map>
#include <numeric>
#include <unordered_map>

#include "cairn/persist.hpp"
#include "region/persist_kit.h"

namespace
{

using namespace persist;

struct Store {
};
template <class T> using Moving = cairn::persistent_allocator<T, Store>;
template <class T> using Plain = cairn::persistent_plain_allocator<T, Store>;
using Text = std::vector<char, Moving<char>>;
using Words = std::vector<Text, Moving<Text>>;
using PlainText = std::basic_string<char, std::char_traits<char>, Plain<char>>;
using Map = std::map<int, PlainText, std::less<int>, Plain<std::pair<const int, PlainText>>>;
using Table = std::unordered_map<int, int, std::hash<int>, std::equal_to<int>,
                                 Plain<std::pair<const int, int>>>;

std::string long_word(int i)
{
    return "a word that is long enough for a block " + std::to_string(i);
}

Text text(const std::string &word) { return Text(word.begin(), word.end()); }

TEST(PersistHpp, VectorsOfVectorsMoveWithTheHeap)
{
    if (config_tsan)
        GTEST_SKIP() << "the address that is to be taken would lie in its shadow";
    Directory directory;
    void *before = nullptr;
    {
        cairn::persistent_heap heap(directory.file());
        cairn::persistent_use<Store> use(heap);
        Words *words = heap.root<Words>("words");
        for (int i = 0; i < 500; i++) {
            words->push_back(text(long_word(i)));
            words->push_back(text("short"));
        }
        words->erase(words->begin() + 1);
        heap.commit();
        words->clear(); // not committed
        before = stats_of(heap.get()).address;
    }
    ASSERT_TRUE(os_reserve_at(before, 65536)) << "so that it has to move";
    {
        cairn::persistent_heap heap(directory.file());
        EXPECT_TRUE(stats_of(heap.get()).moved);
        cairn::persistent_use<Store> use(heap);
        Words *words = heap.root<Words>("words");
        ASSERT_EQ(words->size(), 999u);
        EXPECT_TRUE((*words)[0] == text(long_word(0)));
        EXPECT_TRUE((*words)[1] == text(long_word(1)));
        EXPECT_TRUE(words->back() == text("short"));
        words->push_back(text("more"));
        std::sort(words->begin(), words->end());
        EXPECT_TRUE(std::is_sorted(words->begin(), words->end()));
        EXPECT_EQ(check(heap.get()), "");
        heap.commit();
    }
    os_unmap(before, 65536);
}

TEST(PersistHpp, MapsAtAFixedAddress)
{
    if (config_tsan)
        GTEST_SKIP() << "there the kernel chooses an address that others may take";
    Directory directory;
    cairn_persist_options options = {};
    options.flags = CAIRN_PERSIST_CREATE | CAIRN_PERSIST_FIXED;
    for (int run = 0; run < 3; run++) {
        cairn::persistent_heap heap(directory.file(), options);
        cairn::persistent_use<Store> use(heap);
        Map *map = heap.root<Map>("map");
        Table *table = heap.root<Table>("table");
        ASSERT_EQ(map->size(), static_cast<size_t>(run) * 300);
        for (int i = 0; i < run * 300; i++) {
            ASSERT_STREQ(map->at(i).c_str(), long_word(i).c_str());
            ASSERT_EQ(table->at(i), -i);
        }
        for (int i = run * 300; i < run * 300 + 300; i++) {
            (*map)[i] = long_word(i).c_str();
            (*table)[i] = -i;
        }
        heap.commit();
        map->clear(); // not committed
    }
}

TEST(PersistHpp, TransactionsAreUndoneUnlessCommitted)
{
    Directory directory;
    cairn::persistent_heap heap(directory.file());
    cairn::persistent_use<Store> use(heap);
    Words *words = heap.root<Words>("words");
    heap.commit();
    try {
        cairn::persistent_transaction transaction(heap);
        words->push_back(text("lost"));
        throw 1;
    } catch (int) {
    }
    EXPECT_EQ(words->size(), 0u);
    {
        cairn::persistent_transaction transaction(heap);
        words->push_back(text("kept"));
        transaction.commit();
    }
    heap.abort();
    EXPECT_EQ(words->size(), 1u);
}

TEST(PersistHpp, FailuresAreExceptionsWithTheSentence)
{
    Directory directory;
    write_file(directory.file(), std::string(200000, 'x'));
    try {
        cairn::persistent_heap heap(directory.file());
        FAIL();
    } catch (const std::system_error &error) {
        EXPECT_EQ(error.code().value(), ENOTSUP);
        EXPECT_NE(std::string(error.what()).find("the file is not a heap"), std::string::npos);
    }
}

TEST(OffsetPtr, IsAPointer)
{
    int numbers[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    cairn::offset_ptr<int> a = numbers, b = a + 4;
    EXPECT_EQ(*b, 4);
    EXPECT_EQ(b[-1], 3);
    EXPECT_EQ(b - a, 4);
    EXPECT_TRUE(a < b && b > a && a <= b && b >= a && a != b);
    EXPECT_EQ(*a++, 0);
    EXPECT_EQ(*--b, 3);
    cairn::offset_ptr<const int> c = b;
    EXPECT_EQ(c.get(), numbers + 3);
    cairn::offset_ptr<int> null = nullptr;
    EXPECT_FALSE(null);
    EXPECT_EQ(null, nullptr);
    EXPECT_EQ(std::pointer_traits<cairn::offset_ptr<int>>::pointer_to(numbers[5]).get(),
              numbers + 5);
    EXPECT_EQ(std::accumulate(a, a + 3, 0), 6);
}

} // namespace
