// Fuzzing of the operations of the persistent heap: blocks, roots, writes, commits alone and in
// groups, aborts, checkpoints, growth, trim, close and reopen, and crashes. The shadow has the
// content of each commit; after a crash the heap must have that of the last acknowledged commit, or
// of a later one.
//
// A crash leaves the files as after a kill, or as after a power loss: then (in debug builds, whose
// calls can be watched) any of the writes since the last fdatasync of a file have not reached it.

#include <algorithm>
#include <map>
#include <vector>

#include "fuzz/persist_image.h"

namespace
{

using fuzz::HeapImage;
using fuzz::Input;
using fuzz::require;

constexpr size_t kSlots = 16;
constexpr size_t kMostBytes = 1 << 20; // of all blocks

struct Slot {
    size_t size = 0; // 0: no block
    uint64_t seed = 0;
};

// The content of a commit.
struct Contents {
    Slot slots[kSlots];
    int roots[4] = {-1, -1, -1, -1}; // the slot that each root points to
};

constexpr const char *kRoots[] = {"a", "second", "the third of the roots", "d"};

// A write since the last fdatasync of its file, with the former bytes.
struct Write {
    size_t file;
    uint64_t offset;
    std::string before, after;
};
std::vector<Write> g_writes;

size_t which_file(int file)
{
    char path[4096];
    const int length = os_file_path(file, path, sizeof path);
    const char last = length > 0 ? path[length - 1] : '\0';
    return last == '0' ? 1 : last == '1' ? 2 : 0;
}

int record(os_file_call call, int file, uint64_t offset, const void *data, size_t *size)
{
    const size_t index = which_file(file);
    if (call == OS_CALL_SYNC || (call == OS_CALL_TRUNCATE && offset == 0)) // a new log
        g_writes.erase(std::remove_if(g_writes.begin(), g_writes.end(),
                                      [&](const Write &write) { return write.file == index; }),
                       g_writes.end());
    if (call != OS_CALL_WRITE)
        return 0;
    Write write = {index, offset, std::string(*size, '\0'), {}};
    write.after.assign(static_cast<const char *>(data), *size);
    (void)!pread(file, write.before.data(), *size, static_cast<off_t>(offset));
    g_writes.push_back(write);
    return 0;
}

// Changes the present content of the files to that of a disk after a power loss.
void lose_power(HeapImage &image, Input &input)
{
    const auto put = [&](const Write &write, const std::string &what, size_t from, size_t to) {
        std::string &bytes = image.bytes[write.file];
        for (size_t i = from; i < to && write.offset + i < bytes.size(); i++)
            bytes[write.offset + i] = what[i];
    };
    for (size_t i = g_writes.size(); i-- > 0;)
        put(g_writes[i], g_writes[i].before, 0, g_writes[i].before.size());
    for (const Write &write : g_writes) {
        const size_t size = write.after.size();
        const size_t cut = (input.byte() * size / 256) / 512 * 512;
        switch (input.below(4)) {
        case 0:
            break;
        case 1:
            put(write, write.after, 0, cut);
            break;
        case 2:
            put(write, write.after, cut, size);
            break;
        default:
            put(write, write.after, 0, size);
        }
    }
}

class Run
{
  public:
    explicit Run(Input &input)
        : flags_(input.flag() ? unsigned{CAIRN_PERSIST_WRITERS_PAUSE} : 0u),
          way_(static_cast<cairn_persist_tracking>(input.below(5)))
    {
        fuzz::write_image(HeapImage());
        open();
        set_up();
        commit(true);
    }
    ~Run()
    {
        if (heap_ != nullptr)
            cairn_persist_close(heap_);
        os_file_watch(nullptr);
        g_writes.clear();
    }
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    void run(Input &input)
    {
        while (!input.done())
            step(input);
        compare();
        check();
        commit(true);
        close_and_open();
        compare();
    }

  private:
    void open()
    {
        const char *why = nullptr;
        os_file_watch(record);
        heap_ = fuzz::open_heap(CAIRN_PERSIST_CREATE | flags_, &why, way_);
        if (heap_ == nullptr && way_ != CAIRN_PERSIST_AUTO && errno == ENOTSUP) {
            way_ = CAIRN_PERSIST_AUTO; // this kernel does not support it
            heap_ = fuzz::open_heap(CAIRN_PERSIST_CREATE | flags_, &why, way_);
        }
        require(heap_ != nullptr, why ? why : "open");
    }

    // The places of the blocks are stored in the heap, too.
    cairn_offset *table() const
    {
        return static_cast<cairn_offset *>(cairn_persist_get_root(heap_, "table"));
    }
    void set_up()
    {
        void *block = cairn_allocator_alloc(allocator(), kSlots * sizeof(cairn_offset), 16);
        require(block != nullptr, "the table");
        memset(block, 0, kSlots * sizeof(cairn_offset));
        require(cairn_persist_set_root(heap_, "table", block) == 0, "the table's root");
    }
    cairn_allocator allocator() const { return cairn_persist_allocator(heap_); }
    char *block(size_t slot) const { return static_cast<char *>(cairn_offset_get(table() + slot)); }

    void fill(size_t slot, size_t size)
    {
        now_.slots[slot] = {size, ++serial_};
        model::fill(block(slot), size, serial_);
    }

    void allocate(size_t slot, Input &input)
    {
        const size_t size = std::max<size_t>(1, input.size(17));
        const size_t align = size_t{16} << input.below(9);
        if (used_ + size > kMostBytes)
            return;
        void *made = cairn_allocator_alloc(allocator(), size, align);
        require(made != nullptr && fuzz::is_aligned(made, align), "a block", made, size);
        cairn_offset_set(table() + slot, made);
        used_ += size;
        fill(slot, size);
    }

