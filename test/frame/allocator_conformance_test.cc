// The rules of cairn/allocator.h, checked for every allocator through its common interface.

#include "cairn/allocator.h"

#include <algorithm>
#include <memory>
#include <string>
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

namespace allocator_conformance_test
{

using namespace frame_kit;

// An allocator with room for some MiB, and the largest size and alignment that it must serve.
struct Subject {
    size_t most_size = kMiB, most_align = 2 * kMiB;
    cairn_allocator allocator = {};
    virtual ~Subject() = default;
};

struct HeapSubject : Subject {
    HeapSubject() { allocator = cairn_heap_allocator(); }
};
struct OwnHeapSubject : Subject {
    cairn_private_heap *heap = cairn_private_heap_new(nullptr);
    OwnHeapSubject() { allocator = cairn_private_heap_allocator(heap); }
    ~OwnHeapSubject() override { cairn_private_heap_delete(heap); }
};
struct StackSubject : Subject {
    cairn_stack *stack = cairn_stack_new(nullptr);
    StackSubject() { most_align = 64 * kKiB, allocator = cairn_stack_allocator(stack); }
    ~StackSubject() override { cairn_stack_delete(stack); }
};
struct BufferStackSubject : Subject {
    std::vector<char> memory = std::vector<char>(32 * kMiB);
    cairn_stack *stack = nullptr;
    BufferStackSubject()
    {
        cairn_stack_options options = {};
        options.buffer = memory.data();
        options.buffer_bytes = memory.size();
        options.fixed = true;
        stack = cairn_stack_new(&options);
        most_align = 4 * kKiB, allocator = cairn_stack_allocator(stack);
    }
    ~BufferStackSubject() override { cairn_stack_delete(stack); }
};
struct ScopeSubject : Subject {
    cairn_mark mark = cairn_scope_push();
    ScopeSubject()
    {
        most_align = 64 * kKiB, allocator = cairn_stack_allocator(cairn_thread_stack());
    }
    ~ScopeSubject() override { cairn_scope_pop(mark); }
};
struct FifoSubject : Subject {
    cairn_fifo *fifo;
    explicit FifoSubject(bool any_thread_free)
    {
        cairn_fifo_options options = {};
        options.any_thread_free = any_thread_free;
        fifo = cairn_fifo_new(&options);
        allocator = cairn_fifo_allocator(fifo);
    }
    ~FifoSubject() override { cairn_fifo_close(fifo); }
};
struct RingSubject : Subject {
    cairn_ring *ring = cairn_ring_new(nullptr);
    cairn_frame frame = cairn_ring_open(ring);
    RingSubject() { most_align = 64 * kKiB, allocator = cairn_ring_allocator(ring); }
    ~RingSubject() override
    {
        cairn_ring_release(cairn_ring_seal(ring));
        cairn_ring_close(ring);
    }
};
struct PagesSubject : Subject {
    PagesSubject() { allocator = cairn_pages_allocator(); }
};
struct TlsfSubject : Subject {
    std::vector<char> memory = std::vector<char>(64 * kMiB);
    cairn_tlsf *tlsf = cairn_tlsf_init(memory.data(), memory.size());
    TlsfSubject() { most_align = 4 * kKiB, allocator = cairn_tlsf_allocator(tlsf); }
};
struct SharedTlsfSubject : Subject {
    std::vector<char> memory = std::vector<char>(64 * kMiB);
    cairn_tlsf_shared *tlsf = cairn_tlsf_share(cairn_tlsf_init(memory.data(), memory.size()));
    SharedTlsfSubject() { most_align = 4 * kKiB, allocator = cairn_tlsf_shared_allocator(tlsf); }
    ~SharedTlsfSubject() override { cairn_tlsf_unshare(tlsf); }
};
struct PoolSubject : Subject {
    cairn_pool *pool;
    explicit PoolSubject(bool shared)
    {
        cairn_pool_options options = {};
        options.shared = shared;
        pool = cairn_pool_new(200, 16, &options);
        most_size = 200, most_align = 16, allocator = cairn_pool_allocator(pool);
    }
    ~PoolSubject() override { cairn_pool_delete(pool); }
};

struct Kind {
    const char *name;
    std::unique_ptr<Subject> (*make)();
};
template <class Type, auto... kArguments> std::unique_ptr<Subject> make()
{
    return std::make_unique<Type>(kArguments...);
}
const Kind kKinds[] = {
    {"Heap", make<HeapSubject>},
    {"OwnHeap", make<OwnHeapSubject>},
    {"Stack", make<StackSubject>},
    {"BufferStack", make<BufferStackSubject>},
    {"Scope", make<ScopeSubject>},
    {"Fifo", make<FifoSubject, false>},
    {"SharedFifo", make<FifoSubject, true>},
    {"Ring", make<RingSubject>},
    {"Pages", make<PagesSubject>},
    {"Tlsf", make<TlsfSubject>},
    {"SharedTlsf", make<SharedTlsfSubject>},
    {"Pool", make<PoolSubject, false>},
    {"SharedPool", make<PoolSubject, true>},
};

class AllocatorConformance : public testing::TestWithParam<Kind>
{
  protected:
    std::unique_ptr<Subject> subject_ = GetParam().make();
    cairn_allocator allocator_ = subject_->allocator;
    size_t most_size_ = subject_->most_size, most_align_ = subject_->most_align;
    Random random_{7};

