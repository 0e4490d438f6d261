// The rules of cairn/allocator.h, checked for every allocator through its common interface.

#include "cairn/allocator.h"

#include <vector>

#include "cairn/fifo.h"
#include "cairn/heap.h"
#include "cairn/pages.h"
#include "cairn/pool.h"
#include "cairn/private_heap.h"
#include "cairn/ring.h"
#include "cairn/scope.h"
#include "cairn/stack.h"
#include "cairn/tlsf.h"
#include "frame/frame_kit.h"

namespace
{

using namespace frame_kit;

// Each subject holds an allocator with room for some MiB. kMostSize and kMostAlign are the largest
// size and alignment that it must serve.
struct StackSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 64 * kKiB;
    cairn_stack *stack = cairn_stack_new(nullptr);
    cairn_allocator get() { return cairn_stack_allocator(stack); }
    ~StackSubject() { cairn_stack_delete(stack); }
};
struct BufferStackSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 4 * kKiB;
    std::vector<char> memory = std::vector<char>(32 * kMiB);
    static cairn_stack *make(std::vector<char> &memory)
    {
        cairn_stack_options options = {};
        options.buffer = memory.data();
        options.buffer_bytes = memory.size();
        options.fixed = true;
        return cairn_stack_new(&options);
    }
    cairn_stack *stack = make(memory);
    cairn_allocator get() { return cairn_stack_allocator(stack); }
    ~BufferStackSubject() { cairn_stack_delete(stack); }
};
struct ScopeSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 64 * kKiB;
    cairn_mark mark = cairn_scope_push();
    cairn_allocator get() { return cairn_stack_allocator(cairn_thread_stack()); }
    ~ScopeSubject() { cairn_scope_pop(mark); }
};
struct FifoSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 2 * kMiB;
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    cairn_allocator get() { return cairn_fifo_allocator(fifo); }
    ~FifoSubject() { cairn_fifo_close(fifo); }
};
struct SharedFifoSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 2 * kMiB;
    static cairn_fifo *make()
    {
        cairn_fifo_options options = {};
        options.any_thread_free = true;
        return cairn_fifo_new(&options);
    }
    cairn_fifo *fifo = make();
    cairn_allocator get() { return cairn_fifo_allocator(fifo); }
    ~SharedFifoSubject() { cairn_fifo_close(fifo); }
};
struct RingSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 64 * kKiB;
    cairn_ring *ring = cairn_ring_new(nullptr);
    cairn_frame frame = cairn_ring_open(ring);
    cairn_allocator get() { return cairn_ring_allocator(ring); }
    ~RingSubject()
    {
        cairn_ring_release(cairn_ring_seal(ring));
        cairn_ring_close(ring);
    }
};
struct PagesSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 2 * kMiB;
    cairn_allocator get() { return cairn_pages_allocator(); }
};
struct TlsfSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 4 * kKiB;
    std::vector<char> memory = std::vector<char>(64 * kMiB);
    cairn_tlsf *tlsf = cairn_tlsf_init(memory.data(), memory.size());
    cairn_allocator get() { return cairn_tlsf_allocator(tlsf); }
};
struct PoolSubject {
    static constexpr size_t kMostSize = 200, kMostAlign = 16;
    cairn_pool *pool = cairn_pool_new(200, 16, nullptr);
    cairn_allocator get() { return cairn_pool_allocator(pool); }
    ~PoolSubject() { cairn_pool_delete(pool); }
};

struct HeapSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 2 * kMiB;
    cairn_allocator get() { return cairn_heap_allocator(); }
};
struct OwnHeapSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 2 * kMiB;
    cairn_private_heap *heap = cairn_private_heap_new(nullptr);
    cairn_allocator get() { return cairn_private_heap_allocator(heap); }
    ~OwnHeapSubject() { cairn_private_heap_delete(heap); }
};
struct SharedPoolSubject {
    static constexpr size_t kMostSize = 200, kMostAlign = 16;
    static cairn_pool *make()
    {
        cairn_pool_options options = {};
        options.shared = true;
        return cairn_pool_new(200, 16, &options);
    }
    cairn_pool *pool = make();
    cairn_allocator get() { return cairn_pool_allocator(pool); }
    ~SharedPoolSubject() { cairn_pool_delete(pool); }
};
struct SharedTlsfSubject {
    static constexpr size_t kMostSize = kMiB, kMostAlign = 4 * kKiB;
    std::vector<char> memory = std::vector<char>(64 * kMiB);
    cairn_tlsf_shared *tlsf = cairn_tlsf_share(cairn_tlsf_init(memory.data(), memory.size()));
    cairn_allocator get() { return cairn_tlsf_shared_allocator(tlsf); }
    ~SharedTlsfSubject() { cairn_tlsf_unshare(tlsf); }
};

