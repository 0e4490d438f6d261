// A heap a tenant: a service that keeps data for several customers. Each has a limit, and when a
// customer goes, everything of it goes by one call, however tangled. One that stores too much loses
// its oldest entries first, and never the memory of the others.
#include <cairn/private_heap.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { TENANTS = 4, ENTRIES = 20000 };

struct entry {
    struct entry *newer;
    size_t length;
    char text[];
};

struct tenant {
    cairn_private_heap *heap;
    struct entry *oldest, *newest;
    size_t dropped;
};

// The heap asks when its limit is reached: true, try again, as long as there was something to drop.
static bool drop_oldest(void *context, size_t size)
{
    struct tenant *tenant = context;
    size_t dropped = 0;
    while (tenant->oldest != tenant->newest && dropped < 64 * 1024 + size) {
        struct entry *entry = tenant->oldest;
        tenant->oldest = entry->newer;
        dropped += entry->length;
        tenant->dropped++;
        cairn_private_heap_free(tenant->heap, entry);
    }
    return dropped > 0;
}

static bool store(struct tenant *tenant, const char *text)
{
    size_t length = strlen(text) + 1;
    struct entry *entry = cairn_private_heap_alloc(tenant->heap, sizeof *entry + length);
    if (entry == NULL)
        return false;
    entry->newer = NULL;
    entry->length = length;
    memcpy(entry->text, text, length);
    if (tenant->newest)
        tenant->newest->newer = entry;
    else
        tenant->oldest = entry;
    tenant->newest = entry;
    return true;
}

static void *serve(void *argument)
{
    struct tenant *tenant = argument;
    for (int i = 0; i < ENTRIES; i++) {
        char text[128];
        snprintf(text, sizeof text, "entry %d %.*s", i, i % 90,
                 "........................................................................"
                 "..................");
        if (!store(tenant, text))
            return NULL;
    }
    return tenant;
}

int main(void)
{
    struct tenant tenants[TENANTS] = {0};
    pthread_t threads[TENANTS];
    for (size_t i = 0; i < TENANTS; i++) {
        const cairn_private_heap_options options = {
            .limit_bytes = (size_t)512 * 1024 << i,
            .out_of_memory = drop_oldest,
            .context = &tenants[i],
        };
        tenants[i].heap = cairn_private_heap_new(&options);
        if (tenants[i].heap == NULL || pthread_create(&threads[i], NULL, serve, &tenants[i]) != 0)
            return 1;
    }
    bool well = true;
    for (size_t i = 0; i < TENANTS; i++) {
        void *served;
        pthread_join(threads[i], &served);
        cairn_private_heap_stats stats;
        cairn_private_heap_read_stats(tenants[i].heap, &stats);
        printf("tenant %zu: %zu entries in %zu bytes, at most %zu of %zu held; %zu dropped\n", i,
               stats.live_blocks, stats.live_bytes, stats.peak_bytes, stats.limit_bytes,
               tenants[i].dropped);
        well = well && served != NULL && stats.live_blocks + tenants[i].dropped == ENTRIES &&
               stats.peak_bytes <= stats.limit_bytes;
        cairn_private_heap_delete(tenants[i].heap); // its entries with it
    }
    return well && tenants[0].dropped > 0 && tenants[TENANTS - 1].dropped == 0 ? 0 : 1;
}
