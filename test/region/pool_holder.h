// Helpers of the tests of the pool.
#ifndef TEST_REGION_POOL_HOLDER_H
#define TEST_REGION_POOL_HOLDER_H

#include <cstdint>
#include <cstdio>
#include <string>

#include "cairn/pool.h"

namespace pool_test
{

// A pool that is deleted at the end of its scope.
class Pool
{
  public:
    Pool(size_t size, size_t align, bool shared = false)
    {
        cairn_pool_options options = {};
        options.shared = shared;
        pool_ = cairn_pool_new(size, align, &options);
    }
    ~Pool() { cairn_pool_delete(pool_); }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    cairn_pool *get() const { return pool_; }
    operator cairn_pool *() const { return pool_; }

  private:
    cairn_pool *pool_;
};

inline cairn_pool_stats stats(cairn_pool *pool)
{
    cairn_pool_stats stats;
    cairn_pool_read_stats(pool, &stats);
    return stats;
}

// The verdict of the verifier: "" when the pool is sound.
inline std::string fault(cairn_pool *pool)
{
    const char *text = cairn_pool_check(pool);
    return text ? text : "";
}

inline std::string hex(const void *pointer)
{
    char text[32];
    snprintf(text, sizeof text, "0x%zx", reinterpret_cast<uintptr_t>(pointer));
    return text;
}

} // namespace pool_test

#endif
