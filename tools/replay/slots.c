// The numbers of objects: see slots.h.
#include "slots.h"

#include "live.h"

#include <stdlib.h>
#include <string.h>

static void push(struct slot_list *list, uint32_t number)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 64;
        list->numbers = resize_array(list->numbers, list->capacity, sizeof *list->numbers);
    }
    list->numbers[list->count++] = number;
}

static void move_all(struct slot_list *to, struct slot_list *from)
{
    for (uint64_t at = 0; at < from->count; at++)
        push(to, from->numbers[at]);
    from->count = 0;
}

uint32_t slots_take(struct slots *slots, uint32_t thread)
{
    if (thread < slots->threads && slots->own[thread].count)
        return slots->own[thread].numbers[--slots->own[thread].count];
    if (slots->common.count)
        return slots->common.numbers[--slots->common.count];
    return (uint32_t)slots->made++;
}

void slots_give(struct slots *slots, uint32_t thread, uint32_t number)
{
    if (thread >= slots->threads) {
        uint32_t threads = (thread + 1) * 2;
        slots->own = resize_array(slots->own, threads, sizeof *slots->own);
        memset(slots->own + slots->threads, 0, (threads - slots->threads) * sizeof *slots->own);
        slots->threads = threads;
    }
    push(&slots->own[thread], number);
}

void slots_end_window(struct slots *slots)
{
    move_all(&slots->common, &slots->late[1]);
    move_all(&slots->late[1], &slots->late[0]);
    for (uint32_t thread = 0; thread < slots->threads; thread++) {
        struct slot_list *own = &slots->own[thread];
        while (own->count > SLOTS_OWN)
            push(&slots->late[0], own->numbers[--own->count]);
    }
}

void slots_end(struct slots *slots)
{
    for (uint32_t thread = 0; thread < slots->threads; thread++)
        free(slots->own[thread].numbers);
    free(slots->own);
    free(slots->common.numbers);
    free(slots->late[0].numbers);
    free(slots->late[1].numbers);
}
