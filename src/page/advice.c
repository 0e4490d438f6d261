/* Where huge pages are asked for: see advice.h. */
#include "page/advice.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/os.h"
#include "page/span.h"

/* Beyond three quarters of it a limit is near: what the group holds beside the heap counts, too. */
static bool is_near(size_t limit_bytes, size_t bytes)
{
    return limit_bytes != 0 && bytes > limit_bytes / 4 * 3;
}

bool advice_admits(size_t counted_bytes, size_t more_bytes, size_t limit_bytes)
{
    enum { PAGE_OF_2_MIB = 4096 }; /* 2 MiB are one entry of the level above pages of 4 KiB */
    return os_page_size() == PAGE_OF_2_MIB && !is_near(limit_bytes, counted_bytes + more_bytes);
}

/* What is looked at: its start, and in the lowest bits its length in pages, or as many of them as
 * fit; 0: nothing. Racing threads may count a look or a growth too few. */
static uintptr_t watched;        /* atomic */
static unsigned looks;           /* atomic: at it, that found it not dense */
static unsigned trusted_growths; /* atomic: so many more without a look */

enum { LENGTH_MOST = (1 << PAGE_SHIFT) - 1 };

void advice_note_taken(const char *start, size_t size_bytes)
{
    if (load_relaxed(&watched) == 0)
        store_relaxed(&watched,
                      (uintptr_t)start | smaller_of(size_bytes >> PAGE_SHIFT, LENGTH_MOST));
}

static bool is_resident(uintptr_t noted)
{
    enum { PART = 16 }; /* that may be missing: what slabs and free runs have not handed out yet */
    size_t bytes = (noted & LENGTH_MOST) << PAGE_SHIFT;
    return os_resident((char *)(noted & ~(uintptr_t)LENGTH_MOST), bytes) >= bytes - bytes / PART;
}

/* Not dense yet may mean that a long run was asked for before it was filled. */
bool advice_is_dense(void)
{
    enum { GROWTHS_A_LOOK = 7, LOOKS = 4 };
    uintptr_t noted = load_relaxed(&watched);
    if (noted != 0) {
        if (is_resident(noted)) {
            store_relaxed(&trusted_growths, GROWTHS_A_LOOK);
        } else if (fetch_add_relaxed(&looks, 1u) < LOOKS - 1) {
            return false;
        }
        store_relaxed(&looks, 0u);
        store_relaxed(&watched, (uintptr_t)0);
    }
    unsigned left = load_relaxed(&trusted_growths);
    if (left == 0)
        return false;
    store_relaxed(&trusted_growths, left - 1);
    return true;
}
