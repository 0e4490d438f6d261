// The persistent heap under kill -9: threads count, allocate, free, write and commit, during
// checkpoints, growth and aborts. The threads are killed at random instants, again and again, also
// while they open the heap. The next program must find every acknowledged commit complete.
//
// CAIRN_PERSIST_KILLS is the number of kills (default 250, for the full proof 100000),
// CAIRN_PERSIST_SEED the seed of the instants (default: random), CAIRN_PERSIST_DIRECTORY a folder
// on a file system other than one in memory.

#include "region/persist_kit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <random>
#include <shared_mutex>
#include <thread>

namespace persist_kill_test
{

using namespace persist;

constexpr size_t kThreads = 3;
constexpr size_t kCells = 32; // of each thread
using Counts = std::array<uint64_t, kThreads>;

struct Shared {
    Counts acknowledged;    // each thread's last count that a commit made durable
    Counts begun;           // the last counts for which a commit was begun
    uint64_t fault;         // line of the check that failed
    uint64_t opened;        // number of opens of the heap
    uint64_t kinds[4];      // number of completed commits, checkpoints, growths, aborts
    uint64_t in_checkpoint; // 1 during a checkpoint
};

struct Row {
    uint64_t count;
    cairn_offset cells[kCells]; // cell i: a block of (count at its last change) times its number
};

struct Table {
    uint64_t total; // sum of all counts
    Row rows[kThreads];
};

uint64_t count_of(uint64_t &value) { return __atomic_load_n(&value, __ATOMIC_SEQ_CST); }
void raise_to(uint64_t &value, uint64_t least)
{
    uint64_t now = count_of(value);
    while (now < least && !__atomic_compare_exchange_n(&value, &now, least, false, __ATOMIC_SEQ_CST,
                                                       __ATOMIC_SEQ_CST))
        ;
}
void add(uint64_t &value) { __atomic_fetch_add(&value, 1, __ATOMIC_SEQ_CST); }

size_t size_of(uint64_t value, size_t cell) { return 16 + (value * 7919 + cell * 31) % 9000; }

void fail(Shared *shared, uint64_t line)
{
    shared->fault = line;
    _exit(1);
}

void verify_row(const Row &row, Shared *shared)
{
    const uint64_t count = row.count;
    for (size_t cell = 0; cell < kCells; cell++) {
        const auto *block = static_cast<const unsigned char *>(cairn_offset_get(&row.cells[cell]));
        if (cell > count || (cell == 0 && count < kCells)) {
            if (block != nullptr)
                fail(shared, __LINE__);
            continue;
        }
        const uint64_t value = count - (count - cell) % kCells; // the count at its last change
        if (block == nullptr)
            fail(shared, __LINE__);
        for (size_t i = 0; i < size_of(value, cell); i += 97)
            if (block[i] != static_cast<unsigned char>(value + i))
                fail(shared, __LINE__);
    }
}

// Checks that each row agrees with its count, and that all counts are of one commit.
void verify(cairn_persist *heap, const Table *table, Shared *shared)
{
    if (cairn_persist_check(heap) != nullptr)
        fail(shared, __LINE__);
    uint64_t total = 0;
    for (size_t i = 0; i < kThreads; i++) {
        const uint64_t count = table->rows[i].count;
        total += count;
        if (count < shared->acknowledged[i] || count > shared->begun[i])
            fail(shared, __LINE__);
        verify_row(table->rows[i], shared);
    }
    if (total != table->total)
        fail(shared, __LINE__);
}

void count_up(cairn_persist *heap, Table *table, Row &row)
{
    const uint64_t value = row.count + 1;
    const size_t cell = value % kCells;
    release(heap, cairn_offset_get(&row.cells[cell]));
    auto *block = reinterpret_cast<unsigned char *>(allocate(heap, size_of(value, cell)));
    for (size_t i = 0; i < size_of(value, cell); i++)
        block[i] = static_cast<unsigned char>(value + i);
    cairn_offset_set(&row.cells[cell], block);
    row.count = value;
    add(table->total);
}

class Program
{
  public:
    Program(const std::string &path, Shared *shared, unsigned seed) : shared_(shared), seed_(seed)
    {
        const unsigned pause = CAIRN_PERSIST_WRITERS_PAUSE;
        const Options options = Options().log(300 << 10).with(seed % 2 == 0 ? pause : 0u);
        heap_ = open_heap(path, options);
        if (heap_ == nullptr)
            fail(shared, __LINE__);
        add(shared->opened);
    }

    // Finds the table or makes one.
    void begin()
    {
        table_ = static_cast<Table *>(cairn_persist_get_root(heap_, "table"));
        if (table_ != nullptr) {
            verify(heap_, table_, shared_);
            // the table that was found is durable, and later changes are lost
            for (size_t i = 0; i < kThreads; i++)
                shared_->acknowledged[i] = shared_->begun[i] = table_->rows[i].count;
            return;
        }
        if (shared_->acknowledged != Counts{})
            fail(shared_, __LINE__);
        table_ = reinterpret_cast<Table *>(allocate(heap_, sizeof *table_));
        memset(table_, 0, sizeof *table_);
        cairn_persist_set_root(heap_, "table", table_);
        if (cairn_persist_commit(heap_) != 0)
            fail(shared_, __LINE__);
    }

