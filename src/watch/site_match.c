/* Sites and stacks: see site_match.h.
 *
 * Cheap things first: the place in the page, which needs no look at what is loaded; then the offset
 * in the module; and only where that fits, which build of it that is.
 *
 * A build id lies at the same offset of its module wherever that is loaded. So of two words that
 * different threads write, `id_offset` has one value only, and `mapping` decides whether it is to
 * be believed: a module that lies where one with that id has lain is mapped there. Whether it is
 * that one the id's bytes say, which are compared each time.
 */
#include "watch/site_match.h"

#include "base/atomic.h"
#include "base/text.h"

#include <string.h>

/* What was found out of a stack so far. */
struct located {
    unsigned count;
    struct os_module modules[SITE_FRAMES_MOST];
};

bool site_has_name(const struct site_module *module, const char *path)
{
    const char *name = path;
    for (; *path != '\0'; path++)
        if (*path == '/')
            name = path + 1;
    return text_equals(module->name, name);
}

static uintptr_t mapping_of(const struct os_module *module)
{
    uintptr_t mix = (module->start * 31 ^ module->end) * 0x9e3779b97f4a7c15u;
    return (mix ^ mix >> 31 ^ module->base) | 1;
}

bool site_is_module(struct site_matcher *matcher, unsigned number, const struct os_module *module)
{
    const struct site_module *wanted = &matcher->list.modules[number];
    if (wanted->id_bytes == 0)
        return site_has_name(wanted, module->path);
    struct site_known *known = &matcher->known[number];
    uintptr_t mapping = mapping_of(module);
    const unsigned char *id;
    if (load_acquire(&known->mapping) == mapping) { /* pairs with the release below */
        id = (const unsigned char *)(module->base + load_relaxed(&known->id_offset));
        return memcmp(id, wanted->id, wanted->id_bytes) == 0;
    }
    if (os_module_build_id(module, &id) != wanted->id_bytes ||
        memcmp(id, wanted->id, wanted->id_bytes) != 0)
        return false;
    store_relaxed(&known->id_offset, (uintptr_t)id - module->base);
    store_release(&known->mapping, mapping);
    return true;
}

/* The module of the frame; of those before it, too. */
static const struct os_module *locate(struct located *located, const uintptr_t *frames, unsigned i)
{
    for (; located->count <= i; located->count++) {
        uintptr_t call = frames[located->count] - 1;
        struct os_module *module = &located->modules[located->count];
        struct os_module *before = module - 1;
        if (located->count > 0 && call >= before->start && call < before->end)
            *module = *before;
        else if (!os_module_of(call, module))
            *module = (struct os_module){.path = ""};
    }
    return &located->modules[i];
}

static bool fits(struct site_matcher *matcher, const struct site *site, const uintptr_t *frames,
                 unsigned depth, struct located *located)
{
    const struct site_frame *wanted = &matcher->list.frames[site->first_frame];
    if (depth < site->depth)
        return false;
    for (unsigned i = 0; i < site->depth; i++)
        if (((frames[i] ^ wanted[i].offset) & SITE_PAGE_MASK) != 0)
            return false;
    for (unsigned i = 0; i < site->depth; i++)
        if (frames[i] - locate(located, frames, i)->base != wanted[i].offset)
            return false;
    for (unsigned i = 0; i < site->depth; i++)
        if (!site_is_module(matcher, wanted[i].module, &located->modules[i]))
            return false;
    return true;
}

int site_match(struct site_matcher *matcher, const uintptr_t *frames, unsigned depth)
{
    const struct site_list *list = &matcher->list;
    if (depth == 0 || !site_list_may_have(list, frames[0]))
        return SITE_NONE;
    struct located located;
    located.count = 0;
    for (unsigned next = list->buckets[site_bucket(frames[0])]; next != 0;
         next = list->sites[next - 1].next) {
        const struct site *site = &list->sites[next - 1];
        if (fits(matcher, site, frames, depth, &located))
            return site->group;
    }
    return SITE_NONE;
}
