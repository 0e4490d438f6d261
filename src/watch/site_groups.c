/* The groups of `sites:FILE`: a first-class heap for each, which serves the blocks of its sites.
 * docs/SITES.md says what it is for; heap/by_site.h, when a block is an ordinary one all the same.
 *
 * A malloc walks its own first frame only, to the call that it returns to. Where no site begins
 * with a call at such a place in its page, that is all.
 *
 * Memory: the list, mapped once, and the groups' heaps, all made at the start; nothing more grows.
 *
 * Threading: const after the start, but for counts, which are sums. Fork: the child has it all.
 */
#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/site_match.h"
#include "watch/watch.h"

enum { TEXT_MOST = 1 << 20 };

static struct site_matcher *matcher;                 /* const after sites_start; NULL: off */
static struct program_heap *heaps[SITE_GROUPS_MOST]; /* likewise */
static uint64_t found[SITE_GROUPS_MOST];             /* atomic: allocations at their sites */

static struct program_heap *find(void)
{
    uintptr_t frames[SITE_FRAMES_MOST];
    frames[0] = os_caller();
    if (frames[0] == 0 || !site_list_may_have(&matcher->list, frames[0]))
        return NULL;
    unsigned depth = matcher->list.depth > 1 ? os_stack(frames, matcher->list.depth, 0) : 1;
    int group = site_match(matcher, frames, depth);
    if (group == SITE_NONE)
        return NULL;
    fetch_add_relaxed(&found[group], (uint64_t)1);
    return heaps[group];
}

/* The file's text, mapped; NULL: there is none, which was said. */
static char *read_text(const char *path, size_t *length)
{
    int file = os_file_open(path, OS_FILE_READ);
    int64_t size = file < 0 ? file : os_file_size(file);
    char *text = NULL;
    if (size > TEXT_MOST) {
        report("no sites: %s is longer than a file of sites may be", path);
    } else if (size >= 0) {
        *length = (size_t)size;
        text = os_map(align_up((size_t)size + 1, os_page_size()));
        if (text == NULL)
            report("no sites: no memory");
        else if ((size = os_file_read(file, text, *length, 0)) != 0)
            (void)os_unmap(text, align_up(*length + 1, os_page_size()));
    }
    if (size < 0) {
        report("no sites: %s: error %d", path, (int)-size);
        text = NULL;
    }
    os_file_close(file < 0 ? -1 : file);
    return text;
}

static bool read_list(const char *path)
{
    size_t length = 0;
    char *text = read_text(path, &length);
    if (text == NULL)
        return false;
    struct site_list *list = &matcher->list;
    bool read = site_list_read(list, text, length, path);
    (void)os_unmap(text, align_up(length + 1, os_page_size()));
    if (read && list->sites_count == 0)
        report("sites: %s names no site", path);
    return read && list->sites_count != 0;
}

/* A program that was built anew has other offsets: nobody would see that its sites are none. */
static void look_at_program(const char *path)
{
    struct os_module program;
    const struct site_list *list = &matcher->list;
    if (!os_module_of_program(&program))
        return;
    for (unsigned i = 0; i < list->modules_count; i++)
        if (site_has_name(&list->modules[i], program.path) && !site_is_module(matcher, i, &program))
            report("sites: %s is for another build of %s", path, program.path);
}

static bool make_heaps(void)
{
    static const struct program_options options = {.of_sites = true};
    for (unsigned i = 0; i < matcher->list.groups_count; i++)
        if ((heaps[i] = program_make(&options)) == NULL)
            return false;
    return true;
}

/* Whether stacks can be told apart here. */
static bool can_serve(void)
{
    struct os_module own;
    if (!os_module_of((uintptr_t)&can_serve, &own)) {
        report("no sites: this C library does not say what code is from");
        return false;
    }
    if (own.is_program) {
        report("no sites: Cairn is linked into the program; preload libcairn-malloc.so instead");
        return false;
    }
    return true;
}

void sites_start(const char *path, size_t length_bytes)
{
    char name[SITES_PATH_MOST];
    heap_start();
    if (matcher != NULL || length_bytes >= sizeof name || !can_serve())
        return;
    for (size_t i = 0; i < length_bytes; i++)
        name[i] = path[i];
    name[length_bytes] = '\0';
    size_t matcher_bytes = align_up(sizeof *matcher, os_page_size());
    matcher = os_map(matcher_bytes);
    if (matcher == NULL) {
        report("no sites: no memory");
    } else if (!read_list(name)) {
        (void)os_unmap(matcher, matcher_bytes);
        matcher = NULL;
    } else if (!make_heaps()) {
        report("no sites: no memory");
    } else {
        look_at_program(name);
        os_stack_prepare();
        heap_serve_sites(find);
    }
}

void sites_report(const char *who)
{
    for (unsigned i = 0; matcher != NULL && i < matcher->list.groups_count; i++)
        report("%ssites: group %s: %zu blocks", who, matcher->list.groups[i],
               (size_t)load_relaxed(&found[i]));
}
