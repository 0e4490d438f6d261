/* The persistent heap's named roots: a list of blocks of the heap itself, newest first.
 *
 * Threading: heap->lock. A damaged list ends where it leads out of the heap.
 */
#include "region/persist_heap.h"
#include "region/tlsf_block.h"

#include <errno.h>

enum { ROOT_ALIGN_BYTES = 16 };

static bool is_inside(const struct cairn_persist *heap, const void *address, size_t size_bytes)
{
    uintptr_t offset = (uintptr_t)address - (uintptr_t)heap->base;
    return offset <= heap->mapped_bytes && heap->mapped_bytes - offset >= size_bytes;
}

/* What a link leads to; NULL at the end. */
static struct persist_root *follow(const struct cairn_persist *heap, const cairn_offset *link)
{
    struct persist_root *root = cairn_offset_get(link);
    bool sound = root != NULL && (uintptr_t)root % ROOT_ALIGN_BYTES == 0 &&
                 is_inside(heap, root, sizeof *root) && root->name_bytes <= PERSIST_NAME_MOST &&
                 is_inside(heap, root, sizeof *root + root->name_bytes + 1);
    return sound ? root : NULL;
}

static size_t length_of(const char *name)
{
    size_t length = 0;
    while (length <= PERSIST_NAME_MOST && name[length] != '\0')
        length++;
    return length;
}

/* The link that leads to the root of that name, or to the end of the list. */
static cairn_offset *find(const struct cairn_persist *heap, const char *name)
{
    struct persist_state *state = persist_state_of(heap);
    size_t length = length_of(name);
    cairn_offset *link = &state->roots;
    struct persist_root *root;
    for (uint64_t left = state->root_count; left > 0; left--, link = &root->next) {
        root = follow(heap, link);
        if (root == NULL ||
            (root->name_bytes == length && __builtin_memcmp(root->name, name, length) == 0))
            break;
    }
    return link;
}

static int add(struct cairn_persist *heap, const char *name, const void *block)
{
    size_t length = length_of(name);
    struct persist_root *root = persist_allocate(heap, sizeof *root + length + 1, ROOT_ALIGN_BYTES);
    if (root == NULL)
        return ENOMEM;
    struct persist_state *state = persist_state_of(heap);
    root->name_bytes = length;
    __builtin_memcpy(root->name, name, length);
    root->name[length] = '\0';
    cairn_offset_set(&root->block, block);
    cairn_offset_set(&root->next, cairn_offset_get(&state->roots));
    cairn_offset_set(&state->roots, root);
    state->root_count++;
    return 0;
}

static int set(struct cairn_persist *heap, const char *name, const void *block)
{
    struct persist_root *root = follow(heap, find(heap, name));
    if (root == NULL)
        return add(heap, name, block);
    cairn_offset_set(&root->block, block);
    return 0;
}

api int cairn_persist_set_root(struct cairn_persist *heap, const char *name, void *block)
{
    size_t length = length_of(name);
    if (length == 0 || length > PERSIST_NAME_MOST || (block != NULL && !is_inside(heap, block, 1)))
        return EINVAL;
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return EROFS;
    int saved = errno;
    fork_lock_acquire(&heap->lock);
    int error = set(heap, name, block);
    fork_lock_release(&heap->lock);
    errno = saved;
    return error;
}

api void *cairn_persist_get_root(struct cairn_persist *heap, const char *name)
{
    fork_lock_acquire(&heap->lock);
    const struct persist_root *root = follow(heap, find(heap, name));
    void *block = root ? cairn_offset_get(&root->block) : NULL;
    fork_lock_release(&heap->lock);
    return block;
}

api int cairn_persist_remove_root(struct cairn_persist *heap, const char *name)
{
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return EROFS;
    fork_lock_acquire(&heap->lock);
    cairn_offset *link = find(heap, name);
    struct persist_root *root = follow(heap, link);
    if (root != NULL) {
        cairn_offset_set(link, cairn_offset_get(&root->next));
        persist_free(heap, root);
        persist_state_of(heap)->root_count--;
    }
    fork_lock_release(&heap->lock);
    return root != NULL ? 0 : ENOENT;
}

api void cairn_persist_walk_roots(struct cairn_persist *heap, cairn_persist_visit *visit,
                                  void *context)
{
    fork_lock_acquire(&heap->lock);
    const cairn_offset *link = &persist_state_of(heap)->roots;
    for (uint64_t left = persist_state_of(heap)->root_count; left > 0; left--) {
        const struct persist_root *root = follow(heap, link);
        if (root == NULL || !visit(root->name, cairn_offset_get(&root->block), context))
            break;
        link = &root->next;
    }
    fork_lock_release(&heap->lock);
}

/* Whether TLSF gave it out. */
static bool is_block(const struct cairn_persist *heap, const void *address)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    place at = place_of(tlsf, address) - BLOCK_WORD_BYTES;
    return place_is_within(tlsf, at) &&
           word_matches(block_at(tlsf, at)->word, at, 0, BLOCK_FREE | BLOCK_END);
}

const char *persist_check_roots(const struct cairn_persist *heap)
{
    const cairn_offset *link = &persist_state_of(heap)->roots;
    for (uint64_t left = persist_state_of(heap)->root_count; left > 0; left--) {
        const struct persist_root *root = follow(heap, link);
        if (root == NULL || !is_block(heap, root) || root->name_bytes == 0 ||
            root->name[root->name_bytes] != '\0')
            return "the list of roots is broken";
        const void *block = cairn_offset_get(&root->block);
        if (block != NULL && !is_inside(heap, block, 1))
            return "a root leads out of the heap";
        link = &root->next;
    }
    return link->distance == 0 ? NULL : "the roots are not those counted";
}
