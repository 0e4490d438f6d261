/* A heap that survives: each run adds a line to a list in a file, commits, and shows what is there.
 * Killed at any instant, the next run finds whole lines only.
 *
 * usage: persist [FILE [TEXT]]; without arguments it tries itself on a file of its own.
 */
#include <cairn/persist.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct line {
    cairn_offset next;
    char text[];
};

struct list {
    cairn_offset first;
    unsigned long count;
};

static int add(cairn_persist *heap, const char *text)
{
    cairn_allocator from = cairn_persist_allocator(heap);
    struct list *list = cairn_persist_get_root(heap, "lines");
    if (list == NULL) {
        list = cairn_allocator_alloc(from, sizeof *list, _Alignof(struct list));
        if (list == NULL)
            return 1;
        memset(list, 0, sizeof *list);
        if (cairn_persist_set_root(heap, "lines", list) != 0)
            return 1;
    }
    size_t size = sizeof(struct line) + strlen(text) + 1;
    struct line *line = cairn_allocator_alloc(from, size, _Alignof(struct line));
    if (line == NULL)
        return 1;
    strcpy(line->text, text);
    cairn_offset_set(&line->next, cairn_offset_get(&list->first));
    cairn_offset_set(&list->first, line);
    list->count++;
    return cairn_persist_commit(heap);
}

static unsigned long show(cairn_persist *heap)
{
    const struct list *list = cairn_persist_get_root(heap, "lines");
    unsigned long shown = 0;
    const struct line *line = list ? cairn_offset_get(&list->first) : NULL;
    for (; line != NULL; line = cairn_offset_get(&line->next), shown++)
        puts(line->text);
    return list != NULL && list->count == shown ? shown : 0;
}

/* The number of lines after the text was added, 0 when something failed. */
static unsigned long run(const char *path, const char *text)
{
    const char *why = "";
    struct cairn_persist_options options = {.flags = CAIRN_PERSIST_CREATE, .why = &why};
    cairn_persist *heap = cairn_persist_open(path, &options);
    if (heap == NULL) {
        fprintf(stderr, "%s: %s\n", path, why);
        return 0;
    }
    unsigned long lines = add(heap, text) == 0 ? show(heap) : 0;
    return cairn_persist_close(heap) == 0 ? lines : 0;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return run(arguments[1], count > 2 ? arguments[2] : "once more") == 0;
    char path[] = "/tmp/cairn_lines_XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        return 1;
    close(file);
    unlink(path);
    int wrong = run(path, "first") != 1 || run(path, "second") != 2;
    unlink(path);
    return wrong;
}
