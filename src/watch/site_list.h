/* The sites that a file names, and their groups: the text of `sites:FILE`. docs/SITES.md has the
 * format.
 *
 * A site is a stack: the frames that tell it apart, innermost first, each as a module and an
 * offset in it, so that it holds wherever the module is loaded. Only the lowest bits of an
 * address, those of its page, stay the same: by them of its innermost frame a site is found.
 *
 * Invariants: modules, groups and frames that a site names come before it and stay; the sites of
 * a bucket are linked in the order of the file, and the first one that fits counts.
 *
 * Threading: const after it was read.
 */
#ifndef CAIRN_WATCH_SITE_LIST_H
#define CAIRN_WATCH_SITE_LIST_H

#include "base/compiler.h"

enum {
    SITES_MOST = 1024,
    SITE_FRAMES_MOST = 32, /* of a site */
    SITE_ALL_FRAMES = 8192,
    SITE_MODULES_MOST = 64,
    SITE_GROUPS_MOST = 32,
    SITE_NAME_MOST = 64, /* of a group or a module, with the zero byte */
    SITE_ID_MOST = 32,   /* bytes of a build id */
    SITE_BUCKETS = 256,
    SITE_PAGE_MASK = 4095, /* no page is smaller */
};

struct site_module {
    char name[SITE_NAME_MOST]; /* of its file, without the folder */
    unsigned char id[SITE_ID_MOST];
    uint8_t id_bytes; /* 0: any build */
};

struct site_frame {
    uint64_t offset;
    uint32_t module; /* its number in `modules` */
};

struct site {
    uint32_t first_frame; /* in `frames` */
    uint16_t next;        /* 1 + number of the next one in its bucket; 0: none */
    uint8_t depth;
    uint8_t group;
};

struct site_list {
    unsigned modules_count, groups_count, sites_count, frames_count;
    unsigned depth;   /* frames of the longest site */
    unsigned refused; /* lines */
    uint64_t
        places[(SITE_PAGE_MASK + 1) / 64]; /* a bit for each place in a page where one begins */
    uint16_t buckets[SITE_BUCKETS];        /* 1 + number of the first site; 0: none */
    uint32_t module_numbers[SITE_MODULES_MOST]; /* in the file */
    struct site_module modules[SITE_MODULES_MOST];
    char groups[SITE_GROUPS_MOST][SITE_NAME_MOST];
    struct site sites[SITES_MOST];
    struct site_frame frames[SITE_ALL_FRAMES];
};

/* Reads a text, of `length` bytes, into an empty list. Each line that is not understood gives a
 * line of report, up to a few, and is left out; `path` names the text there. False: it is no text
 * of sites, or of another version, which was said. */
bool site_list_read(struct site_list *list, const char *text, size_t length, const char *path);

inline_always unsigned site_bucket(uintptr_t address)
{
    return (unsigned)((address & SITE_PAGE_MASK) * 61 >> 2) % SITE_BUCKETS;
}

/* Whether a site may begin with a call that returns there. */
inline_always bool site_list_may_have(const struct site_list *list, uintptr_t address)
{
    uintptr_t place = address & SITE_PAGE_MASK;
    return (list->places[place / 64] >> place % 64 & 1) != 0;
}

#endif
