/* The options: "key:value,…" from the program (cairn_options) and the environment (CAIRN_OPTIONS);
 * later wins. */
#ifndef CAIRN_FRONT_OPTIONS_H
#define CAIRN_FRONT_OPTIONS_H

#include "page/page.h"

enum {
    SAMPLE_DEFAULT_INTERVAL = 100000,
    PROFILE_DEFAULT_INTERVAL = 512 << 10,
    PROFILE_FILE_MOST = 256,
    TRACE_PATH_MAX = 900
};
#define TRACE_DEFAULT_LIMIT ((size_t)4 << 30)

struct options {
    struct page_limits pages;
    uint32_t sample;             /* one block in about so many is guarded; 0: none */
    size_t profile_bytes;        /* mean interval between samples of the profiler; 0: off */
    size_t profile_growth_bytes; /* dumps each time that live bytes grew by so much; 0: never */
    const char *profile_file;    /* where dumps go, in the text that was parsed */
    size_t profile_file_bytes;   /* its length; 0: nowhere */
    bool soft_of_group;          /* the limits are those of the control group */
    bool hard_of_group;
    bool background;        /* the background thread runs */
    const char *control;    /* path of the control socket, in the text that was parsed */
    size_t control_bytes;   /* its length; 0: none */
    const char *watch_root; /* stands before the paths of the control group's files */
    size_t watch_root_bytes;
    bool verbose;             /* settings at the start and statistics at the end, on stderr */
    bool goes_on;             /* after a wrong free, which is refused */
    const char *trace;        /* where traces go, in the text that was parsed */
    size_t trace_bytes;       /* its length; 0: nowhere */
    size_t trace_limit_bytes; /* of a trace; 0: none */
    const char *sites;        /* file of the sites, in the text that was parsed */
    size_t sites_bytes;       /* its length; 0: none */
};

/* Applies one text; each key or value that is not understood gives one warning line and changes
 * nothing. `source` names the text in warnings. */
void options_parse(struct options *options, const char *text, const char *source);

/* One key and its value. False when they are not understood; nothing has changed then. */
bool options_set(struct options *options, const char *key, const char *value);

/* One line that begins with `who`, which may be empty. */
void options_report(const struct options *options, const char *who);
const char *options_huge_pages_word(enum huge_pages huge_pages);

#endif