    [[noreturn]] void run()
    {
        std::thread threads[kThreads];
        for (size_t i = 0; i < kThreads; i++)
            threads[i] = std::thread(&Program::work, this, i);
        std::mt19937 random(seed_);
        for (;;) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
            if (random() % 8 == 0)
                grow();
            shared_->in_checkpoint = 1;
            if (cairn_persist_checkpoint(heap_) != 0)
                fail(shared_, __LINE__);
            shared_->in_checkpoint = 0;
            add(shared_->kinds[1]);
        }
    }

  private:
    void grow()
    {
        const size_t size = stats_of(heap_).size_bytes;
        if (size < (size_t{8} << 20) && cairn_persist_grow(heap_, size + 65536) != 0)
            fail(shared_, __LINE__);
        add(shared_->kinds[2]);
    }

    void abort()
    {
        const std::unique_lock<std::shared_mutex> alone(writers_);
        if (cairn_persist_abort(heap_) != 0)
            fail(shared_, __LINE__);
        add(shared_->kinds[3]);
    }

    void commit()
    {
        Counts counts;
        cairn_persist_ticket ticket;
        {
            const std::unique_lock<std::shared_mutex> alone(writers_);
            for (size_t i = 0; i < kThreads; i++) {
                counts[i] = table_->rows[i].count;
                raise_to(shared_->begun[i], counts[i]);
            }
            if (cairn_persist_commit_async(heap_, &ticket) != 0)
                fail(shared_, __LINE__);
        }
        if (cairn_persist_wait(heap_, ticket) != 0)
            fail(shared_, __LINE__);
        for (size_t i = 0; i < kThreads; i++)
            raise_to(shared_->acknowledged[i], counts[i]);
        add(shared_->kinds[0]);
    }

    void work(size_t index)
    {
        std::mt19937 random(static_cast<unsigned>(seed_ + 7 * index));
        for (;;) {
            const unsigned changes = 1 + random() % 4;
            for (unsigned i = 0; i < changes; i++) {
                const std::shared_lock<std::shared_mutex> beside(writers_);
                count_up(heap_, table_, table_->rows[index]);
            }
            if (random() % 30 == 0)
                abort();
            else
                commit();
        }
    }

    Shared *shared_;
    unsigned seed_;
    cairn_persist *heap_ = nullptr;
    Table *table_ = nullptr;
    std::shared_mutex writers_; // shared by writers, exclusive for a capture
};

// Draws the instants of the kills, about one in four while the heap is being opened. The span grows
// while no commit happens within it, since emulators and sanitizers are slow.
class Instants
{
  public:
    std::chrono::microseconds draw(std::mt19937 &random, uint64_t commits)
    {
        span_ = commits == before_ ? span_ + span_ / 10 : std::max(12000u, span_ - span_ / 50);
        before_ = commits;
        return std::chrono::microseconds(random() % (random() % 4 == 0 ? span_ / 8 : span_));
    }

  private:
    unsigned span_ = 12000;
    uint64_t before_ = 0;
};

TEST(PersistKill, AtRandomInstants)
{
    const char *text = getenv("CAIRN_PERSIST_KILLS");
    const int kills = text ? atoi(text) : 250;
    const char *seed_text = getenv("CAIRN_PERSIST_SEED");
    const unsigned seed =
        seed_text ? static_cast<unsigned>(atoi(seed_text)) : std::random_device{}();
    Directory directory;
    auto *shared = static_cast<Shared *>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::mt19937 random(seed);
    Instants instants;
    uint64_t in_open = 0;
    uint64_t in_checkpoint = 0;
    for (int i = 0; i < kills; i++) {
        const uint64_t opened = shared->opened;
        shared->in_checkpoint = 0;
        const auto child_seed = static_cast<unsigned>(random());
        const pid_t child = fork();
        if (child == 0) {
            Program program(directory.file(), shared, child_seed);
            program.begin();
            program.run();
        }
        std::this_thread::sleep_for(instants.draw(random, shared->kinds[0]));
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            << "kill " << i << ", seed " << seed << ": line " << shared->fault << ", status "
            << status;
        in_open += shared->opened == opened;
        in_checkpoint += shared->in_checkpoint;
    }
    EXPECT_GT(shared->acknowledged[0], 10u);
    printf("%d kills, seed %u: %llu while opening, %llu in a checkpoint; %llu commits, %llu "
           "checkpoints, %llu growths, %llu aborts\n",
           kills, seed, static_cast<unsigned long long>(in_open),
           static_cast<unsigned long long>(in_checkpoint),
           static_cast<unsigned long long>(shared->kinds[0]),
           static_cast<unsigned long long>(shared->kinds[1]),
           static_cast<unsigned long long>(shared->kinds[2]),
           static_cast<unsigned long long>(shared->kinds[3]));
    munmap(shared, sizeof *shared);
}

} // namespace persist_kill_test
