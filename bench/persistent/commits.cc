// Transactions of several sizes, by each store in turn, so that load affects all alike: in each of
// several rounds every store runs for its share of the time.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rows.h"

namespace bench
{
namespace
{

constexpr unsigned kRounds = 5;

struct Column {
    const char *name;
    std::unique_ptr<Place> place;
    std::unique_ptr<Store> store;
    uint64_t turn;
    Samples commits;      // the commit alone
    Samples transactions; // with the updates
    Samples ratios;       // a round's median commit over that of the first column
    double written_bytes;
};

// The bytes written to the disk of the folder, by all processes; 0 where the file system is on no
// disk. The process's own counter (/proc/self/io) is not used: it counts a written page as its
// whole folio. Data that is still in memory is written first.
double disk_bytes(const Settings &settings)
{
    const int directory = open(settings.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat place;
    check(directory >= 0 && fstat(directory, &place) == 0, "the directory");
    syncfs(directory);
    close(directory);
    const std::string name = "/sys/dev/block/" + std::to_string(major(place.st_dev)) + ":" +
                             std::to_string(minor(place.st_dev)) + "/stat";
    FILE *file = fopen(name.c_str(), "re");
    if (file == nullptr) {
        return 0;
    }
    unsigned long long sectors = 0; // the seventh number of the file
    for (int i = 0; i < 7; i++) {
        check(fscanf(file, "%llu", &sectors) == 1, name.c_str());
    }
    fclose(file);
    return static_cast<double>(sectors) * 512;
}

// Other pages for each transaction, spread over the table.
size_t record_of(uint64_t turn, size_t index) { return (turn * 7919 + index) * 40503 % kRecords; }

void transact(Column &column, size_t pages, Samples &round)
{
    char contents[kRecordBytes];
    memset(contents, static_cast<int>(column.turn % 251 + 1), sizeof contents);
    const double start = now_ns();
    column.store->begin();
    for (size_t i = 0; i < pages; i++) {
        column.store->update(record_of(column.turn, i), contents);
    }
    const double middle = now_ns();
    column.store->commit();
    const double end = now_ns();
    column.turn++;
    column.transactions.add(end - start);
    column.commits.add(end - middle);
    round.add(end - middle);
}

void take_round(const Settings &settings, std::vector<Column> &columns, size_t pages)
{
    double floor = 0;
    for (Column &column : columns) {
        Samples round;
        const double before = disk_bytes(settings);
        const double start = now_ns();
        while (now_ns() - start < settings.seconds * 1e9 / kRounds) {
            transact(column, pages, round);
        }
        column.written_bytes += disk_bytes(settings) - before;
        const double median = round.at(0.5);
        floor = floor == 0 ? median : floor;
        column.ratios.add(median / floor);
    }
}

void print_row(Column &column, size_t pages)
{
    const auto count = static_cast<double>(column.transactions.count());
    const double bytes = static_cast<double>(pages * kPageBytes);
    printf("| %zu | %s | %.0f | %.2f | %.2f | %.2f | %.1f | %.1f | %.2f | %zu |\n", pages,
           column.name, count / (column.transactions.sum() * 1e-9), column.commits.at(0.5) * 1e-6,
           column.ratios.at(0.5), column.commits.sum() / count * 1e-6,
           column.commits.at(0.999) * 1e-6, column.commits.at(1) * 1e-6,
           column.written_bytes / count / bytes, column.transactions.count());
    fflush(stdout);
}

} // namespace

void measure_commits(const Settings &settings)
{
    std::vector<Column> columns;
    for (const std::string &name : settings.stores) {
        const StoreKind *kind = StoreKind::find(name.c_str());
        if (kind == nullptr) {
            printf("%s: its library was not found when this program was built\n", name.c_str());
            continue;
        }
        Column column = {};
        column.name = kind->name;
        column.place = std::make_unique<Place>(settings, kind->name);
        column.store = kind->open(column.place->path());
        columns.push_back(std::move(column));
    }
    printf("| pages | store | transactions/s | commit, median ms | to %s | mean ms | p99.9 ms | "
           "most ms | disk bytes a byte | number |\n|---|---|---|---|---|---|---|---|---|---|\n",
           columns.empty() ? "" : columns[0].name);
    for (size_t pages : settings.pages) {
        for (unsigned round = 0; round < kRounds; round++) {
            take_round(settings, columns, pages);
        }
        for (Column &column : columns) {
            print_row(column, pages);
            column.commits = column.transactions = column.ratios = Samples();
            column.written_bytes = 0;
        }
    }
}

} // namespace bench
