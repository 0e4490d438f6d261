// Groups lost blocks of one size and one site whose first words show one kind.
#include "marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TABLE_LEAST = 1024 };

static uint64_t hash(const struct group *group)
{
    uint64_t value = group->bytes * 0x9e3779b97f4a7c15 ^ group->kind;
    value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9 ^ group->site;
    return value ^ value >> 32;
}

// Returns: the table entry of an equal group, or a free entry.
static struct group *place_of(struct target *target, const struct groups *groups,
                              const struct group *wanted)
{
    for (size_t at = hash(wanted) % groups->places;; at = (at + 1) % groups->places) {
        struct group *group = &groups->table[at];
        spend(target, 1);
        if (group->blocks == 0 || (group->bytes == wanted->bytes && group->kind == wanted->kind &&
                                   group->site == wanted->site))
            return group;
    }
}

static void make_room(struct target *target, struct groups *groups)
{
    struct groups more = {.places = groups->places ? 2 * groups->places : TABLE_LEAST};
    more.table = calloc(more.places, sizeof *more.table);
    if (more.table == NULL)
        fail("out of memory for %zu groups of blocks", more.places);
    for (size_t i = 0; i < groups->places; i++)
        if (groups->table[i].blocks != 0)
            *place_of(target, &more, &groups->table[i]) = groups->table[i];
    more.count = groups->count;
    free(groups->table);
    *groups = more;
}

void add_to_group(struct target *target, struct groups *groups, const struct group *one)
{
    if (2 * groups->count >= groups->places)
        make_room(target, groups);
    struct group *group = place_of(target, groups, one);
    if (group->blocks == 0) {
        *group = *one;
        groups->count++;
        return;
    }
    group->blocks += one->blocks;
    group->held_blocks += one->held_blocks;
    group->held_bytes += one->held_bytes;
}

static int by_sum(const void *left, const void *right)
{
    const struct group *a = left, *b = right;
    uint64_t x = a->bytes * a->blocks + a->held_bytes, y = b->bytes * b->blocks + b->held_bytes;
    if (x != y)
        return x < y ? 1 : -1;
    return a->address < b->address ? -1 : a->address > b->address;
}

void print_groups(struct look *look, struct groups *groups)
{
    sort(groups->table, groups->places, sizeof *groups->table, by_sum); // free entries are last
    for (size_t i = 0, shown = 0; shown < groups->count && i < groups->places; i++) {
        const struct group *group = &groups->table[i];
        if (group->blocks == 0)
            continue;
        shown++;
        printf("group\taddress=%#" PRIx64 "\tsize_bytes=%" PRIu64 "\tblocks=%" PRIu64
               "\theld_blocks=%" PRIu64 "\theld_bytes=%" PRIu64 "\tis_text=%d",
               group->address, group->bytes, group->blocks, group->held_blocks, group->held_bytes,
               group->kind == KIND_IS_TEXT);
        if (group->site != 0)
            printf("\tsite=%" PRIu32, group->site);
        print_contents(look, group->address, group->bytes);
        putchar('\n');
    }
}
