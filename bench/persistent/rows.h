// The rows of the benchmark of the persistent heap, and the helpers that they share.
#ifndef CAIRN_BENCH_PERSISTENT_ROWS_H
#define CAIRN_BENCH_PERSISTENT_ROWS_H

#include <string>
#include <vector>

#include "store.h"

namespace bench
{

struct Settings {
    std::string directory = ".";
    double seconds = 2; // for each cell of the table of commits, and for each other row
    std::vector<std::string> stores;
    std::vector<size_t> pages = {1, 16, 256, 4096}; // pages of a transaction
};

// Measured values in nanoseconds, sorted when the first one is read.
class Samples
{
  public:
    void add(double value) { values_.push_back(value); }
    size_t count() const { return values_.size(); }
    double sum() const;
    double at(double share); // 0.5: the median; 1: the maximum

  private:
    std::vector<double> values_;
};

// The name of a file in the folder. The file and its companions are removed, now and at the end.
class Place
{
  public:
    Place(const Settings &settings, const char *name);
    ~Place();
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;

    const std::string &path() const { return path_; }

  private:
    void remove() const;
    std::string path_;
};

void measure_commits(const Settings &settings);
void measure_finding(const Settings &settings);
void measure_allocation(const Settings &settings);
void measure_recovery(const Settings &settings);
void measure_stalls(const Settings &settings);
void measure_groups(const Settings &settings);

} // namespace bench

#endif
