/* The stack: frames, allocations, hooks, the common interface (cairn/allocator.h), formatted
 * strings, and checked stacks. cairn/stack.h describes what a stack does; structure and invariants
 * are in stack_block.h.
 *
 * Checked stacks show debug builds, AddressSanitizer and Valgrind the blocks of a stack. Each block
 * is between canaries: before it a header, which has its size and a link to the block before;
 * behind it at least 16 bytes. Both are verified when the block ends or is resized. Ended memory is
 * filled and marked inaccessible. In debug builds its whole pages also lose their access rights, so
 * the use of an old pointer faults. Checked stacks are not fast.
 *
 * Threads: the owner only.
 */
#include "cairn/stack.h"
#include "base/compiler.h"
#include "cairn/scope.h"
#include "frame/stack_block.h"
#include "os/memory.h"
#include "os/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct stack_checked_block {
    uint64_t canary;
    struct stack_checked_block *before;
    size_t size;
    uint64_t canary_at_end; /* directly before the block */
};

enum { CANARY_BYTES = 16, CANARY_BYTE = 0xca, DEAD_BYTE = 0xdd };
static const uint64_t CANARY = 0xcacacacacacacaca;

static inline char *stack_contents(struct stack_checked_block *header)
{
    return (char *)(header + 1);
}

static inline size_t stack_tail_bytes(size_t size)
{
    return align_up(size + CANARY_BYTES, 16) - size;
}

/* Writes the canary behind a block of a new size, and marks it. */
static void stack_lay(struct stack_checked_block *header, size_t size)
{
    header->size = size;
    memset(stack_contents(header) + size, CANARY_BYTE, stack_tail_bytes(size));
    mark_inaccessible(stack_contents(header) + size, stack_tail_bytes(size));
}

void *stack_checked_alloc(struct stack *stack, size_t size, size_t align)
{
    enum { HEADER_BYTES = sizeof(struct stack_checked_block) };
    align = larger_of(align, 16);
    if (size > PTRDIFF_MAX / 2 || align > PTRDIFF_MAX / 4)
        return NULL;
    size_t total = HEADER_BYTES + align + size + stack_tail_bytes(size);
    if (stack->current == NULL || stack_position(stack) + total > block_end(stack->current))
        if (!stack_make_room(stack, total, 16))
            return NULL;
    uintptr_t start = align_up(stack_position(stack) + HEADER_BYTES, align);
    struct stack_checked_block *header = (struct stack_checked_block *)start - 1;
    mark_undefined(header, HEADER_BYTES + size + stack_tail_bytes(size));
    *header = (struct stack_checked_block){
        .canary = CANARY, .before = stack->newest, .canary_at_end = CANARY};
    stack->newest = header;
    stack_lay(header, size);
    mark_inaccessible(header, HEADER_BYTES);
    stack_set_position(stack, start + size + stack_tail_bytes(size));
    return stack_contents(header);
}

/* Ends the process when the program wrote before or behind a block. */
static void stack_verify_canaries(const struct stack *stack, struct stack_checked_block *header)
{
    mark_defined(header, sizeof *header);
    const char *block = stack_contents(header);
    if (header->canary != CANARY || header->canary_at_end != CANARY)
        die("stack \"%s\": write before the start of %p", stack->name, block);
    mark_defined(block + header->size, stack_tail_bytes(header->size));
    for (size_t i = 0; i < stack_tail_bytes(header->size); i++)
        if ((unsigned char)block[header->size + i] != CANARY_BYTE)
            die("stack \"%s\": write past the end of %p (%zu-byte block)", stack->name, block,
                header->size);
}

