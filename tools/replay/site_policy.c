// Reads the file of --site-policy.
#include "site_policy.h"

#include "live.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *path;
    unsigned line;
};

__attribute__((format(printf, 2, 3))) static _Noreturn void refuse(const struct reader *reader,
                                                                   const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "cairn-replay-prepare: %s:%u: ", reader->path, reader->line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

// clang-format off
static const struct verdict {
    const char *word;
    enum policy_kind kind;
    int argument; // 0: not allowed, 1: optional, 2: required
} verdicts[] = {
    {"heap", POLICY_HEAP, 0},       {"stack", POLICY_STACK, 0},     {"scope", POLICY_SCOPE, 0},
    {"fifo", POLICY_FIFO, 0},       {"ring", POLICY_RING, 1},       {"pool", POLICY_POOL, 2},
    {"reserve", POLICY_RESERVE, 2}, {"temporary", POLICY_TEMPORARY, 0},
};
// clang-format on

static uint64_t parse_number(const struct reader *reader, const char *text, char **end,
                             uint64_t most)
{
    errno = 0;
    unsigned long long number = strtoull(text, end, 10);
    if (errno || *end == text || *text < '0' || *text > '9' || number > most)
        refuse(reader, "%s is not a number up to %llu", text, (unsigned long long)most);
    return number;
}

static void parse_verdict(const struct reader *reader, char *text, struct program_policy *policy)
{
    char *argument = strchr(text, ':');
    if (argument)
        *argument++ = '\0';
    for (size_t at = 0; at < sizeof verdicts / sizeof *verdicts; at++) {
        if (strcmp(text, verdicts[at].word) != 0)
            continue;
        if (argument ? verdicts[at].argument == 0 : verdicts[at].argument == 2)
            refuse(reader, argument ? "%s takes no number" : "%s needs a number: %s:N", text, text);
        policy->kind = verdicts[at].kind;
        if (argument) {
            char *end;
            policy->argument = parse_number(reader, argument, &end, (uint64_t)1 << 40);
            if (*end || !policy->argument)
                refuse(reader, "%s:%s: N is a number above 0", text, argument);
        }
        return;
    }
    refuse(reader, "%s is not a verdict", text);
}

static void set_stacks(const struct reader *reader, struct site_policies *policies, char *text)
{
    char *end;
    uint64_t first = parse_number(reader, text, &end, SITE_STACKS_MOST), last = first;
    if (*end == '-')
        last = parse_number(reader, end + 1, &end, SITE_STACKS_MOST);
    if (*end || last < first)
        refuse(reader, "%s is neither a stack's number nor a range of them", text);
    if (last >= policies->stacks) {
        uint32_t stacks = (uint32_t)last + 1024;
        policies->of_stack = resize_array(policies->of_stack, stacks, sizeof *policies->of_stack);
        memset(policies->of_stack + policies->stacks, 0,
               (stacks - policies->stacks) * sizeof *policies->of_stack);
        policies->stacks = stacks;
    }
    for (uint64_t stack = first; stack <= last; stack++) {
        if (policies->of_stack[stack])
            refuse(reader, "stack %llu has a policy already", (unsigned long long)stack);
        policies->of_stack[stack] = (uint16_t)policies->count;
    }
}

static void parse_line(const struct reader *reader, struct site_policies *policies, char *line)
{
    static const char spaces[] = " \t\r\n";
    char *rest, *name = strtok_r(line, spaces, &rest);
    if (!name)
        return;
    char *verdict = strtok_r(NULL, spaces, &rest), *stack = strtok_r(NULL, spaces, &rest);
    if (!verdict || !stack)
        refuse(reader, "a policy is NAME VERDICT STACK…");
    if (policies->count == SITE_POLICIES_MOST)
        refuse(reader, "more than %d policies", SITE_POLICIES_MOST);
    policies->list = resize_array(policies->list, policies->count + 1, sizeof *policies->list);
    struct program_policy *policy = &policies->list[policies->count++];
    *policy = (struct program_policy){0};
    if (strlen(name) >= sizeof policy->name)
        refuse(reader, "the name %s is longer than %zu bytes", name, sizeof policy->name - 1);
    memcpy(policy->name, name, strlen(name));
    parse_verdict(reader, verdict, policy);
    for (; stack; stack = strtok_r(NULL, spaces, &rest))
        set_stacks(reader, policies, stack);
}

void site_policies_read(struct site_policies *policies, const char *path)
{
    struct reader reader = {.path = path};
    *policies = (struct site_policies){0};
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "cairn-replay-prepare: cannot open %s: %s\n", path, strerror(errno));
        exit(1);
    }
    char *line = NULL;
    size_t capacity = 0;
    bool begun = false;
    while (getline(&line, &capacity, file) > 0) {
        reader.line++;
        line[strcspn(line, "#\n")] = '\0';
        if (begun)
            parse_line(&reader, policies, line);
        else if (*line && strcmp(line, "site-policy 1") != 0)
            refuse(&reader, "the first line is not `site-policy 1`");
        begun = begun || *line;
    }
    if (!begun)
        refuse(&reader, "the file is empty");
    free(line);
    fclose(file);
}

void site_policies_end(struct site_policies *policies)
{
    free(policies->list);
    free(policies->of_stack);
    *policies = (struct site_policies){0};
}
