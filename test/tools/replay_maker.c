/* Writes a trace with known events, as a program with Cairn would have written it.
 *
 * usage: replay_maker churn|handover|peak EVENTS FILE
 *
 * churn     one thread; sizes up to 500, half of the events free one of the last 1000 blocks
 * handover  thread 1 allocates, thread 2 frees, eight blocks later
 * peak      one thread; EVENTS / 2 blocks of 1000 bytes, then all are freed. Stack 1 made the even
 *           blocks, stack 2 the odd ones
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <watch/trace_format.h>

enum { LIVE = 1000, BEHIND = 8, PEAK_SIZE = 1000, BLOCK_STEP = 1024 };

static _Alignas(64) unsigned char chunk[TRACE_CHUNK_BYTES];
static struct trace_encoder encoder;
static struct trace_header header;
static FILE *file;
static uint64_t order, now_ns = 1000;

static void write_chunk(void)
{
    if (encoder.chunk && fwrite(chunk, sizeof chunk, 1, file) != 1) {
        perror("replay_maker");
        exit(1);
    }
    memset(chunk, 0, sizeof chunk);
}

static void add(uint32_t thread, uint8_t operation, uint64_t address, uint64_t size, uint32_t stack)
{
    if (!encode_has_room(&encoder)) {
        write_chunk();
        encode_begin(&encoder, (struct trace_chunk *)(void *)chunk, 0, order, now_ns);
        header.chunks++;
    }
    if (encoder.thread != thread)
        encode_thread(&encoder, thread, thread + 1000);
    now_ns += 100;
    if (order % 64 == 0)
        encode_time(&encoder, now_ns);
    struct trace_record record = {
        .order = order++, .address = address, .size = size, .stack = stack, .operation = operation};
    encode_event(&encoder, &record);
}

static uint64_t address_of(uint64_t number) { return 0x10000000 + number * BLOCK_STEP; }

static void churn(uint64_t events)
{
    static bool live[LIVE];
    uint64_t state = 1;
    for (uint64_t i = 0; i < events; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = (state >> 33) % LIVE, size = 1 + (state >> 45) % 500;
        if (live[at])
            add(1, TRACE_FREE, address_of(at), 0, 0);
        else
            add(1, TRACE_ALLOCATE, address_of(at), size, (uint32_t)(at % 7 + 1));
        live[at] = !live[at];
    }
}

static void hand_over(uint64_t events)
{
    for (uint64_t i = 0; i < events / 2; i++) {
        add(1, TRACE_ALLOCATE, address_of(i), 100, 1);
        if (i >= BEHIND)
            add(2, TRACE_FREE, address_of(i - BEHIND), 0, 2);
    }
}

static void peak(uint64_t events)
{
    for (uint64_t i = 0; i < events / 2; i++)
        add(1, TRACE_ALLOCATE, address_of(i), PEAK_SIZE, (uint32_t)(i % 2 + 1));
    for (uint64_t i = 0; i < events / 2; i++)
        add(1, TRACE_FREE, address_of(i), 0, 3);
}

int main(int argc, char **argv)
{
    if (argc != 4 || !(file = fopen(argv[3], "wb"))) {
        fprintf(stderr, "usage: replay_maker churn|handover|peak EVENTS FILE\n");
        return 2;
    }
    memcpy(header.magic, TRACE_MAGIC, sizeof header.magic);
    header.version = TRACE_VERSION;
    header.chunk_bytes = TRACE_CHUNK_BYTES;
    header.start_ns = now_ns;
    static const unsigned char nothing[TRACE_HEADER_BYTES];
    fwrite(nothing, sizeof nothing, 1, file);
    uint64_t events = strtoull(argv[2], NULL, 10);
    if (strcmp(argv[1], "churn") == 0)
        churn(events);
    else if (strcmp(argv[1], "handover") == 0)
        hand_over(events);
    else
        peak(events);
    write_chunk();
    header.state = TRACE_ENDED;
    header.end_order = order;
    header.end_ns = now_ns;
    rewind(file);
    fwrite(&header, sizeof header, 1, file);
    return fclose(file) ? 1 : 0;
}
