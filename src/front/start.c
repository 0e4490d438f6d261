/* The start and the end of the library. Options are read when constructors run, before those of the
 * program if the loader allows it. Blocks may be requested long before: the heap starts by itself,
 * with its built-in limits. A program that requests no block does not start a heap.
 *
 * Threads: the loader calls start and stop once each. */
#include "base/check.h"
#include "base/text.h"
#include "cairn/heap.h"
#include "front/control.h"
#include "front/entry.h"
#include "front/options.h"
#include "front/settings.h"
#include "heap/heap.h"
#include "os/memory.h"
#include "os/process.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

static struct options options = {
    .pages = PAGE_LIMITS_DEFAULT,
    .trace_limit_bytes = TRACE_DEFAULT_LIMIT,
}; /* const after the constructor */

const char front_is_linked = 1;

enum { WHO_BYTES = 64, NAME_BYTES = 40 };

/* Writes the beginning of the lines of `verbose`: the process. Several processes may share one
 * stderr, such as programs that start others, and the children of a fork. */
static void start_say_who(char *text)
{
    char name[NAME_BYTES];
    format_text(name, sizeof name, "%s", os_program_name());
    format_text(text, WHO_BYTES, "%u (%s): ", os_process_id(), name);
}

/* Starts the profiler as the options say. A program may be given the file of its dumps and start
 * the profiler later, through the control socket. */
static void start_profile(void)
{
    bool has_file = options.profile_file.length != 0;
    if (has_file && options.profile_bytes == 0 && options.control.length == 0)
        report("option profile_file writes no dump while the profiler is off: add profile:on");
    if (options.profile_growth_bytes != 0 && !has_file && options.control.length == 0)
        report("option profile_growth writes no dump without profile_file: add profile_file:PATH");
    if (has_file)
        (void)profile_dump_to(options.profile_file.start, options.profile_file.length,
                              options.profile_growth_bytes);
    if (options.profile_bytes != 0 && profile_start(options.profile_bytes, 0) != 0)
        report("heap profiler disabled: out of memory");
}

/* Starts the tracer as the options say. */
static void start_trace(void)
{
    int error = options.trace.length == 0 ? 0
                                          : trace_start(options.trace.start, options.trace.length,
                                                        options.trace_limit_bytes);
    if (error == -EOPNOTSUPP) {
        report("tracing disabled: the kernel lacks MADV_WIPEONFORK (Linux 4.14 or later required)");
    } else if (error != 0) {
        char path[TRACE_PATH_MAX];
        memcpy(path, options.trace.start, options.trace.length);
        path[options.trace.length] = '\0';
        report("cannot create trace file %s: %s", path, text_of_error(-error));
    }
}

/* Starts the control socket and the background thread as the options say. */
static void start_background(void)
{
    if (options.control.length != 0)
        (void)control_configure(options.control.start, options.control.length, control_reply);
    int error = options.control.length != 0 ? background_start()
                : options.background        ? background_owe()
                                            : 0;
    if (error != 0)
        report("cannot start the background thread: %s", text_of_error(-error));
}

/* Not const, so that it is next to data that are written here anyway. A constant would make a page
 * of read-only data resident in each process. */
static char variable_name[] = "CAIRN_OPTIONS";

/* The constructor: reads the options and applies them. */
__attribute__((constructor(101))) static void start_library(void)
{
    if (&cairn_options != NULL && cairn_options != NULL)
        options_parse(&options, cairn_options, "cairn_options");
    const char *environment = os_is_secure() ? NULL : os_environment(variable_name);
    if (environment)
        options_parse(&options, environment, variable_name);
    pages_configure(&options.pages); /* the heap starts with the first block */
    heap_watch_threads();            /* before the program takes all keys */
    if (options.watch_root.length != 0)
        (void)memory_pressure_root(options.watch_root.start, options.watch_root.length);
    if (options.soft_of_group)
        (void)memory_pressure_follow_soft(true);
    if (options.hard_of_group)
        (void)memory_pressure_follow_hard(true);
    settings_start(&options);
    if (options.guard != 0 && guards_start(options.guard) != 0)
        report("guarded blocks disabled: cannot reserve guard pages");
    start_profile();
    start_trace();
    start_background();
    if (options.goes_on)
        heap_go_on_after_wrong_frees();
    if (options.verbose) {
        char who[WHO_BYTES];
        start_say_who(who);
        options_report(&options, who);
        os_keep_stderr(); /* some programs close it before they end */
    }
    /* After this the heap makes only the system calls that docs/HARDENING.md lists. */
    (void)os_random();
    os_end_naming();
}

/* The destructor: writes the last dump, ends the trace, removes the control socket and prints the
 * statistics. */
__attribute__((destructor(101))) static void start_stop_library(void)
{
    (void)profile_dump_next("end");
    trace_stop();
    control_remove();
    if (!settings_are_verbose())
        return;
    char who[WHO_BYTES];
    start_say_who(who);
    entry_report_stats(who);
}
