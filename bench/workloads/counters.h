// The processor's event counters of this thread, in user mode, through perf_event_open.
#ifndef CAIRN_BENCH_COUNTERS_H
#define CAIRN_BENCH_COUNTERS_H

#include <stdint.h>

#include "workload.h"

namespace bench
{

// Each counter is opened by itself: a machine (a virtual one above all) may have some or none.
class Counters
{
  public:
    Counters();
    ~Counters();
    Counters(const Counters &) = delete;
    Counters &operator=(const Counters &) = delete;

    void start();
    void stop();

    // instructions, cycles, instructions a cycle, share of branches missed; a plain "not
    // available" for what the machine does not count.
    void report(Run &run, double operations) const;

  private:
    enum Event { kInstructions, kCycles, kBranches, kBranchMisses, kEvents };

    // What was counted, corrected for the time in which the kernel had to take the counter away.
    bool read(Event event, double *value) const;

    int fds_[kEvents]; // -1: not available
};

} // namespace bench

#endif
