/* One use of the frame allocators, right or wrong, by name: memcheck_test.py runs it under
 * Valgrind.
 *
 * The wrong ones read or write a byte that no live block holds; unmarked, all of them would pass
 * silently, for the memory is mapped.
 */
#include <cairn/fifo.h>
#include <cairn/ring.h>
#include <cairn/scope.h>
#include <cairn/stack.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 100 };

static volatile char sink;

static __attribute__((noinline)) void read_byte(const volatile char *byte) { sink = *byte; }
static __attribute__((noinline)) void write_byte(volatile char *byte) { *byte = 1; }

static char *filled(void *block) { return memset(block, 7, BYTES); }

static void stack_clean(void)
{
    cairn_stack *stack = cairn_stack_new(NULL);
    for (int i = 0; i < 100; i++) {
        cairn_mark mark = cairn_stack_push(stack);
        char *first = filled(cairn_stack_alloc(stack, BYTES, 8));
        char *grown = cairn_stack_realloc(stack, first, BYTES, 10 * BYTES, 8);
        read_byte(grown + BYTES - 1);
        write_byte(grown + 10 * BYTES - 1);
        cairn_stack_pop(stack, mark);
    }
    cairn_stack_delete(stack);
}

static void scope_clean(void)
{
    for (int i = 0; i < 100; i++) {
        t_scope;
        read_byte(t_printf("%d stones", i));
        int *numbers = t_new_zero(int, 50);
        read_byte((char *)(numbers + 49));
    }
}

static void fifo_clean(void)
{
    cairn_fifo *fifo = cairn_fifo_new(NULL);
    for (int i = 0; i < 100; i++) {
        char *object = filled(cairn_fifo_alloc(fifo, BYTES, 8));
        read_byte(object + BYTES - 1);
        cairn_fifo_free(fifo, object);
    }
    cairn_fifo_close(fifo);
}

static void open_frame(cairn_ring *ring)
{
    if (cairn_ring_open(ring).chunk == NULL)
        abort();
}

static void ring_clean(void)
{
    cairn_ring *ring = cairn_ring_new(NULL);
    for (int i = 0; i < 100; i++) {
        open_frame(ring);
        read_byte(filled(cairn_ring_alloc(ring, BYTES, 8)));
        cairn_ring_release(cairn_ring_seal(ring));
    }
    cairn_ring_close(ring);
}

static void clean(void)
{
    stack_clean();
    scope_clean();
    fifo_clean();
    ring_clean();
}

static void use_after_pop(void)
{
    cairn_stack *stack = cairn_stack_new(NULL);
    cairn_mark mark = cairn_stack_push(stack);
    char *block = filled(cairn_stack_alloc(stack, BYTES, 8));
    cairn_stack_pop(stack, mark);
    read_byte(block);
    cairn_stack_delete(stack);
}

static void use_after_scope(void)
{
    char *text;
    {
        t_scope;
        text = t_strdup("gone");
    }
    read_byte(text);
}

static void write_past_the_end(void)
{
    t_scope;
    char *block = filled(t_alloc(BYTES));
    write_byte(block + BYTES);
    write_byte(block - 1);
}

static void use_before_set(void)
{
    t_scope;
    const char *block = t_alloc(BYTES);
    if (block[50] == 1)
        sink = 1;
}

static void use_after_free(void)
{
    cairn_fifo *fifo = cairn_fifo_new(NULL);
    char *object = filled(cairn_fifo_alloc(fifo, BYTES, 8));
    filled(cairn_fifo_alloc(fifo, BYTES, 8)); /* so that its memory is not the next to be used */
    cairn_fifo_free(fifo, object);
    write_byte(object);
    cairn_fifo_close(fifo);
}

/* A released frame's memory is marked when its chunk is filled anew, which is a few KiB later. */
static void use_after_release(void)
{
    enum { FRAME_BYTES = 2000, FRAMES = 3 };
    cairn_ring *ring = cairn_ring_new(NULL);
    char *blocks[FRAMES];
    for (int i = 0; i < FRAMES; i++) {
        open_frame(ring);
        blocks[i] = filled(cairn_ring_alloc(ring, FRAME_BYTES, 8));
        cairn_ring_release(cairn_ring_seal(ring));
    }
    open_frame(ring);
    read_byte(blocks[1]);
    cairn_ring_release(cairn_ring_seal(ring));
    cairn_ring_close(ring);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } uses[] = {{"clean", clean},
                {"use_after_pop", use_after_pop},
                {"use_after_scope", use_after_scope},
                {"write_past_the_end", write_past_the_end},
                {"use_before_set", use_before_set},
                {"use_after_free", use_after_free},
                {"use_after_release", use_after_release}};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        if (count == 2 && strcmp(arguments[1], uses[i].name) == 0) {
            uses[i].run();
            return 0;
        }
    fputs("usage: memcheck_program USE\n", stderr);
    return 2;
}
