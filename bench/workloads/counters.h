// The processor's event counters of this thread, in user mode, through perf_event_open.
#ifndef CAIRN_BENCH_COUNTERS_H
#define CAIRN_BENCH_COUNTERS_H

#include <stdint.h>

#include "workload.h"

namespace bench
{

// The counters of one thread. Each is opened by itself: a machine, above all a virtual one, may
// have only some or none.
class Counters
{
  public:
    Counters();
    ~Counters();
    Counters(const Counters &) = delete;
    Counters &operator=(const Counters &) = delete;

    void start();
    void stop();

    // Reports instructions, cycles, instructions per cycle and the share of mispredicted branches,
    // or "not available" for each event that the machine does not count.
    void report(Run &run, double operations) const;

  private:
    enum Event { kInstructions, kCycles, kBranches, kBranchMisses, kEvents };

    // The count of the event, corrected for the time in which the kernel used the counter
    // otherwise.
    // Returns: false when it is not available.
    bool read(Event event, double *value) const;

    int fds_[kEvents]; // -1: not available
};

} // namespace bench

#endif