void *stack_checked_resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size)
{
    struct stack_checked_block *header = (struct stack_checked_block *)pointer - 1;
    stack_verify_canaries(stack, header);
    if (header->size != old_size)
        die("stack \"%s\": realloc of %p with old size %zu (%zu-byte block)", stack->name, pointer,
            old_size, header->size);
    bool newest =
        header == stack->newest && !stack->sealed &&
        (uintptr_t)pointer + old_size + stack_tail_bytes(old_size) == stack_position(stack);
    bool fits = new_size <= old_size;
    if (newest && !fits && new_size <= PTRDIFF_MAX / 2) {
        struct stack_block *block = stack->current;
        fits = (uintptr_t)pointer + new_size + stack_tail_bytes(new_size) <= block_end(block);
    }
    if (fits) {
        size_t larger = larger_of(old_size, new_size);
        mark_undefined((char *)pointer + smaller_of(old_size, new_size),
                       larger - smaller_of(old_size, new_size));
        mark_undefined((char *)pointer + new_size, stack_tail_bytes(new_size));
        if (newest)
            stack_set_position(stack, (uintptr_t)pointer + new_size + stack_tail_bytes(new_size));
        stack_lay(header, new_size);
    } else {
        stack_lay(header, old_size);
    }
    mark_inaccessible(header, sizeof *header);
    return fits ? pointer : NULL;
}

/* Fills memory that has ended, and makes it inaccessible. */
static void stack_bury(struct stack_block *block, uintptr_t from, uintptr_t to)
{
    if (from >= to)
        return;
    mark_undefined((void *)from, to - from);
    memset((void *)from, DEAD_BYTE, to - from);
    mark_inaccessible((void *)from, to - from);
    uintptr_t whole = align_up(from, os_page_size());
    uintptr_t end = (uintptr_t)block->base + block->committed;
    if (!config_debug || block->borrowed || whole >= to ||
        os_protect((void *)whole, end - whole, OS_NONE) != 0)
        return;
    block->committed = whole - (uintptr_t)block->base; /* committed again when the limit rises */
    block->resident = smaller_of(block->resident, block->committed);
    block->limit = smaller_of(block->limit, block->committed);
}

void stack_checked_end(struct stack *stack, uintptr_t frame)
{
    struct stack_block *block = stack->current;
    uintptr_t above = stack_position(stack);
    for (;;) {
        bool last = block_holds(block, frame);
        while (stack->newest && block_holds(block, (uintptr_t)stack->newest) &&
               (!last || (uintptr_t)stack->newest >= frame)) {
            stack_verify_canaries(stack, stack->newest);
            stack->newest = stack->newest->before;
        }
        stack_bury(block, last ? frame : (uintptr_t)block->base, above);
        if (last)
            return;
        block = block->older;
        above = block->left_at;
    }
}

uintptr_t stack_room(struct stack *stack, size_t size, size_t align)
{
    for (;;) {
        uintptr_t start = align_up(stack_position(stack), align);
        if (stack->current && start >= stack_position(stack) &&
            start + size <= block_end(stack->current))
            return start;
        if (!stack_make_room(stack, size, align))
            return 0;
    }
}

bool stack_try_again(const struct stack *stack, size_t size)
{
    return frame_try_again(stack->out_of_memory, stack->out_of_memory_context, size);
}

void stack_die_sealed(const struct stack *stack)
{
    die("stack \"%s\": allocation while sealed", stack->name);
}

/* Allocates a block.
 * Returns: NULL when out of memory. */
static void *stack_take(struct stack *stack, size_t size, size_t align)
{
    if (unlikely(stack->checked))
        return stack_checked_alloc(stack, size, align);
    size = align_up(size, STACK_GRANULE);
    uintptr_t start = stack_room(stack, size, larger_of(align, STACK_GRANULE));
    if (likely(start != 0))
        stack_set_position(stack, start + size);
    return (void *)start;
}

api void *cairn_stack_alloc_slow(cairn_stack *head, size_t size, size_t align)
{
    struct stack *stack = stack_of(head);
    if (unlikely(stack->sealed))
        stack_die_sealed(stack);
    if (unlikely(!is_power_of_two(align)))
        return frame_invalid();
    size = larger_of(size, 1);
    if (unlikely(size > PTRDIFF_MAX / 2 || align > PTRDIFF_MAX / 4))
        return frame_no_memory(); /* so that no sum overflows */
    void *block = stack_take(stack, size, align);
    while (unlikely(block == NULL) && stack_try_again(stack, size))
        block = stack_take(stack, size, align);
    return likely(block != NULL) ? block : frame_no_memory();
}

