// LMDB with its default settings, which are durable: a table from numbers to records.
#include <lmdb.h>

#include "store.h"

namespace bench
{
namespace
{

void check_lmdb(int error, const char *what)
{
    if (error != 0) {
        fail(std::string(what) + ": " + mdb_strerror(error), 0);
    }
}

class LmdbStore : public Store
{
  public:
    explicit LmdbStore(const std::string &path)
    {
        constexpr size_t kMapBytes = static_cast<size_t>(1) << 30;
        const std::string zero(kRecordBytes, '\0');
        check_lmdb(mdb_env_create(&environment_), "mdb_env_create");
        check_lmdb(mdb_env_set_mapsize(environment_, kMapBytes), "mdb_env_set_mapsize");
        check_lmdb(mdb_env_open(environment_, path.c_str(), MDB_NOSUBDIR, 0666), "mdb_env_open");
        begin();
        check_lmdb(mdb_dbi_open(transaction_, nullptr, MDB_INTEGERKEY, &table_), "mdb_dbi_open");
        for (size_t i = 0; i < kRecords; i++) {
            update(i, zero.data());
        }
        commit();
    }
    ~LmdbStore() override { mdb_env_close(environment_); }

    void begin() override
    {
        check_lmdb(mdb_txn_begin(environment_, nullptr, 0, &transaction_), "mdb_txn_begin");
    }
    void update(size_t record, const char *contents) override
    {
        MDB_val key = {sizeof record, &record};
        MDB_val value = {kRecordBytes, const_cast<char *>(contents)};
        check_lmdb(mdb_put(transaction_, table_, &key, &value, 0), "mdb_put");
    }
    void commit() override { check_lmdb(mdb_txn_commit(transaction_), "mdb_txn_commit"); }

  private:
    MDB_env *environment_ = nullptr;
    MDB_txn *transaction_ = nullptr;
    MDB_dbi table_ = 0;
};

std::unique_ptr<Store> open_lmdb(const std::string &path)
{
    return std::make_unique<LmdbStore>(path);
}

StoreKind kind("lmdb", open_lmdb);

} // namespace
} // namespace bench
