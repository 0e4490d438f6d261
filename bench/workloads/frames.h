// Cairn's stack, FIFO and ring, where the library under test has them.
//
// The workloads are linked with no allocator. The functions of these public headers are weak here:
// a preloaded Cairn provides them, and under any other allocator they are null.
#ifndef CAIRN_BENCH_FRAMES_H
#define CAIRN_BENCH_FRAMES_H

#include <cairn/fifo.h>
#include <cairn/ring.h>
#include <cairn/stack.h>

#pragma weak cairn_stack_new
#pragma weak cairn_stack_delete
#pragma weak cairn_stack_alloc_slow
#pragma weak cairn_stack_push_slow
#pragma weak cairn_stack_pop_slow
#pragma weak cairn_fifo_new
#pragma weak cairn_fifo_delete
#pragma weak cairn_fifo_alloc_slow
#pragma weak cairn_fifo_free_slow
#pragma weak cairn_fifo_end_page
#pragma weak cairn_ring_new
#pragma weak cairn_ring_close
#pragma weak cairn_ring_adopt
#pragma weak cairn_ring_open
#pragma weak cairn_ring_seal
#pragma weak cairn_ring_release
#pragma weak cairn_ring_alloc_slow

#endif
