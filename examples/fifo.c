/* A FIFO: log lines wait in a queue for their writer; most go in order, some are kept for later. */
#include <cairn/fifo.h>

#include <stdio.h>
#include <string.h>

struct line {
    struct line *next;
    int number;
    char text[];
};

static struct line *make_line(cairn_fifo *fifo, int number)
{
    char text[64];
    int length = snprintf(text, sizeof text, "line %d of the log", number);
    struct line *line =
        cairn_fifo_alloc(fifo, sizeof *line + (size_t)length + 1, _Alignof(struct line));
    if (line) {
        line->next = NULL;
        line->number = number;
        memcpy(line->text, text, (size_t)length + 1);
    }
    return line;
}

int main(void)
{
    cairn_fifo *fifo = cairn_fifo_new(&(cairn_fifo_options){.name = "log"});
    if (fifo == NULL)
        return 1;
    struct line *first = NULL;
    struct line **last = &first;
    struct line *kept = NULL;
    size_t waiting = 0;
    size_t written = 0;
    for (int number = 0; number < 1000000; number++) {
        struct line *line = make_line(fifo, number);
        if (line == NULL)
            return 1;
        *last = line;
        last = &line->next;
        if (++waiting <= 100)
            continue;
        line = first;
        first = line->next;
        waiting--;
        written += strlen(line->text);
        if (line->number % 5000 ==
            0) { /* a survivor holds a page or two, not its neighbours' memory */
            line->next = kept;
            kept = line;
        } else {
            cairn_fifo_free(fifo, line);
        }
    }
    cairn_fifo_stats stats;
    cairn_fifo_read_stats(fifo, &stats);
    size_t held = stats.segment_bytes - stats.returned_bytes;
    printf("%zu characters written, %zu KiB held\n", written, held / 1024);

    cairn_fifo_close(fifo); /* ends with the last free */
    for (struct line *line = first, *next; line; line = next) {
        next = line->next;
        cairn_fifo_free(fifo, line);
    }
    for (struct line *line = kept, *next; line; line = next) {
        next = line->next;
        cairn_fifo_free(fifo, line);
    }
    return held > 4 << 20;
}
