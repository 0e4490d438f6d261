// Errors of the file system at every call of a run with the persistent heap: ENOSPC, EIO, EINTR,
// short writes. The call that fails reports it. Committed data stays. Other data can be committed
// again, or is in the state that a crash leaves. Nothing is lost once the error has ended.
//
// A debug build is needed: the errors are injected in os/.

#include "region/persist_slots.h"

extern "C" {
#include "os/file.h"
}

namespace persist_error_test
{

using namespace persist;

struct Plan {
    const char *name;
    int error;    // 0: the write is cut short and succeeds
    size_t count; // number of consecutive calls that fail
};

size_t g_calls;
size_t g_first;
Plan g_plan;

int inject(os_file_call call, int, uint64_t, const void *, size_t *size)
{
    if (g_calls++ - g_first >= g_plan.count)
        return 0;
    if (g_plan.error == 0 && call == OS_CALL_WRITE)
        *size = 1 + *size / 3;
    return -g_plan.error;
}

class Errors : public testing::TestWithParam<Plan>
{
  protected:
    void SetUp() override
    {
        if (!config_debug)
            GTEST_SKIP() << "faults are injected in debug builds";
    }
    void TearDown() override { os_file_watch(nullptr); }

    Options options() const
    {
        Options options = Options().log(1);
        options.size_bytes = 1;
        return options;
    }

    // Runs with the errors of the plan from call `first` on.
    // Returns: false when the run ended before that call.
    bool attempt(size_t first)
    {
        Directory directory;
        Slots slots(first);
        cairn_persist *heap = open_heap(directory.file(), options());
        Slots::set_up(heap);
        slots.note_commit(1);
        EXPECT_EQ(cairn_persist_commit(heap), 0);
        uint64_t durable = 1;
        g_plan = GetParam();
        g_calls = 0;
        g_first = first;
        os_file_watch(inject);
        for (int i = 0; i < 25; i++) {
            for (size_t j = 0; j < 4; j++)
                slots.change(heap, 20000);
            const uint64_t number = stats_of(heap).last_commit + 1;
            slots.note_commit(number);
            const int error = cairn_persist_commit(heap);
            EXPECT_TRUE(error == 0 || error == GetParam().error) << error;
            EXPECT_EQ(stats_of(heap).error == 0, cairn_persist_count_dirty(heap, &dirty_) == 0);
            if (error == 0)
                durable = number;
        }
        const bool struck = g_calls > first;
        const int closed = cairn_persist_close(heap);
        EXPECT_TRUE(closed == 0 || struck);
        os_file_watch(nullptr);

        const char *why = nullptr;
        heap = open_heap(directory.file(), options(), &why);
        EXPECT_NE(heap, nullptr) << why << ", call " << first;
        if (heap == nullptr)
            return false;
        const uint64_t number = stats_of(heap).last_commit;
        EXPECT_GE(number, durable) << "call " << first;
        EXPECT_EQ(Slots::read(heap), slots.contents(number)) << "call " << first;
        EXPECT_EQ(check(heap), "");
        slots.note_abort(number);
        EXPECT_TRUE(slots.change(heap, 100) && cairn_persist_commit(heap) == 0);
        cairn_persist_close(heap);
        return struck;
    }

    size_t dirty_ = 0;
};

TEST_P(Errors, AtEachCall)
{
    size_t first = 0;
    while (attempt(first) && !HasFailure())
        first++;
    EXPECT_GT(first, 60u);
}

INSTANTIATE_TEST_SUITE_P(Plans, Errors,
                         testing::Values(Plan{"NoSpaceOnce", ENOSPC, 1},
                                         Plan{"NoSpaceForAWhile", ENOSPC, 7},
                                         Plan{"IoErrorOnce", EIO, 1},
                                         Plan{"IoErrorsToTheEnd", EIO, SIZE_MAX / 2},
                                         Plan{"TooLargeForAWhile", EFBIG, 5},
                                         Plan{"Interrupted", EINTR, 3}, Plan{"ShortWrites", 0, 5}),
                         [](const auto &plan) { return plan.param.name; });

} // namespace persist_error_test
