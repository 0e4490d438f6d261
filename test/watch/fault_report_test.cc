// Reports: what each kind of fault reads like. That the handler is called is sample_test's.

#include "watch/guarded_layer.h"

#include <unistd.h>

#include <thread>
#include <vector>

namespace
{

using namespace guarded_layer;

class FaultReport : public Guarded
{
  protected:
    // The report of an access at the address, made in a child: only one thread reports, once.
    static void tell(const char *address, enum os_fault_kind kind)
    {
        const struct os_fault fault = {address, kind, 0};
        _exit(report_fault(&fault) ? 0 : 1);
    }
    static auto exits(int code) { return testing::ExitedWithCode(code); }
};

TEST_F(FaultReport, NamesTheKindTheAccessAndTheBlock)
{
    char *block = allocate_at(stands_right, 64);
    const std::string at = " of 0x[0-9a-f]+";
    const std::string in = " 64-byte block at 0x[0-9a-f]+\n";
    const std::string stacks = stack("allocated") + stack("misused") + "$";
    EXPECT_EXIT(tell(block + 64, OS_FAULT_READ), exits(0),
                "^cairn: overflow: read" + at + ", 0 bytes behind a" + in + stacks);
    EXPECT_EXIT(tell(block + 80, OS_FAULT_WRITE), exits(0),
                "^cairn: overflow: write" + at + ", 16 bytes behind a" + in + stacks);
    EXPECT_EXIT(tell(block - 10, OS_FAULT_UNKNOWN), exits(0),
                "^cairn: underflow: access" + at + ", 10 bytes before a" + in + stacks);
    give_back(block);
    EXPECT_EXIT(tell(block + 5, OS_FAULT_WRITE), exits(0),
                "^cairn: use after free: write" + at + " \\(64-byte block at 0x[0-9a-f]+\\)\n" +
                    stack("allocated") + stack("freed") + stack("misused") + "$");
}

TEST_F(FaultReport, ForeignFaultsAreNotItsBusiness)
{
    char local = 0;
    for (const char *address : {&local, static_cast<char *>(nullptr), guarded_pool.start - 1,
                                guarded_pool.start + SLOT_COUNT * guarded_pool.slot_bytes - 1})
        EXPECT_EXIT(tell(address, OS_FAULT_READ), exits(1), "^$");
}

TEST_F(FaultReport, AWrongFreeMayBeRefused)
{
    if (config_hardened)
        GTEST_SKIP() << "hardened builds end the process";
    char *block = static_cast<char *>(guarded_allocate(64, 1));
    const std::string stacks = stack("allocated") + stack("misused");
    EXPECT_EXIT(
        {
            heap_go_on_after_wrong_frees();
            guarded_free(block + 1, &slot_of(block)->span);
            std::thread([block] { guarded_free(block + 2, &slot_of(block)->span); }).join();
            _exit(slot_of(block)->state == SLOT_LIVE && heap_count_wrong_frees() == 2 ? 0 : 1);
        },
        exits(0),
        "^cairn: free of interior pointer [^\n]*\n" + stacks +
            "cairn: free of interior pointer [^\n]*\n" + stacks + "$");
    give_back(block);
}

TEST_F(FaultReport, OneThreadReports)
{
    char *block = static_cast<char *>(guarded_allocate(64, 1));
    EXPECT_EXIT(
        {
            std::vector<std::thread> threads;
            for (int i = 0; i < 4; i++)
                threads.emplace_back([block] { refuse_guarded("free", slot_of(block), "once"); });
            for (std::thread &thread : threads)
                thread.join();
        },
        testing::KilledBySignal(SIGABRT),
        "^cairn: once\n" + stack("allocated") + stack("misused") + "$");
    give_back(block);
}

} // namespace
