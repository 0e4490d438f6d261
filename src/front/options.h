/* The options: "key:value,…", first from the program (cairn_options), then from the environment
 * (CAIRN_OPTIONS); a later value replaces an earlier one. docs/reference/OPTIONS.md documents them.
 * This module parses and prints options; settings.h and start.c apply them.
 *
 * Threads: any, each with its own struct options. */
#ifndef CAIRN_FRONT_OPTIONS_H
#define CAIRN_FRONT_OPTIONS_H

#include "page/page.h"

enum {
    GUARD_DEFAULT_INTERVAL = 100000,
    PROFILE_DEFAULT_INTERVAL = 512 << 10,
    PROFILE_FILE_MAX = 256,
    TRACE_PATH_MAX = 900
};
#define TRACE_DEFAULT_LIMIT ((size_t)4 << 30)

/* A text without a final zero; it is a part of the text that was parsed. */
struct option_text {
    const char *start;
    size_t length; /* in bytes; 0: none */
};

/* The values of all options. */
struct options {
    struct page_limits pages;
    uint32_t guard;                  /* about one block in this many is guarded; 0: none */
    size_t profile_bytes;            /* mean interval between samples of the profiler; 0: off */
    size_t profile_growth_bytes;     /* a dump each time that live bytes grew by this; 0: none */
    struct option_text profile_file; /* prefix of the files of dumps */
    bool soft_of_group;              /* the soft limit follows the control group */
    bool hard_of_group;              /* the hard limit follows the control group */
    bool background;                 /* the background thread runs */
    struct option_text control;      /* path of the control socket */
    struct option_text watch_root;   /* prefix of the paths of the control group's files */
    bool verbose;                    /* prints settings at the start and statistics at the end */
    bool goes_on;                    /* the process continues after a wrong free */
    struct option_text trace;        /* prefix of the files of traces */
    size_t trace_limit_bytes;        /* limit of a trace; 0: none */
};

/* Applies a text of options. Each key or value that is not understood causes one warning and
 * changes nothing. `source` names the text in warnings. */
void options_parse(struct options *options, const char *text, const char *source);

/* Sets one option.
 *
 * Returns: false if the key or the value is not understood; then nothing has changed. */
bool options_set(struct options *options, const char *key, const char *value);

/* Prints the options in one line that begins with `who`, which may be empty. */
void options_report(const struct options *options, const char *who);

/* Returns the text of a value of the option huge_pages. */
const char *options_huge_pages_word(enum huge_pages huge_pages);

#endif
