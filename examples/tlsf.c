// A control loop on a fixed pool: every buffer comes from 64 KiB that were set aside at the start,
// each allocation and free takes bounded time, and at the end the heap is verified to be whole.
#include <cairn/tlsf.h>
#include <stdio.h>
#include <string.h>

enum { POOL_BYTES = 64 * 1024, PENDING = 16, CYCLES = 10000 };

struct command {
    size_t length;
    unsigned char payload[];
};

static _Alignas(64) char pool[POOL_BYTES];

// A command with a payload of its own length; NULL when the pool is full, which the loop survives.
static struct command *command_new(cairn_tlsf *heap, size_t length)
{
    struct command *command = cairn_tlsf_alloc(heap, sizeof *command + length);
    if (command == NULL)
        return NULL;
    command->length = length;
    memset(command->payload, (int)length, length);
    return command;
}

static bool count_used(void *block, size_t size, bool used, void *context)
{
    (void)block;
    *(size_t *)context += used ? size : 0;
    return true;
}

int main(void)
{
    cairn_tlsf *heap = cairn_tlsf_init(pool, sizeof pool);
    if (heap == NULL)
        return 1;
    struct command *pending[PENDING] = {NULL};
    unsigned dropped = 0;
    for (unsigned cycle = 0; cycle < CYCLES; cycle++) {
        struct command **slot = &pending[cycle * 7 % PENDING];
        cairn_tlsf_free(heap, *slot); // done with; NULL at first
        *slot = command_new(heap, cycle * 37 % 4000);
        dropped += *slot == NULL;
    }

    size_t used = 0;
    cairn_tlsf_walk(heap, count_used, &used);
    struct cairn_tlsf_stats stats;
    cairn_tlsf_read_stats(heap, &stats);
    printf(
        "%u cycles, %u commands dropped; %zu of %zu bytes in use in %zu blocks, %zu at the most\n",
        CYCLES, dropped, used, stats.total_bytes, stats.used_blocks,
        stats.total_bytes - stats.least_free_bytes);

    for (size_t i = 0; i < PENDING; i++)
        cairn_tlsf_free(heap, pending[i]);
    cairn_tlsf_read_stats(heap, &stats);
    const char *fault = cairn_tlsf_check(heap);
    if (fault)
        fprintf(stderr, "the heap is damaged: %s\n", fault);
    return fault == NULL && stats.used_blocks == 0 && dropped < CYCLES / 10 ? 0 : 1;
}
