// Writes the sums as JSON. Sites with less than a hundredth of every sum are only counted: they
// have nothing worth a line to gain.
#include <inttypes.h>

#include "advise.h"

enum { SHARE_LEAST = 100, STACKS_SHOWN = 100000 };

bool site_matters(const struct advice *advice, const struct site *site)
{
    return site->allocations != 0 &&
           ((site->allocations + site->resizes) * SHARE_LEAST >= advice->allocations ||
            site->allocated_bytes * SHARE_LEAST >= advice->allocated_bytes ||
            site->peak_bytes * SHARE_LEAST >= advice->peak_bytes ||
            site->live_bytes * SHARE_LEAST >= advice->peak_bytes ||
            site->pinned_bytes * SHARE_LEAST >= advice->peak_bytes);
}

static void write_row(FILE *file, const char *name, const uint64_t *values, unsigned count)
{
    fprintf(file, ", \"%s\": [", name);
    for (unsigned i = 0; i < count; i++)
        fprintf(file, "%s%" PRIu64, i ? "," : "", values[i]);
    fputs("]", file);
}

static void write_stacks(const struct advice *advice, uint32_t number, FILE *file)
{
    fputs(", \"stacks\": [", file);
    unsigned shown = 0;
    for (uint32_t stack = 0; stack < advice->stack_count && shown < STACKS_SHOWN; stack++)
        if (advice->site_of_stack[stack] == number && (stack != 0 || number == 0))
            fprintf(file, "%s%" PRIu32, shown++ ? "," : "", stack);
    fputs("]", file);
}

static void write_sizes(const struct site *site, FILE *file)
{
    fputs(", \"sizes\": [", file);
    unsigned shown = 0;
    for (unsigned i = 0; i < SIZES_KEPT; i++)
        if (site->sizes[i].count != 0)
            fprintf(file, "%s[%" PRIu64 ",%" PRIu64 "]", shown++ ? "," : "",
                    site->sizes[i].size_bytes, site->sizes[i].count);
    fputs("]", file);
}

#define FIELD(name) fprintf(file, ", \"" #name "\": %" PRIu64, (uint64_t)site->name)

static void write_site(const struct advice *advice, uint32_t number, FILE *file)
{
    const struct site *site = &advice->sites[number];
    fprintf(file, "{\"site\": %" PRIu32, number);
    FIELD(stack), FIELD(ancestor_stack);
    FIELD(allocations), FIELD(frees), FIELD(allocated_bytes), FIELD(freed_bytes);
    FIELD(live), FIELD(live_bytes), FIELD(live_most), FIELD(live_bytes_most);
    FIELD(peak_bytes), FIELD(peak_lost), FIELD(peak_live), FIELD(size_least), FIELD(size_most);
    FIELD(ascending), FIELD(last_in), FIELD(drains), FIELD(grouped), FIELD(groups), FIELD(runs);
    FIELD(other_thread), FIELD(at_once), FIELD(same_function), FIELD(in_ancestor);
    FIELD(ancestor_depth), FIELD(left), FIELD(before), FIELD(is_of_threads);
    FIELD(resizes), FIELD(moved_bytes), FIELD(grown_blocks), FIELD(grown_steps);
    FIELD(grown_final_bytes), FIELD(grown_final_most), FIELD(copied_bytes), FIELD(pinned_bytes);
    fprintf(file, ", \"grown_half\": %" PRIu64 ", \"grown_most\": %" PRIu64, grown_size(site, 5),
            grown_size(site, 9));
    write_sizes(site, file);
    write_row(file, "life_bytes", site->life_bytes, LIFE_STEPS);
    write_row(file, "life_ns", site->life_ns, LIFE_STEPS);
    write_row(file, "points_live", site->points_live, advice->point_count);
    write_row(file, "points_allocated", site->points_allocated, advice->point_count);
    write_stacks(advice, number, file);
    fputs("}", file);
}

static void write_points(const struct advice *advice, FILE *file)
{
    fputs(",\n\"points\": [", file);
    for (unsigned i = 0; i < advice->point_count; i++) {
        const struct point *point = &advice->points[i];
        fprintf(file, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", i ? "," : "",
                point->time_ns - advice->first_ns, point->live_bytes, point->allocated_bytes);
    }
    fputs("]", file);
}

void advice_write(const struct advice *advice, FILE *file)
{
    fprintf(file,
            "\"events\": %" PRIu64 ", \"allocations\": %" PRIu64 ", \"frees\": %" PRIu64
            ", \"resizes\": %" PRIu64 ", \"allocated_bytes\": %" PRIu64 ", \"peak_bytes\": %" PRIu64
            ", \"peak_lost_bytes\": %" PRIu64 ", \"live_bytes\": %" PRIu64 ", \"live\": %" PRIu64,
            advice->events, advice->allocations, advice->frees, advice->resizes,
            advice->allocated_bytes, advice->peak_bytes, advice->peak_lost_bytes,
            advice->live_bytes, advice->live);
    fprintf(file,
            ", \"pinned_bytes\": %" PRIu64 ", \"unknown_frees\": %" PRIu64
            ", \"untracked\": %" PRIu64 ", \"threads\": %u, \"time_ns\": %" PRIu64
            ", \"has_free_stacks\": %s",
            advice->pinned_bytes, advice->unknown_frees, advice->untracked,
            advice->threads ? advice->threads - 1 : 0, advice->last_ns - advice->first_ns,
            advice->has_free_stacks ? "true" : "false");
    write_points(advice, file);
    fputs(",\n\"sites\": [", file);
    unsigned shown = 0, left_out = 0;
    for (uint32_t i = 0; i < advice->site_count; i++) {
        if (site_matters(advice, &advice->sites[i])) {
            fputs(shown++ ? ",\n" : "\n", file);
            write_site(advice, i, file);
        } else {
            left_out += advice->sites[i].allocations != 0;
        }
    }
    fprintf(file, "],\n\"small_sites\": %u", left_out);
}
