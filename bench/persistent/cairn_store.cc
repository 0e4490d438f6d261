// The persistent heap: all records are in one block, which is a root; each has a page. The program
// has one thread, so no other thread writes during a commit.
#include <errno.h>

#include <cstring>

#include "cairn_heap.h"

namespace bench
{

Heap::Heap(const std::string &path, unsigned flags, size_t size_bytes, size_t log_bytes)
{
    cairn_persist_options options = {};
    const char *why = "";
    options.flags = CAIRN_PERSIST_CREATE | flags;
    options.size_bytes = size_bytes;
    options.log_bytes = log_bytes;
    options.why = &why;
    heap_ = cairn_persist_open(path.c_str(), &options);
    if (heap_ == nullptr) {
        fail(path + ": " + why, errno);
    }
}

Heap::~Heap() { check(cairn_persist_close(heap_) == 0, "cairn_persist_close"); }

void Heap::commit() { check(cairn_persist_commit(heap_) == 0, "cairn_persist_commit"); }

char *Heap::allocate(size_t size)
{
    void *block = cairn_allocator_alloc(cairn_persist_allocator(heap_), size, alignof(uint64_t));
    check(block != nullptr, "cairn_allocator_alloc");
    return static_cast<char *>(block);
}

cairn_persist_stats Heap::stats() const
{
    cairn_persist_stats stats;
    cairn_persist_read_stats(heap_, &stats);
    return stats;
}

namespace
{

class CairnStore : public Store
{
  public:
    CairnStore(const std::string &path, unsigned flags)
        : heap_(path, flags, (kRecords + 512) * kPageBytes, 0)
    {
        // One block, so that record n is in the n-th page behind its start.
        void *block = cairn_allocator_alloc(cairn_persist_allocator(heap_.get()),
                                            kRecords * kPageBytes, kPageBytes);
        check(block != nullptr, "cairn_allocator_alloc");
        check(cairn_persist_set_root(heap_.get(), "records", block) == 0, "set_root");
        records_ = static_cast<char *>(block);
        for (size_t i = 0; i < kRecords; i += kRecords / 8) {
            memset(records_ + i * kPageBytes, 0, kRecords / 8 * kPageBytes);
            heap_.commit();
        }
        check(cairn_persist_trim(heap_.get()) == 0, "cairn_persist_trim");
    }

    void update(size_t record, const char *contents) override
    {
        memcpy(records_ + record * kPageBytes, contents, kRecordBytes);
    }
    void commit() override { heap_.commit(); }

  private:
    Heap heap_;
    char *records_;
};

std::unique_ptr<Store> open_shared(const std::string &path)
{
    return std::make_unique<CairnStore>(path, 0);
}

std::unique_ptr<Store> open_pausing(const std::string &path)
{
    return std::make_unique<CairnStore>(path, CAIRN_PERSIST_WRITERS_PAUSE);
}

StoreKind shared("cairn", open_shared);
StoreKind pausing("cairn-pause", open_pausing);

} // namespace
} // namespace bench
