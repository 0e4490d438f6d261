// The interface of the heaps and databases in the benchmark of the persistent heap: records of
// nearly a page each. A transaction rewrites some of them and makes them durable.
#ifndef CAIRN_BENCH_PERSISTENT_STORE_H
#define CAIRN_BENCH_PERSISTENT_STORE_H

#include <stddef.h>
#include <stdint.h>

#include <memory>
#include <string>

namespace bench
{

constexpr size_t kRecords = 32768; // a power of two
constexpr size_t kRecordBytes = 4000;
constexpr size_t kPageBytes = 4096;

class Store
{
  public:
    Store() = default;
    virtual ~Store() = default;
    Store(const Store &) = delete;
    Store &operator=(const Store &) = delete;

    virtual void begin() {}
    virtual void update(size_t record, const char *contents) = 0; // writes kRecordBytes bytes
    virtual void commit() = 0;                                    // durable when it returns
};

// A kind of store. Each registers itself, since the set depends on the libraries that were found.
struct StoreKind {
    StoreKind(const char *given_name, std::unique_ptr<Store> (*given_open)(const std::string &));

    const char *name;
    std::unique_ptr<Store> (*open)(const std::string &path); // makes a new store, all zero
    StoreKind *next;

    static StoreKind *first;
    static const StoreKind *find(const char *name);
};

[[noreturn]] void fail(const char *what);
[[noreturn]] void fail(const std::string &what, int error);

inline void check(bool holds, const char *what)
{
    if (!holds) {
        fail(what);
    }
}

double now_ns();

} // namespace bench

#endif
