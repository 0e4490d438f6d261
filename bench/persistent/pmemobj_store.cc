// libpmemobj on a plain file, where it makes changes durable by msync: one object holds all
// records, and the range of each is declared before it is written.
#include <libpmemobj.h>

#include <cstring>

#include "store.h"

namespace bench
{
namespace
{

class PmemobjStore : public Store
{
  public:
    explicit PmemobjStore(const std::string &path)
        : pool_(pmemobj_create(path.c_str(), "records", 3 * kRecords * kPageBytes, 0666))
    {
        if (pool_ == nullptr) {
            fail(std::string("pmemobj_create: ") + pmemobj_errormsg(), 0);
        }
        const PMEMoid root = pmemobj_root(pool_, kRecords * kPageBytes);
        records_ = static_cast<char *>(pmemobj_direct(root));
        check(records_ != nullptr, "pmemobj_root");
    }
    ~PmemobjStore() override { pmemobj_close(pool_); }

    void begin() override
    {
        check(pmemobj_tx_begin(pool_, nullptr, TX_PARAM_NONE) == 0, "pmemobj_tx_begin");
    }
    void update(size_t record, const char *contents) override
    {
        char *at = records_ + record * kPageBytes;
        check(pmemobj_tx_add_range_direct(at, kRecordBytes) == 0, "pmemobj_tx_add_range_direct");
        memcpy(at, contents, kRecordBytes);
    }
    void commit() override
    {
        pmemobj_tx_commit();
        check(pmemobj_tx_end() == 0, "pmemobj_tx_end");
    }

  private:
    PMEMobjpool *pool_;
    char *records_;
};

std::unique_ptr<Store> open_pmemobj(const std::string &path)
{
    return std::make_unique<PmemobjStore>(path);
}

StoreKind kind("pmemobj", open_pmemobj);

} // namespace
} // namespace bench
