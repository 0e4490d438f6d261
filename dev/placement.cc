// What other ways to place blocks would hold in the benchmark's row `fragmentation`, in pages on
// which a block lives. Figures for docs/decisions/0018-what-pins-pages.md:
//     c++ -O2 -std=c++17 -o placement dev/placement.cc && ./placement
//
// Each way plays the row's own sizes and deaths (bench/workloads/memory.cc) on addresses that have
// no memory. It is granted more than an allocator can have: no metadata, every page without a block
// goes back at once, and at the end of a phase all that is free may be looked through.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace
{

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB, kPage = 4 * kKiB;
constexpr size_t kClasses = 112, kSlotsMost = 252;

// As in bench/workloads/support.h.
struct Random {
    uint64_t state;
    uint64_t next()
    {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    size_t below(size_t limit) { return ((next() >> 32) * limit) >> 32; }
};

struct Phase {
    size_t low, high;
};
constexpr Phase kPhases[] = {
    {16, 64},         {100, 400},
    {kKiB, 4 * kKiB}, {32, 128},
    {300, 900},       {8 * kKiB, 64 * kKiB},
    {16, 256},        {2 * kKiB, 16 * kKiB},
};
constexpr size_t kPhaseBytes = 64 * kMiB, kSurvivorsPercent = 10;

// As in src/heap/size_class.c.
struct Class {
    size_t size, bytes, slots;
};

size_t size_of(size_t index)
{
    if (index < 8)
        return 16 * (index + 1);
    if (index < 32)
        return (8 + index % 8 + 1) << (4 + (index - 8) / 8);
    return (16 + (index - 32) % 16 + 1) << (6 + (index - 32) / 16);
}

const std::vector<Class> &classes()
{
    static const std::vector<Class> table = [] {
        std::vector<Class> made;
        for (size_t index = 0; index < kClasses; index++) {
            const size_t size = size_of(index);
            size_t longest = size <= 128 ? 16 * kKiB : 32 * kKiB;
            if (size > kKiB)
                longest = std::max(64 * kKiB, (8 * size + kPage - 1) / kPage * kPage);
            Class best = {};
            double least = 2;
            for (size_t bytes = kPage; bytes <= longest; bytes += kPage) {
                const size_t slots = std::min(bytes / size, kSlotsMost);
                const double waste = double(bytes - slots * size + 64) / double(bytes);
                if (slots >= 8 && waste < least) {
                    least = waste;
                    best = {size, bytes, slots};
                }
            }
            made.push_back(best);
        }
        return made;
    }();
    return table;
}

size_t class_of(size_t size)
{
    size_t index = 0;
    while (index < kClasses && size_of(index) < size)
        index++;
    return index;
}

// Which pages have a block, by address.
class Pages
{
  public:
    void live(size_t address, size_t bytes)
    {
        for (size_t page = address / kPage; page <= (address + bytes - 1) / kPage; page++) {
            if (page >= blocks_.size())
                blocks_.resize(2 * page + 1);
            count_ += blocks_[page]++ == 0;
        }
    }
    void dead(size_t address, size_t bytes)
    {
        for (size_t page = address / kPage; page <= (address + bytes - 1) / kPage; page++)
            count_ -= --blocks_[page] == 0;
    }
    size_t count() const { return count_; }

  private:
    std::vector<uint16_t> blocks_;
    size_t count_ = 0;
};

class Placement
{
  public:
    virtual ~Placement() = default;
    virtual size_t place(size_t size) = 0; // its address
    virtual void drop(size_t address, size_t size) = 0;
    virtual void begin_phase() {}
    size_t pages() const { return pages_.count(); }

  protected:
    size_t take_fresh(size_t bytes) { return std::exchange(top_, top_ + bytes); }

    Pages pages_;
    size_t top_ = kPage;
};

// Slabs of one size. A class without a free slot takes those of a slab of a larger one, up to
// `reach` times its size, of which half is free, and a new slab after that.
class Slots : public Placement
{
  public:
    explicit Slots(double reach) : reach_(reach) {}

    void begin_phase() override
    {
        for (auto &row : next_)
            std::fill(std::begin(row), std::end(row), size_t{0});
        for (Slab *&slab : current_)
            leave(slab);
    }
    size_t place(size_t size) override
    {
        const size_t index = class_of(size);
        if (index == kClasses) {
            const size_t address = take_fresh((size + kPage - 1) / kPage * kPage);
            pages_.live(address, size);
            return address;
        }
        Slab *&slab = current_[index];
        while (slab == nullptr || slab->free.empty()) {
            leave(slab);
            slab = refill(index);
            slab->is_current = true;
        }
        const size_t address = slab->free.back();
        slab->free.pop_back();
        pages_.live(address, classes()[slab->index].size);
        return address;
    }
    void drop(size_t address, size_t size) override
    {
        if (class_of(size) == kClasses) {
            pages_.dead(address, size);
            return;
        }
        Slab *slab = std::prev(by_address_.upper_bound(address))->second;
        pages_.dead(address, classes()[slab->index].size);
        slab->free.push_back(address);
    }

  private:
    struct Slab {
        size_t index;
        std::vector<size_t> free;
        bool is_current;
    };
    static void leave(Slab *&slab)
    {
        if (slab != nullptr)
            slab->is_current = false;
        slab = nullptr;
    }
    Slab *refill(size_t index)
    {
        const size_t size = classes()[index].size;
        for (size_t host = index; host < kClasses; host++) {
            if (host != index && double(classes()[host].size) > reach_ * double(size))
                break;
            const size_t least = host == index ? 1 : classes()[host].slots / 2;
            for (size_t &at = next_[index][host]; at < slabs_[host].size();) {
                Slab *slab = slabs_[host][at++].get();
                if (!slab->is_current && slab->free.size() >= least)
                    return slab;
            }
        }
        const Class &shape = classes()[index];
        slabs_[index].push_back(std::make_unique<Slab>(Slab{index, {}, false}));
        Slab *slab = slabs_[index].back().get();
        const size_t start = take_fresh(shape.bytes);
        for (size_t slot = shape.slots; slot-- > 0;)
            slab->free.push_back(start + slot * shape.size);
        by_address_[start] = slab;
        next_[index][index] = slabs_[index].size();
        return slab;
    }

    double reach_;
    std::vector<std::unique_ptr<Slab>> slabs_[kClasses];
    std::map<size_t, Slab *> by_address_;
    Slab *current_[kClasses] = {};
    size_t next_[kClasses][kClasses] = {};
};

// Slabs laid over others: a run whose slab has few blocks left becomes a slab of another class, of
// which those slots are free that overlap none of the blocks that live on.
class LaidOver : public Placement
{
  public:
    void begin_phase() override
    {
        scanned_ = 0;
        for (size_t index = 0; index < kClasses; index++) {
            next_[index] = 0;
            leave(index);
        }
    }
    size_t place(size_t size) override
    {
        const size_t index = class_of(size);
        if (index == kClasses) {
            const size_t address = take_fresh((size + kPage - 1) / kPage * kPage);
            pages_.live(address, size);
            return address;
        }
        while (current_[index] == nullptr || current_[index]->free.empty()) {
            leave(index);
            current_[index] = refill(index);
            current_[index]->is_current = true;
        }
        Run &run = *current_[index];
        const size_t offset = run.free.back();
        run.free.pop_back();
        mark(run, offset, classes()[index].size, true);
        return run.start + offset;
    }
    void drop(size_t address, size_t size) override
    {
        const size_t index = class_of(size);
        if (index == kClasses) {
            pages_.dead(address, size);
            return;
        }
        Run &run = *std::prev(by_address_.upper_bound(address))->second;
        mark(run, address - run.start, classes()[index].size, false);
        if (run.index == index)
            run.free.push_back(address - run.start);
    }

  private:
    struct Run {
        size_t start, bytes, index, live_bytes;
        std::vector<bool> used; // by 16 bytes
        std::vector<size_t> free;
        bool is_current;
    };
    void leave(size_t index)
    {
        if (current_[index] != nullptr)
            current_[index]->is_current = false;
        current_[index] = nullptr;
    }
    void mark(Run &run, size_t offset, size_t size, bool lives)
    {
        std::fill_n(run.used.begin() + ptrdiff_t(offset / 16), size / 16, lives);
        run.live_bytes = lives ? run.live_bytes + size : run.live_bytes - size;
        lives ? pages_.live(run.start + offset, size) : pages_.dead(run.start + offset, size);
    }
    std::vector<size_t> free_slots(const Run &run, size_t index) const
    {
        const size_t size = classes()[index].size;
        std::vector<size_t> free;
        for (size_t slot = std::min(run.bytes / size, kSlotsMost); slot-- > 0;) {
            const auto first = run.used.begin() + ptrdiff_t(slot * size / 16);
            if (std::find(first, first + ptrdiff_t(size / 16), true) ==
                first + ptrdiff_t(size / 16))
                free.push_back(slot * size);
        }
        return free;
    }
    Run *refill(size_t index)
    {
        for (std::vector<Run *> &own = own_[index]; next_[index] < own.size();) {
            Run *run = own[next_[index]++];
            if (!run->is_current && run->index == index && !run->free.empty())
                return run;
        }
        for (int tries = 0; tries < 64 && scanned_ < runs_.size(); tries++) {
            Run *run = runs_[scanned_++].get();
            if (run->is_current || run->index == index || run->live_bytes * 10 > run->bytes * 3)
                continue;
            std::vector<size_t> free = free_slots(*run, index);
            if (free.size() * classes()[index].size * 5 < run->bytes)
                continue;
            run->index = index;
            run->free = std::move(free);
            return list(index, run);
        }
        const size_t bytes = classes()[index].bytes;
        runs_.push_back(std::make_unique<Run>(
            Run{take_fresh(bytes), bytes, index, 0, std::vector<bool>(bytes / 16), {}, false}));
        Run *run = runs_.back().get();
        run->free = free_slots(*run, index);
        by_address_[run->start] = run;
        return list(index, run);
    }
    Run *list(size_t index, Run *run)
    {
        own_[index].push_back(run);
        next_[index] = own_[index].size();
        return run;
    }

    std::vector<std::unique_ptr<Run>> runs_;
    std::vector<Run *> own_[kClasses];
    std::map<size_t, Run *> by_address_;
    Run *current_[kClasses] = {};
    size_t next_[kClasses] = {}, scanned_ = 0;
};

// No classes: the smallest free place that fits, lowest first, joined with its neighbours when it
// is free again. Multiples of 16 bytes.
class BestFit : public Placement
{
  public:
    size_t place(size_t size) override
    {
        const size_t bytes = (size + 15) / 16 * 16;
        size_t address = 0;
        auto found = by_size_.lower_bound({bytes, 0});
        if (found == by_size_.end()) {
            address = take_fresh(bytes);
        } else {
            const size_t had = found->first;
            address = found->second;
            erase(by_address_.find(address));
            if (had > bytes)
                insert(address + bytes, had - bytes);
        }
        pages_.live(address, bytes);
        return address;
    }
    void drop(size_t address, size_t size) override
    {
        size_t bytes = (size + 15) / 16 * 16;
        pages_.dead(address, bytes);
        auto behind = by_address_.lower_bound(address);
        if (behind != by_address_.end() && behind->first == address + bytes) {
            bytes += behind->second;
            behind = erase(behind);
        }
        if (behind != by_address_.begin()) {
            auto before = std::prev(behind);
            if (before->first + before->second == address) {
                address = before->first;
                bytes += before->second;
                erase(before);
            }
        }
        insert(address, bytes);
    }

  private:
    using Places = std::map<size_t, size_t>;
    void insert(size_t address, size_t bytes)
    {
        by_address_[address] = bytes;
        by_size_.insert({bytes, address});
    }
    Places::iterator erase(Places::iterator place)
    {
        by_size_.erase({place->second, place->first});
        return by_address_.erase(place);
    }

    Places by_address_;
    std::set<std::pair<size_t, size_t>> by_size_;
};

size_t play(const char *name, Placement &placement)
{
    struct Block {
        size_t address, size;
    };
    std::vector<Block> blocks;
    Random random{5};
    size_t live = 0, live_most = 0, pages_most = 0;
    printf("%-34s", name);
    for (const Phase &phase : kPhases) {
        const size_t first = blocks.size();
        placement.begin_phase();
        for (size_t bytes = 0; bytes < kPhaseBytes;) {
            const size_t size = phase.low + random.below(phase.high - phase.low + 1);
            blocks.push_back({placement.place(size), size});
            bytes += size;
            live += size;
        }
        live_most = std::max(live_most, live);
        pages_most = std::max(pages_most, placement.pages());
        printf(" %6.1f", double(placement.pages() * kPage) / kMiB);
        size_t kept = first;
        for (size_t i = first; i < blocks.size(); i++) {
            if (random.below(100) < kSurvivorsPercent) {
                blocks[kept++] = blocks[i];
                continue;
            }
            live -= blocks[i].size;
            placement.drop(blocks[i].address, blocks[i].size);
        }
        blocks.resize(kept);
    }
    printf("   %.2f\n", double(pages_most * kPage) / double(live_most));
    return pages_most;
}

} // namespace

int main()
{
    printf("%-34s  MiB on pages with a block, at the end of each phase   of the most that lived\n",
           "");
    Slots today(1);
    play("slots of one size", today);
    for (double reach : {1.5, 2.0, 4.0, 8.0}) {
        char name[64];
        snprintf(name, sizeof name, "or of one up to %.1f times larger", reach);
        Slots slots(reach);
        play(name, slots);
    }
    LaidOver laid_over;
    play("slabs laid over sparse slabs", laid_over);
    BestFit best_fit;
    play("best fit, joined, no headers", best_fit);
}
