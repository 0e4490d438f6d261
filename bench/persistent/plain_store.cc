// The lower bound: pwrite of the number of pages, adjacent, to a file that has its size and its
// disk blocks already, and one fdatasync. The file is no state that could be read again.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "store.h"

namespace bench
{
namespace
{

constexpr size_t kFileBytes = 64 << 20;

class PlainStore : public Store
{
  public:
    explicit PlainStore(const std::string &path)
        : file_(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666))
    {
        if (file_ < 0) {
            fail(path, errno);
        }
        buffer_.resize(kFileBytes);
        used_ = kFileBytes;
        commit();
    }
    ~PlainStore() override { close(file_); }

    void begin() override { used_ = 0; }
    void update(size_t, const char *contents) override
    {
        memcpy(buffer_.data() + used_, contents, kRecordBytes);
        used_ += kPageBytes;
    }
    void commit() override
    {
        if (offset_ + used_ > kFileBytes) {
            offset_ = 0;
        }
        ssize_t done = pwrite(file_, buffer_.data(), used_, static_cast<off_t>(offset_));
        check(done == static_cast<ssize_t>(used_), "pwrite");
        check(fdatasync(file_) == 0, "fdatasync");
        offset_ += used_;
    }

  private:
    int file_;
    std::vector<char> buffer_;
    size_t used_ = 0;
    size_t offset_ = 0;
};

std::unique_ptr<Store> open_plain(const std::string &path)
{
    return std::make_unique<PlainStore>(path);
}

StoreKind kind("pwrite", open_plain);

} // namespace
} // namespace bench