/* Ends the process unless the newest frame has the block. */
static void stack_check_frame_of(const struct stack *stack, const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    uintptr_t frame = (uintptr_t)stack->head->frame;
    uintptr_t above = stack_position(stack);
    bool outer = false;
    for (const struct stack_block *block = stack->current; block; block = block->older) {
        bool holds_frame = stack->head->frame != &stack->base && block_holds(block, frame);
        if (block_holds(block, address) && address < above) {
            if (outer || (holds_frame && address < frame))
                die("stack \"%s\": realloc of %p, which belongs to an outer frame", stack->name,
                    pointer);
            return;
        }
        outer |= holds_frame;
        above = block->older ? block->older->left_at : 0;
    }
    die("stack \"%s\": realloc of %p, which is not in it", stack->name, pointer);
}

/* Resizes a block in place.
 * Returns: NULL when this is not possible, and then nothing has changed. */
static void *stack_resize(struct stack *stack, void *pointer, size_t old_size, size_t new_size)
{
    if (unlikely(stack->sealed))
        stack_die_sealed(stack);
    stack_check_frame_of(stack, pointer);
    old_size = larger_of(old_size, 1);
    new_size = larger_of(new_size, 1);
    if (old_size > PTRDIFF_MAX / 2 || new_size > PTRDIFF_MAX / 2)
        return NULL;
    if (stack->checked)
        return stack_checked_resize(stack, pointer, old_size, new_size);
    old_size = align_up(old_size, STACK_GRANULE);
    new_size = align_up(new_size, STACK_GRANULE);
    uintptr_t start = (uintptr_t)pointer;
    if (start + old_size != stack_position(stack))
        return new_size <= old_size ? pointer : NULL;
    if (new_size > old_size && !stack_grow(stack, new_size - old_size, STACK_GRANULE))
        return NULL;
    stack_set_position(stack, start + new_size);
    return pointer;
}

api void *cairn_stack_realloc_slow(cairn_stack *head, void *pointer, size_t old_size,
                                   size_t new_size, size_t align)
{
    if (pointer == NULL)
        return cairn_stack_alloc_slow(head, new_size, align);
    if (!is_power_of_two(align))
        return frame_invalid();
    void *block = stack_resize(stack_of(head), pointer, old_size, new_size);
    if (block)
        return block;
    block = cairn_stack_alloc_slow(head, new_size, align);
    if (block)
        memcpy(block, pointer, smaller_of(old_size, new_size));
    return block;
}

api int cairn_stack_defer(cairn_stack *head, void (*function)(void *context), void *context)
{
    if (function == NULL)
        return EINVAL;
    struct stack_hook *hook =
        cairn_stack_alloc_slow(head, sizeof *hook, _Alignof(struct stack_hook));
    if (hook == NULL)
        return ENOMEM;
    struct stack *stack = head->inside;
    struct cairn_stack_frame *frame = stack->head->frame;
    *hook = (struct stack_hook){stack->hooks, frame->serial & ~SERIAL_FLAGS, function, context};
    frame->serial |= SERIAL_POP_SLOWLY;
    stack->hooks = hook;
    return 0;
}

void stack_run_hooks(struct stack *stack, uint64_t serial)
{
    while (stack->hooks && stack->hooks->serial >= serial) {
        const struct stack_hook *hook = stack->hooks;
        stack->hooks = hook->older; /* first, because the function may defer another one */
        hook->function(hook->context);
    }
}

static void *stack_allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_stack_alloc_slow(context, size, align);
}

static void *stack_allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    return pointer ? stack_resize(stack_of(context), pointer, old_size, new_size) : NULL;
}

static void stack_allocator_free(void *context, void *pointer, size_t size)
{
    (void)size;
    if (pointer)
        (void)stack_of(context);
}