template <class Subject> class AllocatorConformance : public testing::Test
{
  protected:
    Subject subject_;
    cairn_allocator allocator_ = subject_.get();
    Random random_{7};

    bool can(unsigned what) const { return cairn_allocator_can(allocator_, what); }
    size_t random_size()
    {
        return random_.size(Subject::kMostSize > 20000 ? 20000 : Subject::kMostSize);
    }
};

using Subjects =
    testing::Types<HeapSubject, OwnHeapSubject, StackSubject, BufferStackSubject, ScopeSubject,
                   FifoSubject, SharedFifoSubject, RingSubject, PagesSubject, TlsfSubject,
                   SharedTlsfSubject, PoolSubject, SharedPoolSubject>;
TYPED_TEST_SUITE(AllocatorConformance, Subjects);

TYPED_TEST(AllocatorConformance, BlocksAreAlignedAndTheirOwn)
{
    struct Block {
        void *pointer;
        size_t size;
    };
    std::vector<Block> blocks;
    for (int i = 0; i < 300; i++) {
        Block block = {nullptr, this->random_size()};
        size_t align =
            this->random_.align(static_cast<unsigned>(__builtin_ctzll(TypeParam::kMostAlign) % 13));
        block.pointer = cairn_allocator_alloc(this->allocator_, block.size, align);
        ASSERT_NE(block.pointer, nullptr);
        ASSERT_TRUE(is_aligned(block.pointer, align));
        paint(block.pointer, block.size, blocks.size());
        blocks.push_back(block);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        ASSERT_TRUE(is_painted(blocks[i].pointer, blocks[i].size, i));
        cairn_allocator_free(this->allocator_, blocks[i].pointer, blocks[i].size);
    }
}

TYPED_TEST(AllocatorConformance, LargestSizeAndAlignment)
{
    void *large = cairn_allocator_alloc(this->allocator_, TypeParam::kMostSize, 8);
    ASSERT_NE(large, nullptr);
    memset(large, 1, TypeParam::kMostSize);
    void *aligned = cairn_allocator_alloc(this->allocator_, 8, TypeParam::kMostAlign);
    ASSERT_NE(aligned, nullptr);
    EXPECT_TRUE(is_aligned(aligned, TypeParam::kMostAlign));
    cairn_allocator_free(this->allocator_, large, TypeParam::kMostSize);
    cairn_allocator_free(this->allocator_, aligned, 8);
}

TYPED_TEST(AllocatorConformance, SizeZeroIsABlock)
{
    void *first = cairn_allocator_alloc(this->allocator_, 0, 1);
    void *second = cairn_allocator_alloc(this->allocator_, 0, 1);
    EXPECT_NE(first, nullptr);
    EXPECT_NE(second, nullptr);
    EXPECT_NE(first, second);
    cairn_allocator_free(this->allocator_, first, 0);
    cairn_allocator_free(this->allocator_, second, 0);
}

