// SQLite in WAL mode with synchronous=full: a table of records by number.
#include <sqlite3.h>

#include "store.h"

namespace bench
{
namespace
{

class SqliteStore : public Store
{
  public:
    explicit SqliteStore(const std::string &path)
    {
        const std::string zero(kRecordBytes, '\0');
        check_sqlite(sqlite3_open(path.c_str(), &database_), SQLITE_OK);
        run("PRAGMA page_size=4096");
        run("PRAGMA journal_mode=WAL");
        run("PRAGMA synchronous=FULL");
        run("CREATE TABLE records (number INTEGER PRIMARY KEY, contents BLOB)");
        prepare("INSERT INTO records VALUES (?2, ?1)");
        begin();
        for (size_t i = 0; i < kRecords; i++) {
            update(i, zero.data());
        }
        commit();
        sqlite3_finalize(statement_);
        prepare("UPDATE records SET contents = ?1 WHERE number = ?2");
    }
    ~SqliteStore() override
    {
        sqlite3_finalize(statement_);
        sqlite3_close(database_);
    }

    void begin() override { run("BEGIN IMMEDIATE"); }
    void update(size_t record, const char *contents) override
    {
        check_sqlite(sqlite3_bind_blob(statement_, 1, contents, kRecordBytes, SQLITE_STATIC),
                     SQLITE_OK);
        check_sqlite(sqlite3_bind_int64(statement_, 2, static_cast<sqlite3_int64>(record)),
                     SQLITE_OK);
        check_sqlite(sqlite3_step(statement_), SQLITE_DONE);
        check_sqlite(sqlite3_reset(statement_), SQLITE_OK);
    }
    void commit() override { run("COMMIT"); }

  private:
    void check_sqlite(int result, int wanted)
    {
        if (result != wanted) {
            fail(std::string("sqlite: ") + sqlite3_errmsg(database_), 0);
        }
    }
    void run(const char *text)
    {
        check_sqlite(sqlite3_exec(database_, text, nullptr, nullptr, nullptr), SQLITE_OK);
    }
    void prepare(const char *text)
    {
        check_sqlite(sqlite3_prepare_v2(database_, text, -1, &statement_, nullptr), SQLITE_OK);
    }

    sqlite3 *database_ = nullptr;
    sqlite3_stmt *statement_ = nullptr;
};

std::unique_ptr<Store> open_sqlite(const std::string &path)
{
    return std::make_unique<SqliteStore>(path);
}

StoreKind kind("sqlite", open_sqlite);

} // namespace
} // namespace bench
