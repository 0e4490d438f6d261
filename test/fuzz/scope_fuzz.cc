// Fuzzing of the thread's stack and its scopes: the input decides the scopes that are entered, the
// allocations in them by each of the t_ functions, and frames that are pushed and never popped.
// Whatever an inner scope does, the blocks of the outer ones are intact after its end.
//
// Each input runs in a thread of its own, which begins without a stack and ends with one.

#include <cairn/scope.h>
#include <errno.h>

#include <string>
#include <thread>
#include <vector>

#include "fuzz/fuzz_input.h"

namespace
{

using fuzz::Faults;
using fuzz::Input;
using fuzz::kMiB;
using fuzz::require;
using fuzz::require_contents;

constexpr unsigned kMostDepth = 60;
constexpr int kErrno = 4321;

struct Block {
    char *address;
    size_t size;
    uint64_t seed;
};

struct State {
    Input &input;
    Faults faults;
    size_t bytes = 0;
    uint64_t serial = 0;
};

void check(const Block &block) { require_contents(block.address, block.size, block.seed); }

// One scope: its blocks, and a number of steps.
class Scope
{
  public:
    Scope(State &state, unsigned depth) : state_(state), depth_(depth) {}

    // Runs with the frame of the scope open, and returns at its end.
    void t_run()
    {
        while (!state_.input.done()) {
            const size_t choice = state_.input.below(12);
            if (choice == 0)
                break;
            t_step(choice);
        }
        for (const Block &block : blocks_) {
            check(block);
            state_.bytes -= block.size;
        }
    }

  private:
    static void enter(State &state, unsigned depth)
    {
        t_scope;
        Scope(state, depth).t_run();
    }

    void t_step(size_t choice)
    {
        errno = kErrno;
        if (choice < 3 && depth_ < kMostDepth)
            enter(state_, depth_ + 1);
        else if (choice == 3)
            forget_frames();
        else if (choice == 4)
            t_text();
        else if (choice == 5)
            t_resize();
        else if (choice == 6)
            t_refuse();
        else if (choice == 7 && state_.input.flag())
            state_.faults.plan(state_.input);
        else if (choice == 7)
            state_.faults.end();
        else if (choice < 11)
            t_allocate();
        else
            for (const Block &block : blocks_)
                check(block);
    }

    // Frames that are never popped end with the enclosing scope.
    void forget_frames()
    {
        {
            t_scope;
            for (size_t i = state_.input.below(4); i > 0; i--) {
                t_push();
                char *block = static_cast<char *>(t_alloc(state_.input.byte()));
                require(block || state_.faults.planned(), "no memory");
            }
        }
        for (const Block &block : blocks_)
            check(block);
    }

    size_t pick_size()
    {
        const size_t size = state_.input.size(21);
        return state_.bytes + size <= 32 * kMiB ? size : size % 512;
    }

    void keep(void *address, size_t size, size_t alignment)
    {
        require(address || state_.faults.planned(), "no memory", nullptr, size);
        require(errno == (address ? kErrno : ENOMEM), "errno", address, static_cast<size_t>(errno));
        if (address == nullptr)
            return;
        require(fuzz::is_aligned(address, alignment), "alignment", address, alignment);
        const Block fresh = {static_cast<char *>(address), size, ++state_.serial};
        for (const Block &other : blocks_)
            require(fresh.address + size <= other.address ||
                        other.address + other.size <= fresh.address,
                    "overlaps another block", address, size);
        model::fill(fresh.address, size, fresh.seed);
        blocks_.push_back(fresh);
        state_.bytes += size;
    }

    void t_allocate()
    {
        const size_t kind = state_.input.below(5);
        const size_t size = pick_size();
        if (kind == 0) {
            const size_t align = state_.input.alignment(16);
            keep(t_alloc_aligned(size, align), size, align);
        } else if (kind == 1) {
            uint32_t *zero = t_new_zero(uint32_t, size / 4);
            if (zero)
                require(model::is_zero(reinterpret_cast<char *>(zero), size / 4 * 4), "not zero");
            keep(zero, size / 4 * 4, alignof(uint32_t));
        } else if (kind == 2) {
            keep(t_new(double, size / 8), size / 8 * 8, alignof(double));
        } else {
            keep(t_alloc(size), size, alignof(max_align_t));
        }
    }

    // Strings that libc formats, from a string of the input's length.
    void t_text()
    {
        const size_t length = state_.input.number16() % 5000;
        const size_t most = state_.input.number16();
        const std::string source(length, static_cast<char>('a' + length % 26));
        const std::string cut = source.substr(0, most);
        const char *made[] = {t_strdup(source.c_str()), t_strndup(source.c_str(), most),
                              t_printf("%s|%zu", source.c_str(), most)};
        const std::string wanted[] = {source, cut, source + "|" + std::to_string(most)};
        for (size_t i = 0; i < 3; i++) {
            require(made[i] || state_.faults.planned(), "no string", nullptr, i);
            require(!made[i] || wanted[i] == made[i], "string", made[i], i);
        }
    }

    void t_resize()
    {
        const size_t size = pick_size();
        if (blocks_.empty())
            return;
        const Block old = blocks_.back();
        check(old);
        if (reinterpret_cast<uintptr_t>(old.address) % alignof(max_align_t) != 0)
            return; // its alignment is not that of t_realloc
        char *moved = static_cast<char *>(t_realloc(old.address, old.size, size));
        const char *now = moved ? moved : old.address;
        const size_t kept = moved && size < old.size ? size : old.size;
        require(model::first_wrong(now, kept, old.seed, kept == old.size) == kept,
                "contents after realloc", now, size);
        if (moved) {
            blocks_.pop_back();
            state_.bytes -= old.size;
        }
        keep(moved, size, alignof(max_align_t));
    }

    void t_refuse()
    {
        const size_t size = state_.input.beyond();
        const size_t kind = state_.input.below(3);
        const void *result = kind == 0   ? t_alloc(size)
                             : kind == 1 ? t_alloc_array_zero(size, 3, 8)
                                         : t_alloc_aligned(8, 24);
        require(result == nullptr && errno == (kind == 2 ? EINVAL : ENOMEM),
                "a request that cannot be met", result, static_cast<size_t>(errno));
    }

    State &state_;
    const unsigned depth_;
    std::vector<Block> blocks_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input(data, size);
    std::thread([&] {
        State state{input, {}};
        // The stack of the thread itself, below every scope, is used first; then scope after scope.
        Scope(state, 0).t_run();
        while (!input.done()) {
            t_scope;
            Scope(state, 0).t_run();
        }
        if (cairn_thread_stack() == nullptr)
            require(state.faults.planned(), "no stack");
        state.faults.end();
    }).join();
    return 0;
}
