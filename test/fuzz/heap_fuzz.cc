// Fuzzing of the general heap: the input decides calls, sizes, alignments, threads and failing
// system calls. The shadow has the program's record of each block: content by hash, address,
// extent, alignment, zeros of calloc.
//
// A lane is a table of blocks, and, except for the first lane, a thread that works on it when it
// gets a job; the rest of the input runs at the same time, unless it says to wait. When no job
// runs, lanes may exchange their tables: then threads free blocks of other threads, during the life
// of those or after their end. Heaps outlive the inputs; each input begins and ends without a
// block.

#include <cairn/heap.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fuzz/fuzz_input.h"

extern "C" {
#include "heap/heap.h"
#include "heap/refill.h"
}

namespace
{

using fuzz::Faults;
using fuzz::Input;
using fuzz::is_aligned;
using fuzz::kMiB;
using fuzz::opaque;
using fuzz::require;
using fuzz::require_contents;
using model::Block;
using model::Origin;

constexpr int kErrno = 4321; // no call sets this value
constexpr size_t kSlots = 48;
constexpr size_t kMostBytes = 96 * kMiB; // bytes of a lane

using Table = std::array<Block, kSlots>;

// Calls of one thread on one table.
class Caller
{
  public:
    Caller(Table *table, bool may_fail) : table_(*table), may_fail_(may_fail)
    {
        for (const Block &block : table_)
            bytes_ += block.address ? block.extent : 0;
    }

    void step(Input &input, size_t choice)
    {
        Block &block = table_[input.below(kSlots)];
        if (block.address == nullptr)
            allocate(block, input);
        else if (choice < 4)
            release(block, input);
        else if (choice < 8)
            resize(block, input);
        else if (choice == 8)
            use_usable(block);
        else if (choice == 9)
            report_misuse(block, input);
        else
            check(block);
    }

    void release_all()
    {
        for (Block &block : table_)
            if (block.address)
                free_checked(block, [](const Block &old) { cairn_free(old.address); });
    }

  private:
    size_t pick_size(Input &input)
    {
        const size_t size = input.size(25);
        return bytes_ + size <= kMostBytes ? size : size % 4096;
    }

    // Whether a call returned a block. NULL is allowed for failing system calls only, with ENOMEM;
    // success keeps errno.
    bool came(const void *address, size_t size) const
    {
        require(address != nullptr || may_fail_, "no memory", nullptr, size);
        const int wanted = address ? kErrno : ENOMEM;
        require(errno == wanted, "errno", address, static_cast<size_t>(errno));
        return address != nullptr;
    }

    void allocate(Block &block, Input &input)
    {
        const size_t kind = input.below(8);
        const size_t size = pick_size(input);
        Block fresh = {nullptr, size, 0, size, 1, model::mix(size + bytes_), Origin::kPlain};
        errno = kErrno;
        if (kind == 0) {
            fresh.address = static_cast<char *>(cairn_calloc(size, 1));
            if (fresh.address)
                require(model::is_zero(opaque(fresh.address), size), "calloc's block is not zero",
                        fresh.address, size);
        } else if (kind == 1) {
            const size_t count = 1 + input.byte();
            fresh.asked = fresh.filled = size / count * count;
            fresh.address = static_cast<char *>(cairn_reallocarray(nullptr, count, size / count));
        } else if (kind < 4) {
            fresh.address = static_cast<char *>(allocate_aligned(fresh, input));
        } else {
            fresh.address = static_cast<char *>(cairn_malloc(size));
        }
        if (came(fresh.address, fresh.asked))
            welcome(block, fresh);
    }

    static void *allocate_aligned(Block &block, Input &input)
    {
        void *address = nullptr;
        block.alignment = input.alignment(25);
        block.origin = Origin::kOther;
        switch (input.below(5)) {
        case 0: {
            if (block.alignment < sizeof(void *))
                block.alignment = sizeof(void *);
            const int error = cairn_posix_memalign(&address, block.alignment, block.asked);
            require(error == (address ? 0 : ENOMEM), "posix_memalign", address, block.asked);
            errno = address ? errno : ENOMEM;
            return address;
        }
        case 1:
            block.alignment = 4096;
            return cairn_valloc(block.asked);
        case 2:
            block.alignment = 4096;
            block.filled = std::max(block.asked + 4095 - (block.asked + 4095) % 4096, size_t{4096});
            return cairn_pvalloc(block.asked);
        case 3: // any number: it is rounded up to a power of two
            return cairn_memalign(block.alignment - block.alignment / 4, block.asked);
        default:
            block.origin = Origin::kAligned;
            return cairn_aligned_alloc(block.alignment, block.asked);
        }
    }