    void release(size_t slot)
    {
        for (size_t i = 0; i < 4; i++)
            if (now_.roots[i] == static_cast<int>(slot))
                set_root(i, -1);
        used_ -= now_.slots[slot].size;
        cairn_allocator_free(allocator(), block(slot), now_.slots[slot].size);
        cairn_offset_set(table() + slot, nullptr);
        now_.slots[slot] = {};
    }

    void resize(size_t slot, Input &input)
    {
        const size_t size = std::max<size_t>(1, input.size(16));
        const size_t before = now_.slots[slot].size;
        if (used_ + size > kMostBytes)
            return;
        if (cairn_allocator_resize(allocator(), block(slot), before, size) == nullptr)
            return;
        used_ += size - before;
        fill(slot, size);
    }

    void set_root(size_t root, int slot)
    {
        now_.roots[root] = slot;
        if (slot < 0)
            require(cairn_persist_remove_root(heap_, kRoots[root]) == 0, "a root removed");
        else
            require(cairn_persist_set_root(heap_, kRoots[root], block(static_cast<size_t>(slot))) ==
                        0,
                    "a root set");
    }

    void change(Input &input)
    {
        const size_t slot = input.below(kSlots);
        if (now_.slots[slot].size == 0)
            return allocate(slot, input);
        switch (input.below(6)) {
        case 0:
        case 1:
            return release(slot);
        case 2:
            return resize(slot, input);
        case 3: {
            const size_t root = input.below(4);
            if (now_.roots[root] < 0 || input.flag())
                return set_root(root, static_cast<int>(slot));
            return set_root(root, -1);
        }
        default:
            return fill(slot, now_.slots[slot].size);
        }
    }

    void commit(bool wait)
    {
        cairn_persist_ticket ticket;
        commits_[fuzz::last_commit(heap_) + 1] = now_;
        require(cairn_persist_commit_async(heap_, &ticket) == 0, "commit");
        commits_[ticket] = now_; // its own commit, or the last one when nothing was new
        begun_ = ticket;
        if (!wait)
            return;
        require(cairn_persist_wait(heap_, ticket) == 0, "wait");
        acknowledged_ = ticket;
    }

    void abort()
    {
        require(cairn_persist_abort(heap_) == 0, "abort");
        restore(fuzz::last_commit(heap_));
    }

    void restore(uint64_t number)
    {
        require(commits_.count(number) != 0, "a commit that never was", nullptr, number);
        now_ = commits_[number];
        used_ = 0;
        for (const Slot &slot : now_.slots)
            used_ += slot.size;
    }

    void close_and_open()
    {
        const uint64_t number = fuzz::last_commit(heap_);
        require(cairn_persist_close(heap_) == 0, "close");
        open();
        require(fuzz::last_commit(heap_) == number, "the number", nullptr, number);
        found(number);
    }

    void found(uint64_t number)
    {
        restore(number);
        commits_.erase(commits_.upper_bound(number), commits_.end());
        acknowledged_ = begun_ = number;
    }

    void crash(Input &input)
    {
        HeapImage image = fuzz::read_image();
        fuzz::abandon(heap_);
        if (input.flag()) {
            lose_power(image, input);
            g_writes.clear(); // after a kill they are still pending
            fuzz::write_image(image);
        }
        open();
        const uint64_t number = fuzz::last_commit(heap_);
        require(number >= acknowledged_, "a commit was lost", nullptr, number);
        require(number <= begun_, "a commit was invented", nullptr, number);
        found(number);
        compare();
        check();
    }

    void check()
    {
        const char *fault = cairn_persist_check(heap_);
        require(fault == nullptr, fault ? fault : "");
    }

    void compare()
    {
        for (size_t i = 0; i < kSlots; i++) {
            const Slot &slot = now_.slots[i];
            require((block(i) != nullptr) == (slot.size != 0), "a slot", block(i), i);
            if (slot.size != 0)
                fuzz::require_contents(block(i), slot.size, slot.seed);
        }
        for (size_t i = 0; i < 4; i++) {
            const int slot = now_.roots[i];
            const void *wanted = slot < 0 ? nullptr : block(static_cast<size_t>(slot));
            require(cairn_persist_get_root(heap_, kRoots[i]) == wanted, "a root", wanted, i);
        }
    }

    void step(Input &input)
    {
        switch (input.below(20)) {
        case 0:
        case 1:
            return commit(true);
        case 2:
        case 3:
        case 4:
            return commit(false);
        case 5:
            return abort();
        case 6:
            require(cairn_persist_checkpoint(heap_) == 0, "checkpoint");
            acknowledged_ = begun_;
            return;
        case 7:
            return close_and_open();
        case 8:
        case 9:
            return crash(input);
        case 10: {
            cairn_persist_stats stats;
            cairn_persist_read_stats(heap_, &stats);
            if (stats.size_bytes < (4u << 20))
                require(cairn_persist_grow(heap_, stats.size_bytes + 1 + input.number16()) == 0,
                        "grow");
            return;
        }
        case 11:
            commit(true);
            require(cairn_persist_trim(heap_) == 0, "trim");
            return;
        case 12:
            compare();
            return check();
        default:
            return change(input);
        }
    }

    const unsigned flags_;
    cairn_persist_tracking way_;
    cairn_persist *heap_ = nullptr;
    Contents now_;
    std::map<uint64_t, Contents> commits_;
    uint64_t acknowledged_ = 0, begun_ = 0;
    uint64_t serial_ = 0;
    size_t used_ = 0;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input(data, size);
    Run(input).run(input);
    return 0;
}
