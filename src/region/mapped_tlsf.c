/* A TLSF heap of a fixed size over one mapping of its own.
 *
 * The mapping is the heap's for its life: no more is ever asked for, none given back before the
 * end. State: none beside the heap. Threading: as the heap; new and delete from any thread.
 */
#include "os/os.h"
#include "region/tlsf_fault.h"
#include "region/tlsf_region.h"

#include "base/check.h"

#include <errno.h>

enum { HUGE_PAGES_FROM_BYTES = 2 << 20 };

static_check(TLSF_EBUSY == EBUSY && TLSF_EINVAL == EINVAL && TLSF_EFBIG == EFBIG,
             "the core's error numbers are libc's");

api struct cairn_tlsf *cairn_tlsf_new(size_t size)
{
    os_init();
    size = align_up(cairn_tlsf_bytes_for(size != 0 ? size : CAIRN_TLSF_NEW_BYTES), os_page_size());
    void *memory = size != 0 ? os_map(size) : NULL;
    if (memory == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    os_name(memory, size, "cairn tlsf");
    if (size >= HUGE_PAGES_FROM_BYTES)
        (void)os_huge_pages(memory, size, true);
    struct cairn_tlsf *heap = cairn_tlsf_init(memory, size);
    heap->mapped_bytes = size;
    return heap;
}

api int cairn_tlsf_delete(struct cairn_tlsf *heap)
{
    if (heap == NULL)
        return 0;
    if (heap->magic != TLSF_MAGIC || heap->mapped_bytes == 0)
        die("TLSF delete of %p, which is not a heap of cairn_tlsf_new", (void *)heap);
    if (heap->shared != 0)
        return EBUSY; /* fork holds a lock that lies in it */
    (void)os_unmap(heap, heap->mapped_bytes);
    return 0;
}
