// Files of a persistent heap that are lost, emptied, cut or restored: each file is replaced by each
// of its earlier states, cut at each sector, emptied and removed. The heap either opens exactly as
// of the last acknowledged commit, or is refused with a sentence and no file changes.
//
// The only exception is documented in docs/PERSISTENT.md: a closed heap is one file, and an earlier
// copy of that file, made while the heap was closed, is a whole heap.

#include "region/persist_slots.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace persist_replaced_test
{

using namespace persist;

constexpr const char *kSuffixes[] = {"", ".log0", ".log1"};
constexpr size_t kFiles = 3;

// Every case runs, or one in kOneIn where a build takes ten times as long, because all run on one
// thread.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || CAIRN_TEST_EMULATED
constexpr size_t kOneIn = 11;
#else
constexpr size_t kOneIn = 1;
#endif

using File = std::optional<std::string>; // nullopt: no such file

struct State {
    File files[kFiles];
    uint64_t acknowledged;
    bool closed;
};

class Replaced : public testing::Test
{
  protected:
    std::string path() const { return directory_.file(); }
    std::string copy() const { return directory_.file("copy"); }

    static Options options()
    {
        Options options = Options().log(1);
        options.size_bytes = 1;
        return options;
    }

    void note(bool closed)
    {
        State state = {{}, acknowledged_, closed};
        for (size_t i = 0; i < kFiles; i++)
            if (std::filesystem::exists(path() + kSuffixes[i]))
                state.files[i] = read_file(path() + kSuffixes[i]);
        states_.push_back(state);
    }

    void open()
    {
        ASSERT_NE(heap_ = open_heap(path(), options()), nullptr);
        note(false);
    }
    void commit()
    {
        slots_.note_commit(stats_of(heap_).last_commit + 1);
        ASSERT_EQ(cairn_persist_commit(heap_), 0);
        acknowledged_ = stats_of(heap_).last_commit;
        note(false);
    }
    void work(int commits)
    {
        for (int i = 0; i < commits; i++) {
            slots_.change(heap_, 3000);
            slots_.change(heap_, 3000);
            commit();
        }
    }
    void close()
    {
        ASSERT_EQ(cairn_persist_close(std::exchange(heap_, nullptr)), 0);
        note(true);
    }
    void crash() // ends as a kill would
    {
        files_close(heap_);
        heap_->process = 0;
        cairn_persist_close(std::exchange(heap_, nullptr));
    }

    // Opens the heap several times and ends it in each way, with more commits than a segment of the
    // log holds.
    void live()
    {
        slots_.note_commit(0);
        open();
        ASSERT_TRUE(Slots::set_up(heap_));
        commit();
        work(6);
        close();
        open();
        work(12);
        crash();
        open();
        work(3);
        ASSERT_EQ(cairn_persist_checkpoint(heap_), 0);
        note(false);
        work(2);
        ASSERT_EQ(cairn_persist_grow(heap_, stats_of(heap_).size_bytes + 65536), 0);
        note(false);
        work(20);
    }

    void put(const State &state) const
    {
        for (size_t i = 0; i < kFiles; i++)
            if (state.files[i])
                write_file(copy() + kSuffixes[i], *state.files[i]);
            else
                std::filesystem::remove(copy() + kSuffixes[i]);
    }
    bool unchanged(const State &state) const
    {
        for (size_t i = 0; i < kFiles; i++) {
            const std::string name = copy() + kSuffixes[i];
            if (std::filesystem::exists(name) != state.files[i].has_value() ||
                (state.files[i] && read_file(name) != *state.files[i]))
                return false;
        }
        return true;
    }

    // The commit that the heap opens with, after a check that it is whole; nullopt: refused, with a
    // sentence and no change of a file.
    std::optional<uint64_t> found(const State &state, unsigned flags)
    {
        put(state);
        const char *why = nullptr;
        cairn_persist *heap = open_heap(copy(), options().only(flags), &why);
        if (heap == nullptr) {
            const bool is_new = errno == ENODATA && state.acknowledged == 0;
            EXPECT_TRUE(errno == EBADMSG || errno == ENOTSUP || errno == ENOENT || is_new) << errno;
            EXPECT_NE(why, nullptr);
            EXPECT_TRUE(unchanged(state)) << "refused, and changed: " << (why ? why : "");
            refusals_[why ? why : ""]++;
            return {};
        }
        opened_++;
        const uint64_t number = stats_of(heap).last_commit;
        EXPECT_TRUE(slots_.knows(number)) << number;
        if (slots_.knows(number)) {
            EXPECT_EQ(Slots::read(heap), slots_.contents(number)) << number;
        }
        EXPECT_EQ(check(heap), "");
        cairn_persist_close(heap);
        return number;
    }

    void expect_exact_or_refused(const State &state, const std::string &what)
    {
        for (const unsigned flags :
             {unsigned{CAIRN_PERSIST_READ_ONLY}, unsigned{CAIRN_PERSIST_CREATE}}) {
            const std::optional<uint64_t> number = found(state, flags);
            EXPECT_EQ(number.value_or(state.acknowledged), state.acknowledged) << what;
        }
    }

    void TearDown() override
    {
        cairn_persist_close(heap_);
        printf("%zu opened; refused:\n", opened_);
        for (const auto &[why, times] : refusals_)
            printf("%6zu %s\n", times, why.c_str());
    }

    Directory directory_;
    Slots slots_{11};
    cairn_persist *heap_ = nullptr;
    uint64_t acknowledged_ = 0;
    std::vector<State> states_;
    std::map<std::string, size_t> refusals_;
    size_t opened_ = 0;
};

std::string named(size_t file, size_t now)
{
    return "heap" + std::string(kSuffixes[file]) + " of state " + std::to_string(now);
}

TEST_F(Replaced, ByEachEarlierState)
{
    live();
    for (size_t now = 2; now < states_.size(); now++)
        for (size_t file = 0; file < kFiles; file++)
            for (size_t then = now % kOneIn; then < now && !HasFailure(); then += kOneIn) {
                State state = states_[now];
                state.files[file] = states_[then].files[file];
                const std::string what =
                    named(file, now) + " replaced by that of state " + std::to_string(then);
                const bool is_a_whole_heap = file == 0 && state.closed && states_[then].closed;
                if (is_a_whole_heap)
                    EXPECT_EQ(found(state, 0), states_[then].acknowledged) << what;
                else if (state.files[file] || file > 0 || !state.closed)
                    expect_exact_or_refused(state, what);
            }
}

TEST_F(Replaced, CutAtEachSector)
{
    live();
    size_t closed = 0;
    while (!states_[closed].closed)
        closed++;
    for (size_t now : {states_.size() - 1, states_.size() - 5, closed, size_t{4}})
        for (size_t file = 0; file < kFiles; file++) {
            const std::string whole = states_[now].files[file].value_or("");
            for (size_t end = 0; end < whole.size() && !HasFailure();
                 end += kOneIn * PERSIST_SECTOR_BYTES) {
                State state = states_[now];
                state.files[file] = whole.substr(0, end);
                expect_exact_or_refused(state, named(file, now) + " cut at " + std::to_string(end));
            }
        }
}

TEST_F(Replaced, EmptiedAndRemoved)
{
    live();
    for (size_t now = 1; now < states_.size() && !HasFailure(); now++)
        for (size_t file = 0; file < kFiles && !states_[now].closed; file++) {
            State state = states_[now];
            state.files[file] = "";
            expect_exact_or_refused(state, named(file, now) + " emptied");
            state.files[file].reset();
            expect_exact_or_refused(state, named(file, now) + " removed");
        }
    EXPECT_EQ(refusals_["log0 of a heap is there, and the heap's file is missing: no new heap is "
                        "made until the log is moved away"],
              refusals_["there is no such heap"]);
}

// Copies of the three files that were made at different times.
TEST_F(Replaced, MixesHoldWhatTheHeapsFileKnowsOrAreRefused)
{
    live();
    const size_t step = std::max<size_t>(2, stride(5)) * kOneIn;
    for (size_t heap = 0; heap < states_.size(); heap += stride(2))
        for (size_t log0 = heap % step; log0 < states_.size(); log0 += step)
            for (size_t log1 = heap % step; log1 < states_.size() && !HasFailure(); log1 += step) {
                State state = states_[heap];
                state.files[1] = states_[log0].files[1];
                state.files[2] = states_[log1].files[2];
                const std::optional<uint64_t> number = found(state, CAIRN_PERSIST_READ_ONLY);
                EXPECT_GE(number.value_or(state.acknowledged), state.acknowledged)
                    << "heap " << heap << ", logs " << log0 << " and " << log1;
            }
}

} // namespace persist_replaced_test
