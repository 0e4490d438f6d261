/* Start and end of the library: options are read when constructors run, before the program's own
 * where the loader lets us. Blocks may be asked for long before: the heap starts by itself, with
 * the built-in limits. A program that asks for none pays for none of it.
 */
#include "base/check.h"
#include "cairn/heap.h"
#include "front/control_answer.h"
#include "front/entry.h"
#include "front/options.h"
#include "front/settings.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/watch.h"

#include <errno.h>

static struct options options = {
    .pages = PAGE_LIMITS_DEFAULT,
    .trace_limit_bytes = TRACE_DEFAULT_LIMIT,
}; /* const after the constructor */

const char front_is_linked = 1;

/* What begins the lines of `verbose`. Programs that start others share one stderr, and a fork's
 * child comes to its end, too. */
enum { WHO_BYTES = 64, NAME_BYTES = 40 };

static void say_who(char *text)
{
    char name[NAME_BYTES];
    format_text(name, sizeof name, "%s", os_program_name());
    format_text(text, WHO_BYTES, "%u (%s): ", os_process_id(), name);
}

static void start_profile(void)
{
    if (options.profile_file_bytes != 0)
        (void)profile_dump_to(options.profile_file, options.profile_file_bytes,
                              options.profile_growth_bytes);
    if (options.profile_bytes != 0 && profile_start(options.profile_bytes, 0) != 0)
        report("no memory for the profile, there is none");
}

static void start_trace(void)
{
    int error = options.trace_bytes == 0
                    ? 0
                    : trace_start(options.trace, options.trace_bytes, options.trace_limit_bytes);
    if (error == -EOPNOTSUPP)
        report("no trace: this kernel wipes no memory at fork, so a child would write to its "
               "parent's");
    else if (error != 0)
        report("no trace: error %d", -error);
}

static void start_background(void)
{
    if (options.control_bytes != 0)
        (void)control_configure(options.control, options.control_bytes, control_reply);
    int error = options.background || options.control_bytes != 0 ? background_start() : 0;
    if (error != 0)
        report("no background thread: error %d", -error);
}

/* Not const: it lies with the data that are written here anyway. Read-only data are resident in
 * programs that need some. */
static char variable_name[] = "CAIRN_OPTIONS";

__attribute__((constructor(101))) static void start(void)
{
    if (&cairn_options != NULL && cairn_options != NULL)
        options_parse(&options, cairn_options, "cairn_options");
    const char *environment = os_is_secure() ? NULL : os_environment(variable_name);
    if (environment)
        options_parse(&options, environment, variable_name);
    pages_configure(&options.pages); /* the heap starts when the first block is asked for */
    if (options.watch_root_bytes != 0)
        (void)surroundings_root(options.watch_root, options.watch_root_bytes);
    if (options.soft_of_group)
        (void)surroundings_follow_soft(true);
    if (options.hard_of_group)
        (void)surroundings_follow_hard(true);
    settings_start(&options);
    if (options.sample != 0 && sample_start(options.sample) != 0)
        report("no memory for guarded blocks, none is sampled");
    start_profile();
    start_trace();
    if (options.sites_bytes != 0)
        sites_start(options.sites, options.sites_bytes);
    start_background();
    if (options.goes_on)
        heap_go_on_after_wrong_frees();
    if (options.verbose) {
        char who[WHO_BYTES];
        say_who(who);
        options_report(&options, who);
        os_keep_stderr(); /* some close it before they end */
    }
}

__attribute__((destructor(101))) static void stop(void)
{
    profile_dump_next("end");
    trace_stop();
    control_remove();
    if (!settings_are_verbose())
        return;
    char who[WHO_BYTES];
    say_who(who);
    entry_report_stats(who);
    sites_report(who);
}