    bool can(unsigned what) const { return cairn_allocator_can(allocator_, what); }
    size_t random_size() { return random_.size(std::min<size_t>(most_size_, 20000)); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, AllocatorConformance, testing::ValuesIn(kKinds),
                         [](const auto &kind) { return std::string(kind.param.name); });

TEST_P(AllocatorConformance, BlocksAreAlignedAndTheirOwn)
{
    struct Block {
        void *pointer;
        size_t size;
    };
    std::vector<Block> blocks;
    for (int i = 0; i < 300; i++) {
        Block block = {nullptr, random_size()};
        size_t align = random_.align(static_cast<unsigned>(__builtin_ctzll(most_align_) % 13));
        block.pointer = cairn_allocator_alloc(allocator_, block.size, align);
        ASSERT_NE(block.pointer, nullptr);
        ASSERT_TRUE(is_aligned(block.pointer, align));
        paint(block.pointer, block.size, blocks.size());
        blocks.push_back(block);
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        ASSERT_TRUE(is_painted(blocks[i].pointer, blocks[i].size, i));
        cairn_allocator_free(allocator_, blocks[i].pointer, blocks[i].size);
    }
}

TEST_P(AllocatorConformance, LargestSizeAndAlignment)
{
    void *large = cairn_allocator_alloc(allocator_, most_size_, 8);
    ASSERT_NE(large, nullptr);
    memset(large, 1, most_size_);
    void *aligned = cairn_allocator_alloc(allocator_, 8, most_align_);
    ASSERT_NE(aligned, nullptr);
    EXPECT_TRUE(is_aligned(aligned, most_align_));
    cairn_allocator_free(allocator_, large, most_size_);
    cairn_allocator_free(allocator_, aligned, 8);
}

TEST_P(AllocatorConformance, SizeZeroIsABlock)
{
    void *first = cairn_allocator_alloc(allocator_, 0, 1);
    void *second = cairn_allocator_alloc(allocator_, 0, 1);
    EXPECT_NE(first, nullptr);
    EXPECT_NE(second, nullptr);
    EXPECT_NE(first, second);
    cairn_allocator_free(allocator_, first, 0);
    cairn_allocator_free(allocator_, second, 0);
}

TEST_P(AllocatorConformance, RefusalsAreAlike)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX - 15, size_t{PTRDIFF_MAX}, size_t{PTRDIFF_MAX} + 1}) {
        errno = 0;
        EXPECT_EQ(cairn_allocator_alloc(allocator_, size, 8), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc_array(allocator_, SIZE_MAX / 2, 3, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    for (size_t align : {0, 3, 24}) {
        errno = 0;
        EXPECT_EQ(cairn_allocator_alloc(allocator_, 8, align), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

// Some of the memory was used before, where the allocator has such memory.
TEST_P(AllocatorConformance, ZeroFormsAreZeroAndOnlyThey)
{
    size_t most = std::min<size_t>(most_size_, 3000);
    for (int round = 0; round < 50; round++) {
        void *used = cairn_allocator_alloc(allocator_, most, 8);
        memset(used, 0xff, most);
        cairn_allocator_free(allocator_, used, most);
        size_t count = 1 + random_.below(most / 4);
        void *blocks[] = {
            cairn_allocator_alloc_zero(allocator_, count, 8),
            cairn_allocator_alloc_array_zero(allocator_, count, 4, 8),
        };
        size_t sizes[] = {count, count * 4};
        for (int i = 0; i < 2; i++) {
            ASSERT_NE(blocks[i], nullptr);
            const auto *bytes = static_cast<unsigned char *>(blocks[i]);
            for (size_t j = 0; j < sizes[i]; j++)
                ASSERT_EQ(bytes[j], 0);
            memset(blocks[i], 0xff, sizes[i]);
            cairn_allocator_free(allocator_, blocks[i], sizes[i]);
        }
    }
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc_array_zero(allocator_, SIZE_MAX / 2, 3, 8), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(cairn_allocator_alloc_zero(allocator_, 8, 24), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_P(AllocatorConformance, NullIsIgnored)
{
    errno = 77;
    cairn_allocator_free(allocator_, nullptr, 8);
    EXPECT_EQ(cairn_allocator_resize(allocator_, nullptr, 0, 8), nullptr);
    EXPECT_EQ(errno, 77);
}

TEST_P(AllocatorConformance, ResizeStaysInPlaceOrSaysNo)
{
    size_t size = 100;
    void *block = cairn_allocator_alloc(allocator_, size, 8);
    paint(block, size, 1);
    errno = 77;
    for (size_t next : {size_t{150}, size_t{50}, size_t{0}, size_t{100}, size_t{100000}, SIZE_MAX,
                        size_t{PTRDIFF_MAX}}) {
        void *resized = cairn_allocator_resize(allocator_, block, size, next);
        size_t kept = resized != nullptr && next < size ? next : size;
        ASSERT_TRUE(is_painted(block, kept, 1));
        if (resized == nullptr)
            continue;
        ASSERT_EQ(resized, block);
        ASSERT_TRUE(can(CAIRN_CAN_RESIZE));
        size = next;
        paint(block, size, 1);
    }
    EXPECT_EQ(errno, 77);
    cairn_allocator_free(allocator_, block, size);
}

TEST_P(AllocatorConformance, ReallocKeepsContents)
{
    size_t most = std::min<size_t>(most_size_, 50000);
    size_t size = 10;
    void *block = cairn_allocator_realloc(allocator_, nullptr, 0, size, 8);
    paint(block, size, 1);
    for (int i = 0; i < 50; i++) {
        size_t next = 1 + random_.below(most);
        void *moved = cairn_allocator_realloc(allocator_, block, size, next, 8);
        ASSERT_NE(moved, nullptr);
        ASSERT_TRUE(is_painted(moved, size < next ? size : next, 1));
        block = moved;
        size = next;
        paint(block, size, 1);
    }
    EXPECT_EQ(cairn_allocator_realloc(allocator_, block, size, SIZE_MAX / 2 + 1, 8), nullptr);
    EXPECT_TRUE(is_painted(block, size, 1));
    cairn_allocator_free(allocator_, block, size);
}

TEST_P(AllocatorConformance, FreedMemoryServesAgainWhereItSaysSo)
{
    if (!can(CAIRN_CAN_FREE))
        GTEST_SKIP() << allocator_.operations->name << " frees together";
    for (int i = 0; i < 200000; i++) {
        void *block = cairn_allocator_alloc(allocator_, 100, 8);
        ASSERT_NE(block, nullptr);
        cairn_allocator_free(allocator_, block, 100);
    }
}

TEST_P(AllocatorConformance, AnyThreadWhereItSaysSo)
{
    if (!can(CAIRN_ANY_THREAD_FREE))
        GTEST_SKIP() << allocator_.operations->name << " belongs to one thread";
    for (int i = 0; i < 100; i++) {
        void *block = cairn_allocator_alloc(allocator_, 100, 8);
        ASSERT_NE(block, nullptr);
        in_thread([&] { cairn_allocator_free(allocator_, block, 100); });
    }
}

TEST_P(AllocatorConformance, HasAName) { EXPECT_STRNE(allocator_.operations->name, ""); }

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

} // namespace allocator_conformance_test
