/* Whether a stack is one of the sites of a list. Return addresses are located by the C library's
 * table of what is loaded, so a library that was loaded later, or again at another place, is known
 * at once, and nothing is to be done when one is.
 *
 * Threading: any; async-signal-safe. What is remembered are hints, checked with each use.
 */
#ifndef CAIRN_WATCH_SITE_MATCH_H
#define CAIRN_WATCH_SITE_MATCH_H

#include "watch/site_list.h"

#include "os/os.h"

/* Where the build id of a file's module was seen last. Zero at first. */
struct site_known {
    uintptr_t mapping;   /* atomic: a mix of where the module lay; 0: nowhere yet */
    uintptr_t id_offset; /* atomic, written before: of its build id in it, the same in each place */
};

struct site_matcher {
    struct site_list list;
    struct site_known known[SITE_MODULES_MOST];
};

enum { SITE_NONE = -1 };

/* The group of the stack, innermost frame first, or SITE_NONE. */
int site_match(struct site_matcher *matcher, const uintptr_t *frames, unsigned depth);

/* Whether the module is that of the list, by its build id, or by its name where the file has none;
 * and the latter alone. */
bool site_is_module(struct site_matcher *matcher, unsigned number, const struct os_module *module);
bool site_has_name(const struct site_module *module, const char *path);

#endif
