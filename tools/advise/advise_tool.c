// cairn-advise TRACE reads a trace and writes the data for `cairn advise` as JSON.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trace_reader.h>

#include "advise.h"

static const enum advise_kind kinds[] = {
    [TRACE_ALLOCATE] = ADVISE_ALLOCATE,   [TRACE_FREE] = ADVISE_FREE,
    [TRACE_RESIZE] = ADVISE_RESIZE,       [TRACE_RESIZE_FROM] = ADVISE_RESIZE_FROM,
    [TRACE_RESIZE_TO] = ADVISE_RESIZE_TO, [TRACE_RESIZE_FAILED] = ADVISE_RESIZE_FAILED,
};

// Adds the stacks that were read since the last call.
static bool learn_stacks(struct advice *advice, const struct trace *trace, uint32_t *known)
{
    for (uint32_t last = trace_stack_count(trace); *known <= last; ++*known) {
        uint64_t inner_first[TRACE_DEPTH], outer_first[TRACE_DEPTH];
        unsigned count = *known ? trace_stack(trace, *known, inner_first, NULL) : 0;
        for (unsigned i = 0; i < count; i++)
            outer_first[i] = inner_first[count - 1 - i];
        paths_add(*known, outer_first, count);
        if (!place_add(advice, *known, inner_first, count))
            return false;
    }
    return true;
}

static bool read_events(struct advice *advice, struct trace *trace)
{
    enum { AT_ONCE = 512 };
    static struct trace_event events[AT_ONCE];
    uint32_t known = 0;
    for (size_t count; (count = trace_read(trace, events, AT_ONCE)) != 0;) {
        if (!learn_stacks(advice, trace, &known))
            return false;
        for (size_t i = 0; i < count; i++) {
            const struct trace_event *event = &events[i];
            if (event->operation >= sizeof kinds / sizeof *kinds)
                continue;
            struct advise_event own = {kinds[event->operation], event->thread, event->stack,
                                       event->address,          event->size,   event->time_ns};
            advice_event(advice, &own);
        }
    }
    return true;
}

static void write_text(const char *text, FILE *file)
{
    fputs(",\n\"text\": \"", file);
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, file);
    fputs("\"", file);
}

static void write_frames(const struct trace *trace, uint32_t stack, FILE *file)
{
    uint64_t frames[TRACE_DEPTH];
    unsigned count = stack ? trace_stack(trace, stack, frames, NULL) : 0;
    fprintf(file, "\"%" PRIu32 "\": [", stack);
    for (unsigned i = 0; i < count; i++)
        fprintf(file, "%s%" PRIu64, i ? "," : "", frames[i]);
    fputs("]", file);
}

static void write_all(const struct advice *advice, const struct trace *trace)
{
    const struct trace_header *head = trace_head(trace);
    printf("{\"version\": 1, \"state\": %" PRIu32 ", \"reason\": %" PRIu32 ", \"process\": %" PRIu32
           ",\n",
           head->state, head->reason, head->process);
    advice_write(advice, stdout);
    fputs(",\n\"frames\": {", stdout);
    const char *comma = "";
    for (uint32_t i = 0; i < advice->site_count; i++) {
        const struct site *site = &advice->sites[i];
        if (!site_matters(advice, site))
            continue;
        fputs(comma, stdout);
        comma = ", ";
        write_frames(trace, site->stack, stdout);
        if (site->ancestor_stack != 0 && site->ancestor_stack != site->stack) {
            fputs(comma, stdout);
            write_frames(trace, site->ancestor_stack, stdout);
        }
    }
    fputs("}", stdout);
    write_text(trace_text(trace), stdout);
    fputs("}\n", stdout);
}

int main(int count, char **words)
{
    if (count != 2) {
        fputs("usage: cairn-advise TRACE\n", stderr);
        return 2;
    }
    char *error = NULL;
    struct trace *trace = trace_open(words[1], &error);
    if (trace == NULL) {
        fprintf(stderr, "%s\n", error);
        free(error);
        return 1;
    }
    static struct advice advice;
    bool has_stacks = trace_head(trace)->flags & TRACE_FREE_STACKS;
    if (!advice_start(&advice, has_stacks) || !read_events(&advice, trace)) {
        fprintf(stderr, "out of memory for the sites of %s\n", words[1]);
        return 1;
    }
    if (trace_error(trace) != NULL) {
        fprintf(stderr, "cannot read %s: %s\n", words[1], trace_error(trace));
        return 1;
    }
    advice_finish(&advice);
    write_all(&advice, trace);
    trace_close(trace);
    return fflush(stdout) == 0 ? 0 : 1;
}
