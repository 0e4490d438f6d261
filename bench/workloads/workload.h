// The interface of a workload and its helpers.
//
// A workload is one row of the benchmark: a function that uses malloc and free in one pattern and
// reports figures. It runs alone in a fresh process. The starter of the process chooses the
// allocator (LD_PRELOAD), so nothing here is linked with an allocator. A few rows use another
// allocator of the library under test instead of its malloc, where there is one: frames.h.
//
// The data of the workload itself is in mappings of its own (MappedArray), filled before the clock
// starts, so that the allocator under test serves the pattern only.
#ifndef CAIRN_BENCH_WORKLOAD_H
#define CAIRN_BENCH_WORKLOAD_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

namespace bench
{

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

struct Options {
    double seconds = 1.0; // time of the warm passes
    // factor for all counts and sizes of working sets; 1 is the documented size
    double scale = 1.0;
    unsigned threads = 0; // 0: chosen by the workload
    uint64_t nodes = 0;   // nodes of the lists of group B; 0: ten million
};

// The state of one run: options in, figures out.
class Run
{
  public:
    explicit Run(const Options &options) : options_(options) {}

    // A count at the scale of this run, at least `least`.
    size_t scaled(size_t count, size_t least = 1) const;
    // The number of threads: that of the options, else `preferred`.
    unsigned threads(unsigned preferred) const;
    uint64_t nodes() const;

    // Adds a result; names and units are constants, which outlive the run.
    void figure(const char *name, double value, const char *unit);
    // Adds a result that this machine cannot measure.
    void not_available(const char *name, const char *unit);

    // Declares that the row uses the allocator with `function` instead of malloc.
    void served_by(const char *name, void *function);

    // Calls `pass`, which does `operations` operations and returns their time in nanoseconds: once
    // cold, and then until the time is used up. Reports cold_ns and warm_ns (the median of the warm
    // passes) per operation.
    template <class Pass> void time_passes(double operations, Pass pass);

    // Prints the figures, one line each: name, value, unit, separated by tabs.
    void print() const;

  private:
    static constexpr int kPassesMost = 2000, kFiguresMost = 32;

    struct Figure {
        const char *name, *unit;
        double value;
        bool available;
    };

    bool wants_more(int passes, double spent_ns) const;
    void report_passes(double operations, double cold_ns, int passes);

    const Options options_;
    Figure figures_[kFiguresMost];
    int figure_count_ = 0;
    const char *served_name_ = "malloc";
    void *served_function_ = nullptr; // null: malloc
    double pass_ns_[kPassesMost];
};

template <class Pass> void Run::time_passes(double operations, Pass pass)
{
    const double cold_ns = pass();
    double spent_ns = 0;
    int passes = 0;
    do {
        pass_ns_[passes] = pass();
        spent_ns += pass_ns_[passes];
        passes++;
    } while (wants_more(passes, spent_ns));
    report_passes(operations, cold_ns, passes);
}

struct Workload {
    const char *name;
    const char *group;
    const char *title;
    const char *time;   // the figure that is compared as the row's time; "" when there is none
    const char *memory; // the one compared as its memory; "peak_rss" is measured from outside
    unsigned need_mib;  // more than the row takes under any known allocator, at scale 1
    void (*run)(Run &);
    // A function of the allocator of Cairn that serves the row instead of malloc; "" for none.
    const char *instead = "";
};

struct WorkloadTable {
    const Workload *first;
    size_t count;
};

extern const WorkloadTable kWriteupA, kWriteupB, kWriteupC, kWriteupD, kServer, kSharing, kPatterns,
    kMemory, kReturned, kStartUp, kScaling, kHandedOver;

} // namespace bench

#endif