    // Records a new block.
    void welcome(Block &slot, Block fresh)
    {
        const size_t least = fresh.asked > 8 ? 16 : 8;
        require(is_aligned(fresh.address, std::max(fresh.alignment, least)), "alignment",
                fresh.address, fresh.alignment);
        const size_t usable = cairn_malloc_usable_size(fresh.address);
        require(usable >= fresh.filled, "usable size", fresh.address, usable);
        fresh.extent = std::max<size_t>(usable, 1);
        for (const Block &other : table_)
            require(other.address == nullptr || fresh.address + fresh.extent <= other.address ||
                        other.address + other.extent <= fresh.address,
                    "overlaps another block", fresh.address, fresh.extent);
        model::fill(fresh.address, fresh.filled, fresh.seed);
        bytes_ += fresh.extent;
        slot = fresh;
    }

    static void check(const Block &block)
    {
        require_contents(block.address, block.filled, block.seed);
    }

    template <typename Free> void free_checked(Block &block, Free body)
    {
        check(block);
        errno = kErrno;
        body(block);
        require(errno == kErrno, "free changed errno", block.address);
        bytes_ -= block.extent;
        block.address = nullptr;
    }

    void release(Block &block, Input &input)
    {
        const size_t kind = input.below(4);
        free_checked(block, [kind](const Block &old) {
            if (kind == 0 && old.origin == Origin::kPlain)
                cairn_free_sized(old.address, old.asked);
            else if (kind == 0 && old.origin == Origin::kAligned)
                cairn_free_aligned_sized(old.address, old.alignment, old.asked);
            else if (kind == 1)
                require(cairn_realloc(old.address, 0) == nullptr, "realloc to 0", old.address);
            else
                cairn_free(old.address);
        });
    }

    void resize(Block &block, Input &input)
    {
        check(block);
        const bool near = input.flag();
        size_t size = near ? block.asked + input.byte() * 8 : pick_size(input);
        size = std::max<size_t>(size, 1);
        errno = kErrno;
        void *address = nullptr;
        if (size % 2 == 0 && input.flag())
            address = cairn_reallocarray(block.address, 2, size / 2);
        else
            address = cairn_realloc(block.address, size);
        if (!came(address, size)) {
            check(block);
            return;
        }
        Block moved = block;
        bytes_ -= block.extent;
        block.address = nullptr;
        moved.address = static_cast<char *>(address);
        const size_t kept = std::min(size, moved.filled);
        require(model::first_wrong(moved.address, kept, moved.seed, kept == moved.filled) == kept,
                "contents after realloc", address, size);
        moved.asked = moved.filled = size;
        moved.alignment = 1;
        moved.origin = Origin::kPlain;
        welcome(block, moved);
    }

    static void use_usable(Block &block)
    {
        require(cairn_malloc_usable_size(block.address) == block.extent || block.extent == 1,
                "usable size changed", block.address, block.extent);
        check(block);
        block.filled = cairn_malloc_usable_size(block.address);
        model::fill(block.address, block.filled, block.seed);
    }

    // Requests that cannot be served must not change anything.
    static void report_misuse(const Block &block, Input &input)
    {
        const size_t kind = input.below(9);
        const size_t size = input.beyond();
        const size_t alignment = input.alignment(63);
        void *result = nullptr;
        int wanted = ENOMEM;
        errno = kErrno;
        if (kind == 0) {
            result = cairn_malloc(size);
        } else if (kind == 1) {
            result = cairn_calloc(size, opaque(1 + input.byte()));
        } else if (kind == 2) {
            result = cairn_realloc(block.address, size);
        } else if (kind == 3) {
            result = cairn_reallocarray(block.address, opaque(1 + input.byte()), size);
        } else if (kind == 4) {
            result = cairn_aligned_alloc(alignment, size);
        } else if (kind == 5) { // the alignment alone may be too large
            result = cairn_memalign(opaque(alignment | size_t{1} << 62), 1 + input.byte());
            wanted = alignment == size_t{1} << 63 ? EINVAL : ENOMEM;
            wanted = errno == EINVAL ? EINVAL : wanted;
        } else if (kind == 6) {
            result = input.flag() ? cairn_valloc(size) : cairn_pvalloc(size);
        } else if (kind == 7) {
            const int error = cairn_posix_memalign(&result, opaque(alignment), size);
            require(error == (alignment < sizeof(void *) ? EINVAL : ENOMEM) && errno == kErrno,
                    "posix_memalign", nullptr, static_cast<size_t>(error));
            errno = wanted;
        } else {
            const size_t odd = opaque(input.number16() * 2 + 3);
            const int error = cairn_posix_memalign(&result, odd, 8);
            require(error == EINVAL && errno == kErrno, "an odd alignment", nullptr, odd);
            errno = wanted;
        }
        require(result == nullptr && errno == wanted, "a request that cannot be met", result,
                static_cast<size_t>(errno));
        check(block);
    }

    Table &table_;
    const bool may_fail_;
    size_t bytes_ = 0;
};

// A thread that runs jobs.
class Worker
{
  public:
    bool running() const { return running_; }
    bool busy() const { return busy_; }

