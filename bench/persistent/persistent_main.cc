// cairn-persistent-bench: the goals of the persistent heap, and a comparison with other stores.
//
// cairn-persistent-bench [--directory DIR] [--seconds S] [--stores a,b,...] [--pages n,m,...]
//                        [ROW...]
//
// The rows are commits, finding, allocation, recovery, stalls, groups; without any, all are run.
// The files are in DIR (default: the working directory), whose file system is measured; one in
// memory is no use. S is the time in seconds for each figure of commits (2), and in proportion for
// the others. Each row prints one table.
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rows.h"

namespace bench
{

StoreKind *StoreKind::first;

StoreKind::StoreKind(const char *given_name,
                     std::unique_ptr<Store> (*given_open)(const std::string &))
    : name(given_name), open(given_open), next(first)
{
    first = this;
}

const StoreKind *StoreKind::find(const char *name)
{
    const StoreKind *kind = first;
    while (kind != nullptr && strcmp(kind->name, name) != 0) {
        kind = kind->next;
    }
    return kind;
}

void fail(const char *what)
{
    fprintf(stderr, "cairn-persistent-bench: failed: %s\n", what);
    exit(1);
}

void fail(const std::string &what, int error)
{
    fail((error != 0 ? what + ": " + strerror(error) : what).c_str());
}

double now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double Samples::sum() const
{
    double sum = 0;
    for (double value : values_) {
        sum += value;
    }
    return sum;
}

double Samples::at(double share)
{
    check(!values_.empty(), "there is a sample");
    if (!std::is_sorted(values_.begin(), values_.end())) {
        std::sort(values_.begin(), values_.end());
    }
    const auto index = static_cast<size_t>(share * static_cast<double>(values_.size()));
    return values_[std::min(index, values_.size() - 1)];
}

Place::Place(const Settings &settings, const char *name)
    : path_(settings.directory + "/cairn-persistent-bench." + std::to_string(getpid()) + "." + name)
{
    remove();
}

Place::~Place() { remove(); }

void Place::remove() const
{
    for (const char *suffix : {"", ".log0", ".log1", "-lock", "-wal", "-shm"}) {
        (void)unlink((path_ + suffix).c_str());
    }
}

namespace
{

struct Row {
    const char *name;
    const char *title;
    void (*measure)(const Settings &settings);
};

constexpr Row kRows[] = {
    {"commits", "Transactions that rewrite records of nearly a page, durable", measure_commits},
    {"finding", "Finding the written pages", measure_finding},
    {"allocation", "Allocation", measure_allocation},
    {"recovery", "Recovery after the end of the process", measure_recovery},
    {"stalls", "Commits beside checkpoints, a log of 16 MiB", measure_stalls},
    {"groups", "Commits of many threads, of a page each", measure_groups},
};

[[noreturn]] void usage()
{
    fprintf(stderr, "usage: cairn-persistent-bench [--directory DIR] [--seconds S] "
                    "[--stores a,b,...] [--pages n,m,...] [ROW...]\nrows:");
    for (const Row &row : kRows) {
        fprintf(stderr, " %s", row.name);
    }
    fprintf(stderr, "\n");
    exit(2);
}

std::vector<std::string> split(const std::string &text)
{
    std::vector<std::string> parts;
    size_t start = 0;
    while (start <= text.size()) {
        const size_t end = std::min(text.find(',', start), text.size());
        parts.push_back(text.substr(start, end - start));
        start = end + 1;
    }
    return parts;
}

double positive(const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0) || value > kRecords) {
        usage();
    }
    return value;
}

const Row *find_row(const char *name)
{
    for (const Row &row : kRows) {
        if (strcmp(row.name, name) == 0) {
            return &row;
        }
    }
    usage();
}

void run(const Row &row, const Settings &settings)
{
    printf("\n%s (%s)\n\n", row.title, row.name);
    fflush(stdout);
    row.measure(settings);
}

} // namespace
} // namespace bench

int main(int argc, char **argv)
{
    bench::Settings settings;
    settings.stores = {"pwrite", "cairn", "cairn-pause", "lmdb", "sqlite", "pmemobj"};
    static const option kLong[] = {{"directory", required_argument, nullptr, 'd'},
                                   {"seconds", required_argument, nullptr, 's'},
                                   {"stores", required_argument, nullptr, 'p'},
                                   {"pages", required_argument, nullptr, 'n'},
                                   {nullptr, 0, nullptr, 0}};
    for (int key; (key = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
        switch (key) {
        case 'd':
            settings.directory = optarg;
            break;
        case 's':
            settings.seconds = bench::positive(optarg);
            break;
        case 'p':
            settings.stores = bench::split(optarg);
            break;
        case 'n':
            settings.pages.clear();
            for (const std::string &text : bench::split(optarg)) {
                settings.pages.push_back(static_cast<size_t>(bench::positive(text.c_str())));
            }
            break;
        default:
            bench::usage();
        }
    }
    for (int i = optind; i < argc; i++) {
        (void)bench::find_row(argv[i]);
    }
    for (const bench::Row &row : bench::kRows) {
        if (optind == argc || std::find_if(argv + optind, argv + argc, [&](const char *name) {
                                  return strcmp(name, row.name) == 0;
                              }) != argv + argc) {
            bench::run(row, settings);
        }
    }
    return 0;
}
