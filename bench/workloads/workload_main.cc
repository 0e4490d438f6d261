// cairn-workloads: runs one workload of the benchmark in this process, on the malloc that it has.
//
// cairn-workloads --list
//     one line a workload: name, group, title, time figure, memory figure, need in MiB, function
//     that Cairn serves it by instead of malloc
// cairn-workloads [--seconds S] [--scale F] [--threads N] [--nodes N] [--output FILE] NAME
//     its results, one line each: name, value, unit; to the file if one is given
//
// Fields are separated by tabs. The first line of results, "allocator", has the file that defines
// malloc, and "malloc", so that a preload without effect is noticed; or the file and name of the
// function that served instead.
#include <algorithm>
#include <dlfcn.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "support.h"
#include "workload.h"

namespace bench
{

size_t Run::scaled(size_t count, size_t least) const
{
    const double wanted = static_cast<double>(count) * options_.scale;
    return std::max(static_cast<size_t>(wanted), least);
}

unsigned Run::threads(unsigned preferred) const
{
    return options_.threads != 0 ? options_.threads : preferred;
}

uint64_t Run::nodes() const { return options_.nodes != 0 ? options_.nodes : scaled(10000000); }

void Run::figure(const char *name, double value, const char *unit)
{
    if (figure_count_ == kFiguresMost) {
        fail("a workload has too many figures");
    }
    figures_[figure_count_++] = Figure{name, unit, value, true};
}

void Run::not_available(const char *name, const char *unit)
{
    figure(name, 0, unit);
    figures_[figure_count_ - 1].available = false;
}

void Run::served_by(const char *name, void *function)
{
    served_name_ = name;
    served_function_ = function;
}

bool Run::wants_more(int passes, double spent_ns) const
{
    constexpr int kFewest = 3; // for a median, unless the passes are long
    const double budget_ns = options_.seconds * 1e9;
    if (passes == kPassesMost || spent_ns > 2 * budget_ns) {
        return false;
    }
    return passes < kFewest || spent_ns < budget_ns;
}

void Run::report_passes(double operations, double cold_ns, int passes)
{
    std::sort(pass_ns_, pass_ns_ + passes);
    const double median = (pass_ns_[(passes - 1) / 2] + pass_ns_[passes / 2]) / 2;
    figure("cold_ns", cold_ns / operations, "ns");
    figure("warm_ns", median / operations, "ns");
}

void Run::print() const
{
    Dl_info info;
    void *function = served_function_ ? served_function_ : dlsym(RTLD_DEFAULT, served_name_);
    const bool known = dladdr(function, &info) != 0;
    printf("allocator\t%s\t%s\n", known ? info.dli_fname : "?", served_name_);
    for (int i = 0; i < figure_count_; i++) {
        if (figures_[i].available) {
            printf("%s\t%.6g\t%s\n", figures_[i].name, figures_[i].value, figures_[i].unit);
        } else {
            printf("%s\tnot available\t%s\n", figures_[i].name, figures_[i].unit);
        }
    }
}

} // namespace bench

namespace
{

using bench::Workload;

const bench::WorkloadTable *const kTables[] = {
    &bench::kWriteupA, &bench::kWriteupB, &bench::kWriteupC, &bench::kWriteupD,
    &bench::kServer,   &bench::kSharing,  &bench::kPatterns, &bench::kMemory,
    &bench::kReturned, &bench::kStartUp,  &bench::kScaling,  &bench::kHandedOver};

const Workload *find(const char *name)
{
    for (const bench::WorkloadTable *table : kTables) {
        for (size_t i = 0; i < table->count; i++) {
            if (strcmp(table->first[i].name, name) == 0) {
                return &table->first[i];
            }
        }
    }
    return nullptr;
}

void list()
{
    for (const bench::WorkloadTable *table : kTables) {
        for (size_t i = 0; i < table->count; i++) {
            const Workload &row = table->first[i];
            printf("%s\t%s\t%s\t%s\t%s\t%u\t%s\n", row.name, row.group, row.title, row.time,
                   row.memory, row.need_mib, row.instead);
        }
    }
}

[[noreturn]] void usage()
{
    fprintf(stderr, "usage: cairn-workloads --list\n"
                    "       cairn-workloads [--seconds S] [--scale F] [--threads N] [--nodes N] "
                    "[--output FILE] NAME\n");
    exit(2);
}

double positive(const char *text, double most)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0) || value > most) {
        usage();
    }
    return value;
}

} // namespace

int main(int argc, char **argv)
{
    // The buffer of the stream must not be a block of the allocator under test.
    static char buffer[BUFSIZ];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);

    static const option kLong[] = {{"list", no_argument, nullptr, 'l'},
                                   {"seconds", required_argument, nullptr, 's'},
                                   {"scale", required_argument, nullptr, 'f'},
                                   {"threads", required_argument, nullptr, 't'},
                                   {"nodes", required_argument, nullptr, 'n'},
                                   {"output", required_argument, nullptr, 'o'},
                                   {nullptr, 0, nullptr, 0}};
    bench::Options options;
    const char *output = nullptr;
    for (int key; (key = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
        switch (key) {
        case 'l':
            list();
            return 0;
        case 's':
            options.seconds = positive(optarg, 3600);
            break;
        case 'f':
            options.scale = positive(optarg, 1000);
            break;
        case 't':
            options.threads = static_cast<unsigned>(positive(optarg, 256));
            break;
        case 'n':
            options.nodes = static_cast<uint64_t>(positive(optarg, 1e12));
            break;
        case 'o':
            output = optarg;
            break;
        default:
            usage();
        }
    }
    if (optind + 1 != argc) {
        usage();
    }
    const Workload *workload = find(argv[optind]);
    if (workload == nullptr) {
        fprintf(stderr, "cairn-workloads: no workload '%s'; --list names them\n", argv[optind]);
        return 2;
    }
    static bench::Run run(options); // too large for a stack frame
    workload->run(run);
    if (output != nullptr && freopen(output, "w", stdout) == nullptr) {
        perror(output);
        return 1;
    }
    run.print();
    return fflush(stdout) == 0 ? 0 : 1;
}