api cairn_allocator cairn_stack_allocator(cairn_stack *stack)
{
    (void)stack_of(stack);
    static const struct cairn_allocator_operations operations = {
        .alloc = stack_allocator_alloc,
        .resize = stack_allocator_resize,
        .free = stack_allocator_free,
        .capabilities = CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER,
        .name = "stack",
    };
    return (cairn_allocator){stack, &operations};
}

static bool stack_options_make_sense(const cairn_stack_options *options)
{
    if (options->buffer == NULL)
        return options->buffer_bytes == 0 && !options->fixed;
    uintptr_t start = (uintptr_t)options->buffer;
    return options->buffer_bytes >= 2 * CAIRN_STACK_LIMIT_GRANULE &&
           options->buffer_bytes <= PTRDIFF_MAX && start <= UINTPTR_MAX - options->buffer_bytes;
}

struct stack *stack_make(const cairn_stack_options *options, cairn_stack *head)
{
    static const cairn_stack_options defaults = {0};
    options = options ? options : &defaults;
    os_init();
    if (!stack_options_make_sense(options))
        return frame_invalid();
    size_t most = options->max_bytes;
    if (most > PTRDIFF_MAX || options->reserve_bytes > PTRDIFF_MAX)
        return frame_no_memory();
    struct stack *stack = descriptor_take(DESCRIPTOR_STACK);
    if (stack == NULL)
        return frame_no_memory();
    *stack = (struct stack){
        .head = head ? head : &stack->own,
        .base = {.serial = SERIAL_POP_SLOWLY},
        .max_bytes = most ? align_up(most, os_page_size()) : SIZE_MAX,
        .reserve_bytes = options->reserve_bytes,
        .out_of_memory = options->out_of_memory,
        .out_of_memory_context = options->out_of_memory_context,
        .interval_start_ms = os_now_ms(),
        .fixed = options->fixed,
        .checked = frame_checked(),
    };
    *stack->head =
        (cairn_stack){.frame = &stack->base, .owner = __builtin_thread_pointer(), .inside = stack};
    frame_copy_name(stack->name, options->name, "stack");
    if (options->buffer && !stack_borrow(stack, options->buffer, options->buffer_bytes)) {
        stack_end(stack);
        return frame_no_memory();
    }
    return stack;
}

api cairn_stack *cairn_stack_new(const cairn_stack_options *options)
{
    struct stack *stack = stack_make(options, NULL);
    return stack ? stack->head : NULL;
}

/* Ends everything from `start` on, and makes its block the current one. */
static void stack_end_from(struct stack *stack, uintptr_t start)
{
    if (stack->checked)
        stack_checked_end(stack, start);
    struct stack_block *block = stack->current;
    while (!block_holds(block, start))
        block = block->older;
    stack->current = block; /* the newer blocks are spare now */
}

api void cairn_stack_reset(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    stack_run_hooks(stack, 0);
    stack->head->frame = &stack->base;
    stack->base.serial = SERIAL_POP_SLOWLY;
    stack->sealed = false;
    if (stack->first == NULL)
        return;
    if (stack->current)
        stack_end_from(stack, (uintptr_t)stack->first->base);
    stack_set_position(stack, (uintptr_t)stack->first->base);
    stack_tick(stack);
    stack_verify(stack);
}

void stack_end(struct stack *stack)
{
    stack_run_hooks(stack, 0);
    if (stack->checked && stack->current)
        stack_checked_end(stack, (uintptr_t)stack->first->base);
    stack_free_blocks(stack);
    *stack->head = (cairn_stack){.inside = stack}; /* a later use finds no owner */
    descriptor_give(DESCRIPTOR_STACK, stack);
}

static bool stack_is_threads_own(const struct stack *stack) { return stack->head != &stack->own; }

api int cairn_stack_delete(cairn_stack *head)
{
    if (head == NULL)
        return 0;
    struct stack *stack = stack_of(head);
    if (stack_is_threads_own(stack))
        return EBUSY;
    stack_end(stack);
    return 0;
}

