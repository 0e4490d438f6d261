// Random use of cairn/pages.h against a shadow that knows every mapped page and its content.

#include <map>
#include <utility>
#include <vector>

#include "cairn/pages.h"
#include "frame/frame_kit.h"

namespace pages_model_test
{

using namespace frame_kit;

constexpr size_t kPage = 4096;

class PagesModel
{
  public:
    explicit PagesModel(uint64_t seed) : random_(seed) {}
    ~PagesModel()
    {
        while (!shadow_.empty())
            unmap(shadow_.begin()->first, 1);
    }

    void step()
    {
        switch (shadow_.size() > kMostPages ? 3 : random_.below(6)) {
        case 0:
        case 1:
            map();
            break;
        case 2:
            remap();
            break;
        case 5:
            if (random_.below(50) == 0)
                cairn_pages_purge(random_.below(2) * kMiB);
            break;
        default:
            unmap_some();
        }
    }

    void verify() const
    {
        for (const auto &[page, tag] : shadow_)
            ASSERT_TRUE(is_written(page, tag)) << "page " << page;
    }

  private:
    static constexpr size_t kMostPages = 20000;

    // The first and the last 32 bytes of a page identify the run that it belongs to.
    static void write(uintptr_t page, uint64_t tag)
    {
        paint(reinterpret_cast<void *>(page), 32, tag);
        paint(reinterpret_cast<void *>(page + kPage - 32), 32, tag + 1);
    }
    static bool is_written(uintptr_t page, uint64_t tag)
    {
        return is_painted(reinterpret_cast<void *>(page), 32, tag) &&
               is_painted(reinterpret_cast<void *>(page + kPage - 32), 32, tag + 1);
    }
    static bool is_zero(uintptr_t page)
    {
        const auto *bytes = reinterpret_cast<const char *>(page);
        return bytes[0] == 0 && memcmp(bytes, bytes + 1, kPage - 1) == 0;
    }

    // Mostly single pages, some runs, and a few mappings of their own.
    size_t random_pages()
    {
        if (random_.below(300) == 0)
            return 32 * kMiB / kPage + random_.below(100);
        return random_.below(2) ? 1 : 1 + random_.below(random_.below(5) ? 8 : 300);
    }

    // Records pages that were just mapped: no other run has them, and they are zero if that was
    // requested.
    void enter(uintptr_t start, size_t pages, bool zero)
    {
        for (uintptr_t page = start; page < start + pages * kPage; page += kPage) {
            if (zero) {
                ASSERT_TRUE(is_zero(page)) << "page " << page;
            }
            ASSERT_TRUE(shadow_.emplace(page, ++tag_).second) << "mapped twice: " << page;
            write(page, tag_);
        }
    }

    void map()
    {
        const size_t pages = random_pages();
        const size_t align = kPage << random_.below(random_.below(10) ? 1 : 8);
        const unsigned flags = random_.below(3) ? 0 : CAIRN_PAGES_ZERO;
        auto start = reinterpret_cast<uintptr_t>(cairn_pages_map(pages * kPage, align, flags));
        ASSERT_NE(start, 0u);
        ASSERT_EQ(start % align, 0u);
        enter(start, pages, flags != 0);
    }

    // A random mapped page, and the number of adjacent mapped pages from it on, at most `most`.
    std::pair<uintptr_t, size_t> range(size_t most)
    {
        auto at = shadow_.lower_bound(last_ + random_.below(64 * kMiB));
        if (at == shadow_.end())
            at = shadow_.begin();
        last_ = at->first;
        size_t pages = 0;
        while (pages < most && shadow_.count(last_ + pages * kPage) != 0)
            pages++;
        return {last_, pages};
    }

    void unmap(uintptr_t start, size_t pages)
    {
        ASSERT_EQ(cairn_pages_unmap(reinterpret_cast<void *>(start), pages * kPage), 0);
        shadow_.erase(shadow_.find(start), shadow_.lower_bound(start + pages * kPage));
    }

    void unmap_some()
    {
        if (shadow_.empty())
            return;
        auto [start, pages] = range(random_.below(4) ? 1 : random_pages());
        unmap(start, pages);
    }

    void remap()
    {
        if (shadow_.empty())
            return;
        auto [start, old_pages] = range(random_pages());
        const size_t new_pages = random_pages();
        const unsigned flags = random_.below(2) ? 0 : CAIRN_PAGES_ZERO;
        std::vector<uint64_t> tags;
        for (size_t i = 0; i < old_pages; i++)
            tags.push_back(shadow_[start + i * kPage]);
        shadow_.erase(shadow_.find(start), shadow_.lower_bound(start + old_pages * kPage));
        auto to = reinterpret_cast<uintptr_t>(
            cairn_pages_remap(reinterpret_cast<void *>(start), old_pages * kPage,
                              new_pages * kPage, kPage, flags));
        ASSERT_NE(to, 0u);
        const size_t kept = old_pages < new_pages ? old_pages : new_pages;
        for (size_t i = 0; i < kept; i++) {
            ASSERT_TRUE(is_written(to + i * kPage, tags[i])) << i << " of " << kept;
            ASSERT_TRUE(shadow_.emplace(to + i * kPage, tags[i]).second);
        }
        enter(to + kept * kPage, new_pages - kept, flags != 0);
    }

    Random random_;
    std::map<uintptr_t, uint64_t> shadow_; // mapped pages, and the tag written in each
    uint64_t tag_ = 0;
    uintptr_t last_ = 0;
};

TEST(PagesModel, RandomUse)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        PagesModel model(seed);
        for (int i = 0; i < 6000 && !testing::Test::HasFatalFailure(); i++) {
            model.step();
            if (i % 500 == 0) {
                model.verify();
                pages_verify();
            }
        }
        model.verify();
    }
}

} // namespace pages_model_test