    void give(Table *table, Input job, bool may_fail)
    {
        wait();
        if (!running_) {
            sem_init(&begin_, 0, 0);
            sem_init(&done_, 0, 0);
            require(pthread_create(&thread_, nullptr, run, this) == 0, "pthread_create");
            running_ = true;
        }
        table_ = table;
        job_ = job;
        may_fail_ = may_fail;
        busy_ = true;
        sem_post(&begin_);
    }

    void wait()
    {
        while (busy_ && sem_wait(&done_) != 0) {
        }
        busy_ = false;
    }

    void end()
    {
        wait();
        if (!running_)
            return;
        table_ = nullptr;
        sem_post(&begin_);
        pthread_join(thread_, nullptr);
        running_ = false;
    }

  private:
    static void *run(void *argument)
    {
        Worker *self = static_cast<Worker *>(argument);
        for (;;) {
            while (sem_wait(&self->begin_) != 0) {
            }
            if (self->table_ == nullptr)
                return nullptr;
            Caller caller(self->table_, self->may_fail_);
            while (!self->job_.done()) {
                const size_t choice = self->job_.below(11);
                caller.step(self->job_, choice);
            }
            sem_post(&self->done_);
        }
    }

    pthread_t thread_{};
    sem_t begin_;
    sem_t done_;
    Table *table_ = nullptr;
    Input job_{nullptr, 0};
    bool may_fail_ = false;
    bool running_ = false; // written by the first thread
    bool busy_ = false;    // written by the first thread
};

constexpr size_t kWorkers = 3;

class Run
{
  public:
    void run(Input &input)
    {
        while (!input.done()) {
            const size_t choice = input.below(16);
            if (choice < 11)
                Caller(tables_[0], faults_.planned()).step(input, choice);
            else if (choice < 13)
                give_job(input);
            else if (choice == 13)
                exchange(input);
            else if (choice == 14)
                workers_[input.below(kWorkers)].end();
            else
                look(input);
        }
        wait_all();
        check_overlaps();
        faults_.end();
        for (Table *table : tables_)
            Caller(table, false).release_all();
        for (Worker &worker : workers_)
            worker.end();
        cairn_malloc_trim(0);
        verify_everything();
        const struct cairn_mallinfo2 info = cairn_mallinfo2();
        require(info.uordblks == 0 && info.hblkhd == 0, "in use after all was freed", nullptr,
                info.uordblks + info.hblkhd);
    }

  private:
    static void verify_everything()
    {
        heap_verify_all();
        for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
            heap_verify(heap);
    }

    void wait_all()
    {
        for (Worker &worker : workers_)
            worker.wait();
    }

    void give_job(Input &input)
    {
        const size_t kind = input.byte();
        Worker &worker = workers_[kind % kWorkers];
        worker.give(tables_[1 + kind % kWorkers], input.part(input.below(128)), faults_.planned());
        if (kind >= 128)
            worker.wait();
    }

    void exchange(Input &input)
    {
        wait_all();
        check_overlaps();
        const size_t kind = input.byte();
        std::swap(tables_[kind % 4], tables_[kind / 4 % 4]);
    }

    void look(Input &input)
    {
        const size_t kind = input.below(8);
        if (kind < 2) {
            errno = kErrno;
            cairn_malloc_trim(kind == 0 ? 0 : input.size(25));
            require(errno == kErrno, "malloc_trim changed errno");
            return;
        }
        wait_all();
        if (kind < 4) {
            faults_.plan(input);
        } else if (kind == 4) {
            faults_.end();
        } else if (kind == 5) {
            verify_everything();
        } else {
            const struct cairn_mallinfo2 info = cairn_mallinfo2();
            require(info.uordblks + info.hblkhd >= total(), "less in use than there is", nullptr,
                    info.uordblks + info.hblkhd);
        }
    }

    size_t total() const
    {
        size_t bytes = 0;
        for (const Table *table : tables_)
            for (const Block &block : *table)
                bytes += block.address ? block.asked : 0;
        return bytes;
    }

    // Checks that no blocks of any lanes overlap.
    void check_overlaps()
    {
        std::vector<const Block *> all;
        for (const Table *table : tables_)
            for (const Block &block : *table)
                if (block.address)
                    all.push_back(&block);
        std::sort(all.begin(), all.end(),
                  [](const Block *a, const Block *b) { return a->address < b->address; });
        for (size_t i = 1; i < all.size(); i++)
            require(all[i - 1]->address + all[i - 1]->extent <= all[i]->address, "overlap",
                    all[i]->address, all[i]->extent);
    }

    std::array<Table, kWorkers + 1> storage_{};
    std::array<Table *, kWorkers + 1> tables_{&storage_[0], &storage_[1], &storage_[2],
                                              &storage_[3]};
    std::array<Worker, kWorkers> workers_;
    Faults faults_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input(data, size);
    Run().run(input);
    return 0;
}