api void cairn_stack_adopt(cairn_stack *head)
{
    const struct stack *stack = head->inside;
    void *self = __builtin_thread_pointer();
    if (head->owner == self)
        return;
    if (head->owner == NULL)
        stack_die_of_owner(head);
    if (stack_is_threads_own(stack))
        die("stack \"%s\": adoption of a thread's own stack", stack->name);
    head->owner = self;
}

api void cairn_stack_seal(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    uintptr_t position = stack_position(stack);
    stack->sealed = true;
    stack->head->frame->serial |= SERIAL_POP_SLOWLY;
    stack_set_position(stack, position);
}

api void cairn_stack_unseal(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    uintptr_t position = stack_position(stack);
    stack->sealed = false;
    stack_set_position(stack, position);
}

/* Opens a frame.
 * Returns: false when out of memory. */
static bool stack_push(struct stack *stack, cairn_mark *mark)
{
    uintptr_t start = stack_room(stack, sizeof(struct cairn_stack_frame), sizeof(void *));
    if (start == 0)
        return false;
    uint64_t serial = ++stack->head->serial;
    uint64_t flags = (stack->sealed ? SERIAL_FLAGS : 0) | (stack->checked ? SERIAL_POP_SLOWLY : 0);
    struct cairn_stack_frame *frame = (struct cairn_stack_frame *)start;
    mark_defined(frame, stack->checked ? sizeof *frame : 0);
    frame->previous = stack->head->frame;
    frame->serial = serial | flags;
    stack->head->frame = frame;
    stack->sealed = false;
    stack_set_position(stack, start + sizeof *frame);
    stack_verify(stack);
    *mark = (cairn_mark){frame, serial};
    return true;
}

api cairn_mark cairn_stack_push_slow(cairn_stack *head)
{
    struct stack *stack = stack_of(head);
    stack_tick(stack);
    cairn_mark mark = {0};
    while (unlikely(!stack_push(stack, &mark))) {
        if (!stack_try_again(stack, sizeof(struct cairn_stack_frame))) {
            frame_no_memory();
            break;
        }
    }
    return mark;
}

/* The number of frames above the mark's frame. Ends the process unless this frame is open. */
static size_t stack_frames_above(const struct stack *stack, cairn_mark mark)
{
    if (stack->head->frame == &stack->base)
        die("stack \"%s\": pop without a push", stack->name);
    size_t above = 0;
    for (const struct cairn_stack_frame *frame = stack->head->frame; frame != &stack->base;
         frame = frame->previous) {
        if (frame == mark.frame && (frame->serial & ~SERIAL_FLAGS) == mark.serial)
            return above;
        above++;
    }
    die("stack \"%s\": pop with a mark that is not open", stack->name);
}

api void cairn_stack_pop_slow(cairn_stack *head, cairn_mark mark)
{
    if (mark.frame == NULL)
        return; /* the push failed */
    struct stack *stack = stack_of(head);
    size_t above = stack_frames_above(stack, mark);
    if (unlikely(above > 0) && stack->checked)
        report("stack \"%s\": pop of an outer frame ends %zu inner ones", stack->name, above);
    if (stack->hooks && stack->hooks->serial >= mark.serial) {
        stack_run_hooks(stack, mark.serial);
        (void)stack_frames_above(stack, mark); /* a hook may have ended the frame */
    }
    struct cairn_stack_frame *below = mark.frame->previous;
    bool below_sealed = (mark.frame->serial & SERIAL_BELOW_SEALED) != 0;
    stack_end_from(stack, (uintptr_t)mark.frame);
    stack->head->frame = below;
    stack->sealed = below_sealed;
    stack_set_position(stack, (uintptr_t)mark.frame);
    stack_tick(stack);
    stack_verify(stack);
}

api size_t cairn_stack_trim(cairn_stack *head, size_t keep)
{
    struct stack *stack = stack_of(head);
    size_t given = stack_give_back(stack, keep);
    stack_verify(stack);
    return given;
}

