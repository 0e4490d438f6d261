/* The result file: counts, the watched lock, the lines and pairs of instructions with the most
 * transfers, and what is needed to find names for addresses. report.py reads it. */
#include "simulator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINES_WRITTEN = 100, SITES_WRITTEN = 12, PAIRS_WRITTEN = 400 };

static const char *const kind_names[KINDS] = {"read_dirty", "read_clean", "write_dirty",
                                              "write_shared"};
static const char *const owner_names[CODE_OWNERS] = {"program", "allocator", "other"};

static uint64_t result_sum(const uint64_t *transfers)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < KINDS; kind++)
        sum += transfers[kind];
    return sum;
}

static int result_by_count(const void *a, const void *b)
{
    uint64_t x = result_sum(((const struct cell *)a)->transfers);
    uint64_t y = result_sum(((const struct cell *)b)->transfers);
    return (x < y) - (x > y);
}

static int result_by_line(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : result_by_count(a, b);
}

static void result_print(FILE *file, const uint64_t *transfers)
{
    for (int kind = 0; kind < KINDS; kind++)
        fprintf(file, " %" PRIu64, transfers[kind]);
    fputc('\n', file);
}

/* The used cells of a table, sorted; the next one has no transfers. */
static struct cell *result_sorted(const struct table *table,
                                  int (*order)(const void *, const void *), uint64_t *count)
{
    struct cell *cells = calloc(table->used + 1, sizeof *cells);
    *count = 0;
    for (uint64_t i = 0; i < table->capacity; i++)
        if (table->cells[i].second != 0)
            cells[(*count)++] = table->cells[i];
    qsort(cells, *count, sizeof *cells, order);
    return cells;
}

static void result_write_lines(FILE *file)
{
    uint64_t count, lines = 0;
    struct cell *cells = result_sorted(&line_sites, result_by_line, &count);
    /* A cell for each line: `second` is the index of its first cell, plus 1. */
    struct cell *heads = calloc(count + 1, sizeof *heads);
    for (uint64_t i = 0; i < count; lines++) {
        heads[lines].first = cells[i].first;
        heads[lines].second = i + 1;
        for (; i < count && cells[i].first == heads[lines].first; i++)
            for (int kind = 0; kind < KINDS; kind++)
                heads[lines].transfers[kind] += cells[i].transfers[kind];
    }
    qsort(heads, lines, sizeof *heads, result_by_count);
    fprintf(file, "lines_moved %" PRIu64 "\n", lines);
    for (uint64_t i = 0; i < lines && i < LINES_WRITTEN; i++) {
        fprintf(file, "line %" PRIx64, heads[i].first << 6);
        result_print(file, heads[i].transfers);
        uint64_t at = heads[i].second - 1;
        for (int site = 0; site < SITES_WRITTEN && at < count && cells[at].first == heads[i].first;
             site++, at++) {
            fprintf(file, "site %" PRIx64, codes[cells[at].second].address);
            result_print(file, cells[at].transfers);
        }
    }
    free(heads);
    free(cells);
}

static void result_write_code(FILE *file)
{
    uint64_t count;
    struct cell *cells = result_sorted(&code_pairs, result_by_count, &count);
    for (uint64_t i = 0; i < count && i < PAIRS_WRITTEN; i++) {
        fprintf(file, "pair %" PRIx64 " %" PRIx64, codes[cells[i].first].address,
                codes[cells[i].second - 1].address);
        result_print(file, cells[i].transfers);
    }
    free(cells);
    for (uint32_t i = 1; i < codes_count; i++)
        if (codes[i].locked != 0 || result_sum(codes[i].transfers) != 0) {
            fprintf(file, "code %" PRIx64 " %" PRIu64, codes[i].address, codes[i].locked);
            result_print(file, codes[i].transfers);
        }
    for (const struct block *block = blocks; block; block = block->next)
        if (block->runs != 0 && block->owner == ALLOCATOR)
            fprintf(file, "block %" PRIx64 " %" PRIu64 "\n", block->address, block->runs);
}

static void result_write_totals(FILE *file)
{
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"cores", cores},
        {"cycles", end_clock - start_clock},
        {"accesses", totals.accesses},
        {"first_accesses", totals.first_accesses},
        {"pages", totals.pages},
        {"unmapped_pages", totals.unmapped_pages},
        {"turns", totals.turns},
        {"escapes", totals.escapes},
        {"threads", totals.threads},
        {"pauses", totals.pauses},
        {"futex_waits", totals.futex_waits},
        {"futex_wakes", totals.futex_wakes},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        fprintf(file, "%s %" PRIu64 "\n", figures[i].name, figures[i].value);
    for (int owner = 0; owner < CODE_OWNERS; owner++) {
        const char *name = owner_names[owner];
        fprintf(file, "instructions_%s %" PRIu64 "\n", name, totals.instructions[owner]);
        fprintf(file, "locked_%s %" PRIu64 "\n", name, totals.locked[owner]);
        for (int kind = 0; kind < KINDS; kind++)
            fprintf(file, "%s_%s %" PRIu64 "\n", kind_names[kind], name,
                    totals.transfers[owner][kind]);
    }
    for (int i = 0; i < CALLS; i++)
        if (totals.calls[i] != 0)
            fprintf(file, "call %d %" PRIu64 "\n", i, totals.calls[i]);
    for (int i = 0; i < HOLD_SITES; i++)
        if (holds[i].count != 0)
            fprintf(file, "hold %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", holds[i].site,
                    holds[i].count, holds[i].cycles, holds[i].longest);
}

void result_write(const char *path, uint64_t mallocs, uint64_t frees)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        return;
    }
    fprintf(file, "mallocs %" PRIu64 "\nfrees %" PRIu64 "\n", mallocs, frees);
    result_write_totals(file);
    result_write_lines(file);
    result_write_code(file);
    char text[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(text, sizeof text, maps))
        fprintf(file, "map %s", text);
    if (maps)
        fclose(maps);
    fclose(file);
}
