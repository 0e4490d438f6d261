// Lists every live block of a heap with its address and size, one on each line; guarded blocks
// last.
#include "look.h"

#include <stdio.h>

enum { BUFFER_BYTES = 1 << 16, LINE_MOST = 48 };

static char buffer[BUFFER_BYTES];
static size_t used;

static void flush(void)
{
    if (fwrite(buffer, 1, used, stdout) != used)
        fail("cannot write the output");
    used = 0;
}

static char *write_hexadecimal(char *to, uint64_t value)
{
    int digits = 1;
    while (digits < 16 && value >> 4 * digits != 0)
        digits++;
    while (digits > 0)
        *to++ = "0123456789abcdef"[value >> 4 * --digits & 15];
    return to;
}

static char *write_decimal(char *to, uint64_t value)
{
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (count > 0)
        *to++ = digits[--count];
    return to;
}

static void write_block(uint64_t address, uint64_t bytes)
{
    if (used + LINE_MOST > BUFFER_BYTES)
        flush();
    char *to = buffer + used;
    *to++ = '0';
    *to++ = 'x';
    to = write_hexadecimal(to, address);
    *to++ = ' ';
    to = write_decimal(to, bytes);
    *to++ = '\n';
    used = (size_t)(to - buffer);
}

static void see(struct look *look, const struct span_view *span, void *context)
{
    static struct slab_slots slots;
    (void)context;
    if (span->kind == SPAN_IS_LARGE || span->kind == SPAN_IS_HUGE)
        write_block(span->start, span->bytes);
    if (span->kind != SPAN_IS_SLAB || !read_slots(look, span, &slots))
        return;
    uint64_t bytes = span->size_class == look->library->heap.zero_size_class ? 0 : slots.size_bytes;
    for (uint64_t i = 0; i < slots.count; i++)
        if (slots.states[i] == SLOT_IS_LIVE)
            write_block(span->start + i * slots.size_bytes, bytes);
}

static void see_guarded(struct look *look, uint64_t block, uint64_t bytes, bool live, void *context)
{
    (void)look, (void)context;
    if (live)
        write_block(block, bytes);
}

void blocks(struct look *look)
{
    walk_spans(look, see, NULL);
    walk_guarded(look, see_guarded, NULL);
    flush();
    if (look->torn + look->unreadable > 0)
        fprintf(stderr,
                "%s: %llu spans changed during the reading, %llu could not be read: their blocks "
                "are not listed\n",
                look->target->name, (unsigned long long)look->torn,
                (unsigned long long)look->unreadable);
}
