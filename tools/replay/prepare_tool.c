// cairn-replay-prepare makes a replay program from a trace.
//
//   cairn-replay-prepare [--site-policy FILE] TRACE PROGRAM
//
// Prints one line of key=value words about the program. Exit status 1 with a sentence when the
// trace cannot be read completely or the program cannot be written; no program is left then.
#include "prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trace_reader.h>
#include <unistd.h>

enum { BATCH = 4096 };

// Converts an event. Returns: false when the player cannot use it, as for events of later versions.
static bool convert(const struct trace_event *event, struct replay_event *to)
{
    static const signed char operations[TRACE_OPERATIONS] = {
        [TRACE_ALLOCATE] = 1 + REPLAY_ALLOC,      [TRACE_FREE] = 1 + REPLAY_FREE,
        [TRACE_RESIZE] = 1 + REPLAY_RESIZE,       [TRACE_RESIZE_FROM] = 1 + REPLAY_RESIZE_FROM,
        [TRACE_RESIZE_TO] = 1 + REPLAY_RESIZE_TO, [TRACE_RESIZE_FAILED] = 1 + REPLAY_RESIZE_FAILED,
    };
    if (event->operation >= TRACE_OPERATIONS || !operations[event->operation] || !event->address)
        return false;
    *to = (struct replay_event){
        .operation = (enum replay_operation)(operations[event->operation] - 1),
        .thread = event->thread,
        .stack = event->stack,
        .align_log2 = event->operation == TRACE_ALLOCATE ? event->alignment_log2 : 0,
        .zeroed = event->operation == TRACE_ALLOCATE && event->zeroed,
        .address = event->address,
        .size = event->size,
        .time_ns = event->time_ns,
    };
    return true;
}

static _Noreturn void give_up(const char *program, const char *trace, const char *why)
{
    unlink(program);
    fprintf(stderr, "cairn-replay-prepare: cannot read %s: %s\n", trace, why);
    exit(1);
}

static _Noreturn void give_up_policy(const char *program, const char *policies, const char *name)
{
    unlink(program);
    fprintf(stderr, "cairn-replay-prepare: %s: the trace has no block of policy %s\n", policies,
            name);
    exit(1);
}

static void read_events(struct prepare *prepare, struct trace *trace)
{
    static struct trace_event events[BATCH];
    struct replay_event event;
    uint64_t start_ns = trace_head(trace)->start_ns;
    for (size_t got; (got = trace_read(trace, events, BATCH)) > 0;)
        for (size_t at = 0; at < got; at++)
            if (convert(&events[at], &event)) {
                event.time_ns -= start_ns;
                prepare_event(prepare, &event);
            }
}

static void print_header(const struct program_header *header, const struct trace_header *head)
{
    printf("events=%llu threads=%u slots=%llu windows=%llu records=%llu waits=%llu "
           "peak_live_bytes=%llu end_live_bytes=%llu unknown=%llu lost=%llu bytes=%llu "
           "process=%u state=%u\n",
           (unsigned long long)header->events, header->threads, (unsigned long long)header->slots,
           (unsigned long long)header->windows, (unsigned long long)header->records,
           (unsigned long long)header->waits, (unsigned long long)header->peak_live_bytes,
           (unsigned long long)header->end_live_bytes, (unsigned long long)header->unknown_frees,
           (unsigned long long)header->lost_events, (unsigned long long)header->file_bytes,
           head->process, head->state);
}

int main(int argc, char **argv)
{
    int at = 1;
    static struct site_policies policies;
    if (argc > 3 && strcmp(argv[1], "--site-policy") == 0) {
        site_policies_read(&policies, argv[2]);
        at = 3;
    }
    if (argc - at != 2) {
        fputs("usage: cairn-replay-prepare [--site-policy FILE] TRACE PROGRAM\n", stderr);
        return 2;
    }
    const char *program = argv[at + 1];
    char *error;
    struct trace *trace = trace_open(argv[at], &error);
    if (!trace) {
        fprintf(stderr, "cairn-replay-prepare: %s\n", error);
        return 1;
    }
    static struct prepare prepare;
    prepare_start(&prepare, program, policies.count ? &policies : NULL);
    read_events(&prepare, trace);
    if (trace_error(trace))
        give_up(program, argv[at], trace_error(trace));
    prepare_finish(&prepare);
    if (!prepare.streams.header.events)
        give_up(program, argv[at], "the trace has no events");
    for (uint32_t policy = 0; policy < policies.count; policy++)
        if (!policies.used[policy + 1])
            give_up_policy(program, argv[2], policies.list[policy].name);
    print_header(&prepare.streams.header, trace_head(trace));
    trace_close(trace);
    return 0;
}
