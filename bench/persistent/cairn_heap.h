// An open persistent heap whose calls succeed or end the benchmark.
#ifndef CAIRN_BENCH_PERSISTENT_CAIRN_HEAP_H
#define CAIRN_BENCH_PERSISTENT_CAIRN_HEAP_H

#include <cairn/persist.h>

#include "store.h"

namespace bench
{

class Heap
{
  public:
    Heap(const std::string &path, unsigned flags, size_t size_bytes, size_t log_bytes);
    ~Heap();
    Heap(const Heap &) = delete;
    Heap &operator=(const Heap &) = delete;

    cairn_persist *get() const { return heap_; }
    void commit();
    char *allocate(size_t size);
    cairn_persist_stats stats() const;

  private:
    cairn_persist *heap_;
};

} // namespace bench

#endif
