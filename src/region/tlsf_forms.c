/* The forms of TLSF's allocation beside the plain one. No state. Threading: as the heap. */
#include "region/tlsf.h"
#include "region/tlsf_host.h"

static void *get(struct cairn_tlsf *heap, void *pointer, size_t size, size_t align)
{
    struct tlsf_request request = {pointer, size, align};
    void *memory = tlsf_request_meet(heap, &request);
    return likely(memory != NULL) ? memory : tlsf_request_again(heap, pointer, size, align);
}

api void cairn_tlsf_set_out_of_memory(struct cairn_tlsf *heap,
                                      bool (*out_of_memory)(void *context, size_t size_bytes),
                                      void *context)
{
    heap->out_of_memory = out_of_memory;
    heap->out_of_memory_context = context;
}

api void *cairn_tlsf_alloc_zero(struct cairn_tlsf *heap, size_t size)
{
    void *memory = cairn_tlsf_alloc(heap, size);
    return memory != NULL ? __builtin_memset(memory, 0, size) : NULL;
}

api void *cairn_tlsf_alloc_array(struct cairn_tlsf *heap, size_t count, size_t size)
{
    return cairn_tlsf_alloc(heap, tlsf_total_of(count, size));
}

api void *cairn_tlsf_alloc_array_zero(struct cairn_tlsf *heap, size_t count, size_t size)
{
    return cairn_tlsf_alloc_zero(heap, tlsf_total_of(count, size));
}

api void *cairn_tlsf_alloc_aligned(struct cairn_tlsf *heap, size_t size, size_t align)
{
    if (unlikely(!is_power_of_two(align))) {
        tlsf_note_invalid();
        return NULL;
    }
    return get(heap, NULL, size, align);
}

api void *cairn_tlsf_realloc(struct cairn_tlsf *heap, void *pointer, size_t size)
{
    return get(heap, pointer, size, TLSF_GRAIN_BYTES);
}
