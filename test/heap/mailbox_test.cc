// Collection of remote frees: for one slab, and for a whole mailbox.

#include <set>
#include <vector>

#include "heap/slab_layer.h"

namespace mailbox_test
{

using heap_layer::allocate;
using heap_layer::heap_of_test;
using heap_layer::in_thread;
using heap_layer::own_heap;
using heap_layer::span_of;

class Mailbox : public heap_layer::SlabOfClass
{
};

TEST_P(Mailbox, RemoteFreesAreCollected)
{
    const std::vector<char *> blocks = take_all();
    std::set<char *> freed;
    for (size_t i = 0; i < blocks.size(); i += 3) {
        EXPECT_EQ(slab_remote(slab_) != 0, i > 0);
        *slab_link(slab_, slot(blocks[i])) = LINK_REMOTE;
        freed.insert(blocks[i]);
    }
    EXPECT_EQ(slab_live(slab_), blocks.size()) << "the frees are not collected yet";
    // In hardened builds they are put into quarantine.
    EXPECT_EQ(slab_collect(slab_), config_hardened ? 0 : freed.size());
    quarantine_flush(heap_of_test());
    EXPECT_EQ(slab_live(slab_), blocks.size() - freed.size());
    slab_verify(slab_);
    EXPECT_EQ(slab_remote(slab_), 0u);
    EXPECT_EQ(slab_collect(slab_), 0u);
    while (void *block = slab_pop(slab_))
        EXPECT_EQ(freed.erase(static_cast<char *>(block)), 1u);
    EXPECT_TRUE(freed.empty());
    slab_retire(slab_);
}

INSTANTIATE_TEST_SUITE_P(Classes, Mailbox, heap_layer::some_classes());

TEST(MailboxOfAHeap, DrainedItsSlotsAreFreeForgottenTheyWait)
{
    struct heap *heap = own_heap();
    std::vector<void *> blocks;
    for (int i = 0; i < 20; i++)
        blocks.push_back(allocate(700));
    struct span *slab = span_of(blocks[0]);
    const auto free_there = [&](size_t i) { in_thread([&] { free_fast(blocks[i]); }); };
    free_there(0);
    EXPECT_EQ(heap_layer::mailbox_of(heap, slab_class(slab)), slab);
    heap_forget_mail(heap);
    EXPECT_EQ(heap_layer::mailbox_of(heap, slab_class(slab)), nullptr);
    EXPECT_NE(slab_remote(slab), 0u) << "no thread has visited the slab";
    free_there(1);
    EXPECT_EQ(heap_layer::mailbox_of(heap, slab_class(slab)), slab) << "the slab is posted again";
    heap_drain(heap);
    EXPECT_EQ(slab_remote(slab), 0u);
    for (size_t i = 2; i < blocks.size(); i++)
        free_fast(blocks[i]);
    heap_trim(heap);
    heap_layer::verify();
}

} // namespace mailbox_test
