// Which sizes the fast path of malloc serves.

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;

class ClassTable : public heap_layer::OwnHeap
{
};

TEST_F(ClassTable, AnArmedClassShowsTheEmptySlab)
{
    if (heap_is_watched())
        GTEST_SKIP() << "somebody watches all of them";
    const unsigned armed = 9;
    const size_t size = size_classes[armed].size_bytes;
    EXPECT_EQ(heap_->small_class[size], armed);
    heap_arm(heap_, armed);
    EXPECT_EQ(heap_->small_class[size], CLASS_COUNT);
    EXPECT_EQ(heap_->small_class[size_classes[armed - 1].size_bytes], armed - 1);
    EXPECT_EQ(heap_->small_class[size + 1], armed + 1);
    class_table_verify(heap_);
    free_fast(allocate(size - CANARY_BYTES));
    heap_arm(heap_, armed + 1);
    EXPECT_EQ(heap_->small_class[size], armed) << "one at a time";
    heap_disarm(heap_);
    EXPECT_EQ(heap_->small_class[size + 1], armed + 1);
    class_table_verify(heap_);
}

using ClassTableDeathTest = ClassTable;

TEST_F(ClassTableDeathTest, TheVerifierFindsAWrongEntry)
{
    if (!config_debug)
        GTEST_SKIP() << "the verifier runs in debug builds";
    const auto broken = [&] {
        heap_->small_class[size_classes[9].size_bytes]++;
        heap_verify(heap_);
    };
    EXPECT_DEATH(broken(), "internal error");
}

} // namespace
