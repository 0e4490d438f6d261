// Named roots: set, found again, listed, removed, and refused when invalid.

#include "region/persist_kit.h"

namespace persist_roots_test
{

using namespace persist;

class Roots : public testing::Test
{
  protected:
    void SetUp() override { ASSERT_NE(heap_ = open_heap(directory_.file()), nullptr); }
    void TearDown() override { cairn_persist_close(heap_); }

    std::vector<std::string> names() const
    {
        std::vector<std::string> found;
        cairn_persist_walk_roots(
            heap_,
            [](const char *name, void *, void *context) {
                static_cast<std::vector<std::string> *>(context)->push_back(name);
                return true;
            },
            &found);
        return found;
    }

    Directory directory_;
    cairn_persist *heap_ = nullptr;
};

TEST_F(Roots, SetReplacedAndRemoved)
{
    char *a = allocate(heap_, 10), *b = allocate(heap_, 10);
    EXPECT_EQ(cairn_persist_get_root(heap_, "a"), nullptr);
    EXPECT_EQ(cairn_persist_set_root(heap_, "a", a), 0);
    EXPECT_EQ(cairn_persist_set_root(heap_, "ab", b), 0);
    EXPECT_EQ(cairn_persist_get_root(heap_, "a"), a);
    EXPECT_EQ(cairn_persist_get_root(heap_, "ab"), b);
    EXPECT_EQ(cairn_persist_set_root(heap_, "a", b), 0);
    EXPECT_EQ(cairn_persist_get_root(heap_, "a"), b);
    EXPECT_EQ(names(), (std::vector<std::string>{"ab", "a"}));
    EXPECT_EQ(cairn_persist_remove_root(heap_, "ab"), 0);
    EXPECT_EQ(cairn_persist_remove_root(heap_, "ab"), ENOENT);
    EXPECT_EQ(names(), std::vector<std::string>{"a"});
    EXPECT_EQ(cairn_persist_set_root(heap_, "a", nullptr), 0);
    EXPECT_EQ(cairn_persist_get_root(heap_, "a"), nullptr);
    EXPECT_EQ(names(), std::vector<std::string>{"a"});
    EXPECT_EQ(check(heap_), "");
}

TEST_F(Roots, ManyAreKeptAcrossOpens)
{
    for (int i = 0; i < 300; i++) {
        char *block = allocate(heap_, 16);
        strcpy(block, std::to_string(i).c_str());
        ASSERT_EQ(cairn_persist_set_root(heap_, ("root " + std::to_string(i)).c_str(), block), 0);
    }
    ASSERT_EQ(cairn_persist_commit(heap_), 0);
    ASSERT_EQ(cairn_persist_close(heap_), 0);
    ASSERT_NE(heap_ = open_heap(directory_.file(), Options().with(CAIRN_PERSIST_CHECK)), nullptr);
    for (int i = 0; i < 300; i += 7) {
        const std::string number = std::to_string(i);
        EXPECT_EQ(static_cast<char *>(cairn_persist_get_root(heap_, ("root " + number).c_str())),
                  number);
    }
    EXPECT_EQ(names().size(), 300u);
}

TEST_F(Roots, NamesAndBlocksThatAreNone)
{
    char foreign;
    EXPECT_EQ(cairn_persist_set_root(heap_, "", nullptr), EINVAL);
    EXPECT_EQ(cairn_persist_set_root(heap_, std::string(256, 'x').c_str(), nullptr), EINVAL);
    EXPECT_EQ(cairn_persist_set_root(heap_, std::string(255, 'x').c_str(), nullptr), 0);
    EXPECT_EQ(cairn_persist_set_root(heap_, "a", &foreign), EINVAL);
    EXPECT_EQ(names().size(), 1u);
}

TEST_F(Roots, WithoutMemoryNothingChanges)
{
    errno = 77;
    std::vector<char *> blocks;
    for (size_t size : {1 << 20, 4096, 24})
        while (char *block = allocate(heap_, size))
            blocks.push_back(block);
    EXPECT_EQ(errno, ENOMEM);
    errno = 77;
    EXPECT_EQ(cairn_persist_set_root(heap_, "a", blocks[0]), ENOMEM);
    EXPECT_EQ(errno, 77);
    EXPECT_EQ(names().size(), 0u);
    EXPECT_EQ(check(heap_), "");
}

// UndefinedBehaviorSanitizer reports a fault here.
TEST_F(Roots, ADamagedLinkThatIsNotAlignedIsNotFollowed)
{
    ASSERT_EQ(cairn_persist_set_root(heap_, "first", nullptr), 0);
    ASSERT_EQ(cairn_persist_set_root(heap_, "second", nullptr), 0);
    persist_state_of(heap_)->roots.distance += 2;
    EXPECT_EQ(names().size(), 0u);
    EXPECT_EQ(cairn_persist_get_root(heap_, "first"), nullptr);
    EXPECT_EQ(check(heap_), "the list of roots is broken");
    persist_state_of(heap_)->roots.distance -= 2;
    EXPECT_EQ(check(heap_), "");
}

TEST(Offsets, NullSelfAndBothWays)
{
    struct {
        char before[40];
        cairn_offset link;
        char behind[40];
    } place = {};
    EXPECT_EQ(cairn_offset_get(&place.link), nullptr) << "zeros are NULL";
    for (void *to : {static_cast<void *>(place.before), static_cast<void *>(place.behind + 3),
                     static_cast<void *>(&place.link), static_cast<void *>(&place)}) {
        cairn_offset_set(&place.link, to);
        EXPECT_EQ(cairn_offset_get(&place.link), to);
    }
    cairn_offset_set(&place.link, nullptr);
    EXPECT_EQ(cairn_offset_get(&place.link), nullptr);
}

} // namespace persist_roots_test
