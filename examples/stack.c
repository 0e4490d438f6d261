/* Scopes and stacks: a word count whose intermediate strings end with their scope. */
#include <cairn/scope.h>

#include <stdio.h>
#include <string.h>

struct word {
    struct word *next;
    const char *text;
    int count;
};

/* Named t_…: what it returns is memory of the caller's frame. NULL when there are none, or when
 * memory is out. */
static struct word *t_count_words(const char *text)
{
    struct word *words = NULL;
    while (*text) {
        size_t length = strcspn(text, " ");
        struct word *word = words;
        while (word && (strncmp(word->text, text, length) != 0 || word->text[length] != '\0'))
            word = word->next;
        if (word == NULL) {
            word = t_new(struct word, 1);
            const char *copy = t_strndup(text, length);
            if (word == NULL || copy == NULL)
                return NULL;
            *word = (struct word){.next = words, .text = copy};
            words = word;
        }
        word->count++;
        text += length;
        text += strspn(text, " ");
    }
    return words;
}

static int most_frequent(const char *text, char *answer, size_t capacity)
{
    t_scope; /* all that is allocated below ends with this function */
    const struct word *best = NULL;
    for (const struct word *word = t_count_words(text); word; word = word->next)
        if (best == NULL || word->count > best->count)
            best = word;
    if (best == NULL)
        return 0;
    const char *line = t_printf("%s: %d times", best->text, best->count);
    if (line == NULL)
        return 0;
    snprintf(answer, capacity, "%s", line);
    return best->count;
}

static void close_file(void *file) { fclose(file); }

/* How many bytes of the file are no letters; -1 when it cannot be read. Small stacks need no memory
 * but the caller's; a hook closes the file, whichever way the frame ends. */
static long count_other_bytes(const char *name)
{
    char memory[8 << 10];
    cairn_stack *stack = cairn_stack_new(&(cairn_stack_options){
        .buffer = memory, .buffer_bytes = sizeof memory, .fixed = true, .name = "count"});
    if (stack == NULL)
        return -1;
    long count = -1;
    FILE *file = fopen(name, "r");
    if (file != NULL && cairn_stack_defer(stack, close_file, file) != 0)
        fclose(file);
    else if (file != NULL) {
        char *line = cairn_stack_alloc(stack, 1024, 1);
        count = 0;
        while (line != NULL && fgets(line, 1024, file) != NULL)
            for (const char *byte = line; *byte != '\0'; byte++)
                count += (*byte | 32) < 'a' || (*byte | 32) > 'z';
    }
    cairn_stack_delete(stack); /* calls close_file */
    return count;
}

int main(void)
{
    char answer[64];
    for (int round = 0; round < 100000; round++)
        if (most_frequent("a stone on a stone on a cairn", answer, sizeof answer) != 3)
            return 1;
    puts(answer);

    /* A stack of one's own, in one reserved range, with a limit. */
    cairn_stack *stack = cairn_stack_new(
        &(cairn_stack_options){.reserve_bytes = 1 << 30, .max_bytes = 64 << 20, .name = "example"});
    if (stack == NULL)
        return 1;
    cairn_mark mark = cairn_stack_push(stack);
    size_t size = 16;
    char *text = cairn_stack_alloc(stack, size, 1);
    while (text && size < 32 << 20) {
        /* the newest block grows in place; checked builds may move it to find stale pointers */
        text = cairn_stack_realloc(stack, text, size, 2 * size, 1);
        if (text == NULL)
            return 1;
        size *= 2;
    }
    cairn_stack_pop(stack, mark);
    cairn_stack_trim(stack, 0);
    cairn_stack_delete(stack);
    if (count_other_bytes("/proc/self/status") <= 0)
        return 1;
    return strcmp(answer, "a: 3 times") != 0;
}
