// A program that uses a persistent heap and knows its correct content: a table of slots, each empty
// or with a block. The content of every commit is stored by its number, so that a heap that is
// opened after a crash can be compared with the commit that it claims to hold.
#pragma once

#include <algorithm>
#include <map>
#include <random>

#include "region/persist_kit.h"

namespace persist
{

class Slots
{
  public:
    static constexpr size_t kSlots = 24;
    using Contents = std::vector<std::string>;

    explicit Slots(uint64_t seed) : random_(seed), now_(kSlots) {}

    size_t draw(size_t below) { return random_() % below; }

    // The table of slots, NULL before set_up().
    static cairn_offset *table(cairn_persist *heap)
    {
        return static_cast<cairn_offset *>(cairn_persist_get_root(heap, "slots"));
    }
    static bool set_up(cairn_persist *heap)
    {
        if (table(heap) != nullptr)
            return true;
        char *made = allocate(heap, kSlots * sizeof(cairn_offset));
        if (made == nullptr)
            return false;
        memset(made, 0, kSlots * sizeof(cairn_offset));
        return cairn_persist_set_root(heap, "slots", made) == 0;
    }

    // Makes one random change of the heap and of the known content.
    // Returns: false when out of memory; then nothing changed.
    bool change(cairn_persist *heap, size_t largest)
    {
        cairn_offset *slot = table(heap) + draw(kSlots);
        std::string &known = now_[static_cast<size_t>(slot - table(heap))];
        char *block = static_cast<char *>(cairn_offset_get(slot));
        if (block == nullptr)
            return fill(heap, slot, known, 1 + draw(draw(4) == 0 ? largest : 200));
        switch (draw(4)) {
        case 0:
            release(heap, block);
            cairn_offset_set(slot, nullptr);
            known.clear();
            return true;
        case 1: {
            const size_t size = 1 + draw(known.size() * 2);
            if (cairn_allocator_resize(cairn_persist_allocator(heap), block, 0,
                                       sizeof(uint64_t) + size) == nullptr)
                return true;
            write(block, known, size);
            return true;
        }
        default: {
            const size_t at = draw(known.size());
            known[at] = static_cast<char>(random_());
            block[sizeof(uint64_t) + at] = known[at];
            return true;
        }
        }
    }

    void note_commit(uint64_t number) { commits_[number] = now_; }
    void note_abort(uint64_t number) { now_ = commits_[number]; }
    bool knows(uint64_t number) const { return commits_.count(number) != 0; }
    const Contents &contents(uint64_t number) const { return commits_.at(number); }
    void forget_before(uint64_t number) { commits_.erase(commits_.begin(), commits_.find(number)); }

    static Contents read(cairn_persist *heap)
    {
        Contents contents(kSlots);
        cairn_offset *slots = table(heap);
        for (size_t i = 0; slots != nullptr && i < kSlots; i++) {
            const char *block = static_cast<char *>(cairn_offset_get(&slots[i]));
            uint64_t size = 0;
            if (block != nullptr)
                memcpy(&size, block, sizeof size);
            if (size > (1 << 20))
                contents[i] = "a size that was never written";
            else if (block != nullptr)
                contents[i].assign(block + sizeof size, size);
        }
        return contents;
    }

  private:
    bool fill(cairn_persist *heap, cairn_offset *slot, std::string &known, size_t size)
    {
        char *block = allocate(heap, sizeof(uint64_t) + size);
        if (block == nullptr)
            return false;
        cairn_offset_set(slot, block);
        write(block, known, size);
        return true;
    }
    void write(char *block, std::string &known, size_t size)
    {
        known.assign(size, static_cast<char>(random_()));
        for (size_t i = 0; i < size; i += 61)
            known[i] = static_cast<char>(random_());
        const uint64_t length = size;
        memcpy(block, &length, sizeof length);
        memcpy(block + sizeof length, known.data(), size);
    }

    std::mt19937_64 random_;
    Contents now_;
    std::map<uint64_t, Contents> commits_;
};

} // namespace persist