TYPED_TEST(AllocatorConformance, RefusalsAreAlike)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX - 15, size_t{PTRDIFF_MAX}, size_t{PTRDIFF_MAX} + 1}) {
        errno = 0;
        EXPECT_EQ(cairn_allocator_alloc(this->allocator_, size, 8), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc_array(this->allocator_, SIZE_MAX / 2, 3, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    for (size_t align : {0, 3, 24}) {
        errno = 0;
        EXPECT_EQ(cairn_allocator_alloc(this->allocator_, 8, align), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

// Some of the memory was used before, where the allocator has such memory.
TYPED_TEST(AllocatorConformance, ZeroFormsAreZeroAndOnlyThey)
{
    size_t most = TypeParam::kMostSize < 3000 ? TypeParam::kMostSize : 3000;
    for (int round = 0; round < 50; round++) {
        void *used = cairn_allocator_alloc(this->allocator_, most, 8);
        memset(used, 0xff, most);
        cairn_allocator_free(this->allocator_, used, most);
        size_t count = 1 + this->random_.below(most / 4);
        void *blocks[] = {
            cairn_allocator_alloc_zero(this->allocator_, count, 8),
            cairn_allocator_alloc_array_zero(this->allocator_, count, 4, 8),
        };
        size_t sizes[] = {count, count * 4};
        for (int i = 0; i < 2; i++) {
            ASSERT_NE(blocks[i], nullptr);
            const auto *bytes = static_cast<unsigned char *>(blocks[i]);
            for (size_t j = 0; j < sizes[i]; j++)
                ASSERT_EQ(bytes[j], 0);
            memset(blocks[i], 0xff, sizes[i]);
            cairn_allocator_free(this->allocator_, blocks[i], sizes[i]);
        }
    }
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc_array_zero(this->allocator_, SIZE_MAX / 2, 3, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc_zero(this->allocator_, 8, 24), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TYPED_TEST(AllocatorConformance, NullIsIgnored)
{
    errno = 77;
    cairn_allocator_free(this->allocator_, nullptr, 8);
    EXPECT_EQ(cairn_allocator_resize(this->allocator_, nullptr, 0, 8), nullptr);
    EXPECT_EQ(errno, 77);
}

TYPED_TEST(AllocatorConformance, ResizeStaysInPlaceOrSaysNo)
{
    size_t size = 100;
    void *block = cairn_allocator_alloc(this->allocator_, size, 8);
    paint(block, size, 1);
    errno = 77;
    for (size_t next : {size_t{150}, size_t{50}, size_t{0}, size_t{100}, size_t{100000}, SIZE_MAX,
                        size_t{PTRDIFF_MAX}}) {
        void *resized = cairn_allocator_resize(this->allocator_, block, size, next);
        size_t kept = resized != nullptr && next < size ? next : size;
        ASSERT_TRUE(is_painted(block, kept, 1));
        if (resized == nullptr)
            continue;
        ASSERT_EQ(resized, block);
        ASSERT_TRUE(this->can(CAIRN_CAN_RESIZE));
        size = next;
        paint(block, size, 1);
    }
    EXPECT_EQ(errno, 77);
    cairn_allocator_free(this->allocator_, block, size);
}

TYPED_TEST(AllocatorConformance, ReallocKeepsContents)
{
    size_t most = TypeParam::kMostSize < 50000 ? TypeParam::kMostSize : 50000;
    size_t size = 10;
    void *block = cairn_allocator_realloc(this->allocator_, nullptr, 0, size, 8);
    paint(block, size, 1);
    for (int i = 0; i < 50; i++) {
        size_t next = 1 + this->random_.below(most);
        void *moved = cairn_allocator_realloc(this->allocator_, block, size, next, 8);
        ASSERT_NE(moved, nullptr);
        ASSERT_TRUE(is_painted(moved, size < next ? size : next, 1));
        block = moved;
        size = next;
        paint(block, size, 1);
    }
    EXPECT_EQ(cairn_allocator_realloc(this->allocator_, block, size, SIZE_MAX / 2 + 1, 8), nullptr);
    EXPECT_TRUE(is_painted(block, size, 1));
    cairn_allocator_free(this->allocator_, block, size);
}

TYPED_TEST(AllocatorConformance, FreedMemoryServesAgainWhereItSaysSo)
{
    if (!this->can(CAIRN_CAN_FREE))
        GTEST_SKIP() << this->allocator_.operations->name << " frees together";
    for (int i = 0; i < 200000; i++) {
        void *block = cairn_allocator_alloc(this->allocator_, 100, 8);
        ASSERT_NE(block, nullptr);
        cairn_allocator_free(this->allocator_, block, 100);
    }
}

TYPED_TEST(AllocatorConformance, AnyThreadWhereItSaysSo)
{
    if (!this->can(CAIRN_ANY_THREAD_FREE))
        GTEST_SKIP() << this->allocator_.operations->name << " belongs to one thread";
    for (int i = 0; i < 100; i++) {
        void *block = cairn_allocator_alloc(this->allocator_, 100, 8);
        ASSERT_NE(block, nullptr);
        in_thread([&] { cairn_allocator_free(this->allocator_, block, 100); });
    }
}

TYPED_TEST(AllocatorConformance, HasAName) { EXPECT_STRNE(this->allocator_.operations->name, ""); }

// All delete functions ignore NULL and keep errno.
TEST(Ends, IgnoreNull)
{
    errno = 77;
    EXPECT_EQ(cairn_stack_delete(nullptr), 0);
    cairn_stack *stack = cairn_stack_new(nullptr);
    cairn_stack_pop(stack, cairn_mark{});
    EXPECT_EQ(cairn_stack_delete(stack), 0);
    EXPECT_EQ(cairn_fifo_delete(nullptr), 0);
    cairn_fifo_close(nullptr);
    cairn_fifo *fifo = cairn_fifo_new(nullptr);
    cairn_fifo_free(fifo, nullptr);
    EXPECT_EQ(cairn_fifo_delete(fifo), 0);
    EXPECT_EQ(cairn_ring_delete(nullptr), 0);
    cairn_ring_close(nullptr);
    cairn_ring_release(cairn_frame{});
    cairn_ring_retain(cairn_frame{}, 1);
    cairn_pool_delete(nullptr);
    cairn_pool_detach(nullptr);
    cairn_pool *pool = cairn_pool_new(8, 8, nullptr);
    cairn_pool_put(pool, nullptr);
    cairn_pool_delete(pool);
    cairn_tlsf_delete(nullptr);
    cairn_tlsf *heap = cairn_tlsf_new(0);
    cairn_tlsf_free(heap, nullptr);
    cairn_tlsf_delete(heap);
    cairn_free(nullptr);
    EXPECT_EQ(errno, 77);
}

} // namespace