api void cairn_stack_read_stats(const cairn_stack *head, cairn_stack_stats *stats)
{
    const struct stack *stack = stack_of(head);
    *stats = (cairn_stack_stats){0};
    bool used = stack->current != NULL;
    for (const struct stack_block *block = stack->first; block; block = block->newer) {
        uintptr_t base = (uintptr_t)block->base;
        if (used)
            stats->used_bytes +=
                (block == stack->current ? stack_position(stack) : block->left_at) - base;
        used = used && block != stack->current;
        stats->resident_bytes += block->resident;
        stats->reserved_bytes += block->reserved;
        stats->blocks++;
    }
    for (const struct cairn_stack_frame *frame = head->frame; frame != &stack->base;
         frame = frame->previous)
        stats->frames++;
}

/* Most strings are shorter and need one pass of vsnprintf. */
enum { SHORT_TEXT_BYTES = 128 };

api char *cairn_stack_vprintf(cairn_stack *stack, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    char short_text[SHORT_TEXT_BYTES];
    int length = vsnprintf(short_text, sizeof short_text, format, arguments);
    char *text = length < 0 ? NULL : cairn_stack_alloc_slow(stack, (size_t)length + 1, 1);
    if (text && (size_t)length < sizeof short_text)
        __builtin_memcpy(text, short_text, (size_t)length + 1);
    else if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

api char *cairn_stack_printf(cairn_stack *stack, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cairn_stack_vprintf(stack, format, arguments);
    va_end(arguments);
    return text;
}

/* The stack of each thread (cairn/scope.h).
 *
 * The head, which inline functions use, is thread-local memory; everything else is as in other
 * stacks. Before the first use and after the thread's end the head refers to a stack without owner
 * and without room, so the fast paths need no test. A pthread key deletes the stack at the thread's
 * end, after its remaining hooks have run with the stack still whole. A later destructor that
 * allocates makes a new stack, which the next round of destructors deletes.
 */

static struct cairn_stack_frame nothing;
/* const: no thread owns it, so no thread writes to it */
static struct stack no_stack = {.own = {.frame = &nothing, .owner = &nothing, .inside = &no_stack},
                                .head = &no_stack.own,
                                .name = "thread"};

api __thread cairn_stack cairn_thread_stack_head __attribute__((tls_model("initial-exec"))) = {
    .frame = &nothing, .owner = &nothing, .inside = &no_stack};

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;
static bool end_key_made; /* const after end_once */

static void thread_stack_at_thread_end(void *head) /* the head of the calling thread */
{
    stack_end(stack_of(head));
    cairn_thread_stack_head = no_stack.own;
}

static void thread_stack_make_end_key(void)
{
    end_key_made = pthread_key_create(&end_key, thread_stack_at_thread_end) == 0;
}

api cairn_stack *cairn_thread_stack(void)
{
    cairn_stack *head = &cairn_thread_stack_head;
    if (likely(head->inside != &no_stack))
        return head;
    pthread_once(&end_once, thread_stack_make_end_key);
    if (stack_make(&(cairn_stack_options){.name = "thread"}, head) == NULL)
        return NULL;
    /* A stack that the thread's end cannot delete would leak, so there is none then. When all keys
     * are in use, it does leak. */
    if (end_key_made && pthread_setspecific(end_key, head) != 0) {
        thread_stack_at_thread_end(head);
        return frame_no_memory();
    }
    return head;
}

api cairn_mark cairn_thread_stack_push(void)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_push_slow(stack) : (cairn_mark){0};
}

api void *cairn_thread_stack_alloc(size_t size, size_t align)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_alloc_slow(stack, size, align) : NULL;
}

api void *cairn_thread_stack_realloc(void *pointer, size_t old_size, size_t new_size, size_t align)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_realloc(stack, pointer, old_size, new_size, align) : NULL;
}

api int cairn_scope_defer(void (*function)(void *context), void *context)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_defer(stack, function, context) : ENOMEM;
}

api char *cairn_scope_vprintf(const char *format, va_list arguments)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_vprintf(stack, format, arguments) : NULL;
}

api char *cairn_scope_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cairn_scope_vprintf(format, arguments);
    va_end(arguments);
    return text;
}
