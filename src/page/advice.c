/* Where huge pages are asked for: see advice.h. */
#include "page/advice.h"

#include "os/os.h"

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
