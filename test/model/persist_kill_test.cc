// The persistent heap under kill -9: a program that counts and commits is killed at a random
// instant, again and again; what it acknowledged is there, whole, when the next one opens the heap.
//
// CAIRN_PERSIST_KILLS: how many (default 150, for the full proof 100000), CAIRN_PERSIST_DIRECTORY:
// where, for a file system that is not memory.

#include "region/persist_kit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <random>
#include <thread>

namespace
{

using namespace persist;

constexpr size_t kCells = 64;

struct Shared {
    uint64_t acknowledged; // the last count that a commit made durable
    uint64_t begun;        // the last count that a commit was begun with
    uint64_t fault;        // line of the check that failed
};

struct Table {
    uint64_t count;
    cairn_offset cells[kCells]; // cell i: a block of (count at its last change) times its number
};

size_t size_of(uint64_t value, size_t cell) { return 16 + (value * 7919 + cell * 31) % 9000; }

void fail(Shared *shared, uint64_t line)
{
    shared->fault = line;
    _exit(1);
}

// All blocks as the count says: cell i was changed last by the greatest n <= count with n % kCells
// == i.
void verify(cairn_persist *heap, const Table *table, Shared *shared)
{
    const uint64_t count = table->count;
    if (cairn_persist_check(heap) != nullptr)
        fail(shared, __LINE__);
    if (count < shared->acknowledged || count > shared->begun)
        fail(shared, __LINE__);
    for (size_t cell = 0; cell < kCells; cell++) {
        const auto *block =
            static_cast<const unsigned char *>(cairn_offset_get(&table->cells[cell]));
        if (cell > count || (cell == 0 && count < kCells)) {
            if (block != nullptr)
                fail(shared, __LINE__);
            continue;
        }
        const uint64_t value = count - (count - cell) % kCells;
        if (block == nullptr)
            fail(shared, __LINE__);
        for (size_t i = 0; i < size_of(value, cell); i += 97)
            if (block[i] != static_cast<unsigned char>(value + i))
                fail(shared, __LINE__);
    }
}

void count_up(cairn_persist *heap, Table *table)
{
    const uint64_t value = table->count + 1;
    const size_t cell = value % kCells;
    release(heap, cairn_offset_get(&table->cells[cell]));
    auto *block = reinterpret_cast<unsigned char *>(allocate(heap, size_of(value, cell)));
    for (size_t i = 0; i < size_of(value, cell); i++)
        block[i] = static_cast<unsigned char>(value + i);
    cairn_offset_set(&table->cells[cell], block);
    table->count = value;
}

[[noreturn]] void run(const std::string &path, Shared *shared, unsigned seed)
{
    const unsigned pause = CAIRN_PERSIST_WRITERS_PAUSE;
    const Options options = Options().log(300 << 10).with(seed % 2 == 0 ? pause : 0u);
    cairn_persist *heap = open_heap(path, options);
    if (heap == nullptr)
        fail(shared, __LINE__);
    auto *table = static_cast<Table *>(cairn_persist_get_root(heap, "table"));
    if (table == nullptr) {
        if (shared->acknowledged != 0)
            fail(shared, __LINE__);
        table = reinterpret_cast<Table *>(allocate(heap, sizeof *table));
        memset(table, 0, sizeof *table);
        cairn_persist_set_root(heap, "table", table);
    } else {
        verify(heap, table, shared);
    }
    shared->acknowledged = table->count; // what was found is durable
    std::mt19937 random(seed);
    for (;;) {
        const unsigned changes = 1 + random() % 4;
        for (unsigned i = 0; i < changes; i++)
            count_up(heap, table);
        if (random() % 10 == 0) {
            if (cairn_persist_abort(heap) != 0)
                fail(shared, __LINE__);
            table = static_cast<Table *>(cairn_persist_get_root(heap, "table"));
            if (table == nullptr) // before the first commit
                _exit(0);
            continue;
        }
        __atomic_store_n(&shared->begun, table->count, __ATOMIC_SEQ_CST);
        if (cairn_persist_commit(heap) != 0)
            fail(shared, __LINE__);
        __atomic_store_n(&shared->acknowledged, table->count, __ATOMIC_SEQ_CST);
    }
}

TEST(PersistKill, AtRandomInstants)
{
    const char *text = getenv("CAIRN_PERSIST_KILLS");
    const int kills = text ? atoi(text) : 150;
    Directory directory;
    auto *shared = static_cast<Shared *>(
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::mt19937 random(std::random_device{}());
    for (int i = 0; i < kills; i++) {
        const pid_t child = fork();
        if (child == 0)
            run(directory.file(), shared, static_cast<unsigned>(random()));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 25000));
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0)
            << "kill " << i << ": line " << shared->fault << ", acknowledged "
            << shared->acknowledged << ", begun " << shared->begun;
    }
    EXPECT_GT(shared->acknowledged, 10u);
    printf("%d kills, %llu counted\n", kills,
           static_cast<unsigned long long>(shared->acknowledged));
    munmap(shared, sizeof *shared);
}

} // namespace
