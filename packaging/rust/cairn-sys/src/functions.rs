#![allow(clippy::wildcard_imports)]
use crate::types::*;
// Made by dev/rust_bindings.py from the headers in include/cairn: change those.
use core::ffi::{c_char, c_int, c_uint, c_void};

unsafe extern "C" {
    pub fn cairn_version() -> *const c_char;
    pub fn cairn_set_out_of_memory(
        out_of_memory: Option<unsafe extern "C" fn(*mut c_void, usize) -> bool>,
        context: *mut c_void,
    );
    pub fn cairn_set_error_function(on_error: Option<cairn_line_function>, context: *mut c_void);
    pub fn cairn_set_log_function(on_log: Option<cairn_line_function>, context: *mut c_void);
    pub fn cairn_get(key: *const c_char, value: *mut c_char, capacity: usize) -> c_int;
    pub fn cairn_set(key: *const c_char, value: *const c_char) -> c_int;
    pub fn cairn_do(action: *const c_char, argument: *const c_char) -> c_int;
    pub fn cairn_key(index: usize) -> *const c_char;
    pub fn cairn_control(request: *const c_char, answer: *mut c_char, capacity: usize) -> usize;
    pub fn cairn_fifo_new(options: *const cairn_fifo_options) -> *mut cairn_fifo;
    pub fn cairn_fifo_delete(fifo: *mut cairn_fifo) -> c_int;
    pub fn cairn_fifo_close(fifo: *mut cairn_fifo);
    pub fn cairn_fifo_realloc(
        fifo: *mut cairn_fifo,
        pointer: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
    ) -> *mut c_void;
    pub fn cairn_fifo_trim(fifo: *mut cairn_fifo, keep_bytes: usize) -> usize;
    pub fn cairn_fifo_adopt(fifo: *mut cairn_fifo);
    pub fn cairn_fifo_read_stats(fifo: *const cairn_fifo, stats: *mut cairn_fifo_stats);
    pub fn cairn_fifo_allocator(fifo: *mut cairn_fifo) -> cairn_allocator;
    pub fn cairn_fifo_alloc_slow(fifo: *mut cairn_fifo, size: usize, align: usize) -> *mut c_void;
    pub fn cairn_fifo_free_slow(fifo: *mut cairn_fifo, pointer: *mut c_void);
    pub fn cairn_fifo_end_page(fifo: *mut cairn_fifo, pointer: *mut c_void);
    pub fn cairn_malloc(size: usize) -> *mut c_void;
    pub fn cairn_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn cairn_realloc(pointer: *mut c_void, size: usize) -> *mut c_void;
    pub fn cairn_reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void;
    pub fn cairn_free(pointer: *mut c_void);
    pub fn cairn_free_sized(pointer: *mut c_void, size: usize);
    pub fn cairn_free_aligned_sized(pointer: *mut c_void, alignment: usize, size: usize);
    pub fn cairn_posix_memalign(result: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    pub fn cairn_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn cairn_memalign(alignment: usize, size: usize) -> *mut c_void;
    pub fn cairn_valloc(size: usize) -> *mut c_void;
    pub fn cairn_pvalloc(size: usize) -> *mut c_void;
    pub fn cairn_malloc_usable_size(pointer: *mut c_void) -> usize;
    pub fn cairn_good_size(size: usize) -> usize;
    pub fn cairn_malloc_at_least(size: usize, usable: *mut usize) -> *mut c_void;
    pub fn cairn_resize(pointer: *mut c_void, size: usize) -> *mut c_void;
    pub fn cairn_recallocarray(
        pointer: *mut c_void,
        old_count: usize,
        count: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_malloc_batch(count: usize, size: usize, blocks: *mut *mut c_void) -> usize;
    pub fn cairn_free_batch(count: usize, blocks: *const *mut c_void);
    pub fn cairn_thread_idle();
    pub fn cairn_malloc_trim(keep: usize) -> c_int;
    pub fn cairn_mallinfo2() -> cairn_mallinfo2;
    pub fn cairn_mallinfo() -> cairn_mallinfo;
    pub fn cairn_mallopt(parameter: c_int, value: c_int) -> c_int;
    pub fn cairn_malloc_stats();
    pub fn cairn_malloc_info(options: c_int, stream: *mut c_void) -> c_int;
    pub fn cairn_heap_allocator() -> cairn_allocator;
    pub fn cairn_pages_map(size: usize, align: usize, flags: c_uint) -> *mut c_void;
    pub fn cairn_pages_unmap(pointer: *mut c_void, size: usize) -> c_int;
    pub fn cairn_pages_remap(
        pointer: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
        flags: c_uint,
    ) -> *mut c_void;
    pub fn cairn_pages_purge(keep_bytes: usize) -> bool;
    pub fn cairn_pages_allocator() -> cairn_allocator;
    pub fn cairn_persist_open(
        path: *const c_char,
        options: *const cairn_persist_options,
    ) -> *mut cairn_persist;
    pub fn cairn_persist_close(heap: *mut cairn_persist) -> c_int;
    pub fn cairn_persist_allocator(heap: *mut cairn_persist) -> cairn_allocator;
    pub fn cairn_persist_set_root(
        heap: *mut cairn_persist,
        name: *const c_char,
        block: *mut c_void,
    ) -> c_int;
    pub fn cairn_persist_get_root(heap: *mut cairn_persist, name: *const c_char) -> *mut c_void;
    pub fn cairn_persist_remove_root(heap: *mut cairn_persist, name: *const c_char) -> c_int;
    pub fn cairn_persist_walk_roots(
        heap: *mut cairn_persist,
        visit: Option<cairn_persist_visit>,
        context: *mut c_void,
    );
    pub fn cairn_persist_commit(heap: *mut cairn_persist) -> c_int;
    pub fn cairn_persist_commit_async(
        heap: *mut cairn_persist,
        ticket: *mut cairn_persist_ticket,
    ) -> c_int;
    pub fn cairn_persist_wait(heap: *mut cairn_persist, ticket: cairn_persist_ticket) -> c_int;
    pub fn cairn_persist_abort(heap: *mut cairn_persist) -> c_int;
    pub fn cairn_persist_checkpoint(heap: *mut cairn_persist) -> c_int;
    pub fn cairn_persist_grow(heap: *mut cairn_persist, size: usize) -> c_int;
    pub fn cairn_persist_trim(heap: *mut cairn_persist) -> c_int;
    pub fn cairn_persist_check(heap: *mut cairn_persist) -> *const c_char;
    pub fn cairn_persist_read_stats(heap: *mut cairn_persist, stats: *mut cairn_persist_stats);
    pub fn cairn_persist_count_dirty(heap: *mut cairn_persist, pages: *mut usize) -> c_int;
    pub fn cairn_pool_new(
        object_size: usize,
        align: usize,
        options: *const cairn_pool_options,
    ) -> *mut cairn_pool;
    pub fn cairn_pool_delete(pool: *mut cairn_pool) -> c_int;
    pub fn cairn_pool_get_zero(pool: *mut cairn_pool) -> *mut c_void;
    pub fn cairn_pool_trim(pool: *mut cairn_pool) -> usize;
    pub fn cairn_pool_walk(
        pool: *mut cairn_pool,
        visit: Option<cairn_pool_visit>,
        context: *mut c_void,
    );
    pub fn cairn_pool_read_stats(pool: *mut cairn_pool, stats: *mut cairn_pool_stats);
    pub fn cairn_pool_check(pool: *mut cairn_pool) -> *const c_char;
    pub fn cairn_pool_attach(pool: *mut cairn_pool) -> *mut cairn_pool_magazine;
    pub fn cairn_pool_detach(magazine: *mut cairn_pool_magazine);
    pub fn cairn_pool_magazine_get_zero(magazine: *mut cairn_pool_magazine) -> *mut c_void;
    pub fn cairn_pool_allocator(pool: *mut cairn_pool) -> cairn_allocator;
    pub fn cairn_pool_get_slowly(magazine: *mut cairn_pool_magazine) -> *mut c_void;
    pub fn cairn_pool_put_slowly(magazine: *mut cairn_pool_magazine, object: *mut c_void);
    pub fn cairn_private_heap_new(
        options: *const cairn_private_heap_options,
    ) -> *mut cairn_private_heap;
    pub fn cairn_private_heap_delete(heap: *mut cairn_private_heap) -> c_int;
    pub fn cairn_private_heap_alloc(heap: *mut cairn_private_heap, size: usize) -> *mut c_void;
    pub fn cairn_private_heap_alloc_zero(heap: *mut cairn_private_heap, size: usize) -> *mut c_void;
    pub fn cairn_private_heap_alloc_array(
        heap: *mut cairn_private_heap,
        count: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_private_heap_alloc_array_zero(
        heap: *mut cairn_private_heap,
        count: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_private_heap_alloc_aligned(
        heap: *mut cairn_private_heap,
        size: usize,
        align: usize,
    ) -> *mut c_void;
    pub fn cairn_private_heap_realloc(
        heap: *mut cairn_private_heap,
        pointer: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_private_heap_resize(
        heap: *mut cairn_private_heap,
        pointer: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_private_heap_free(heap: *mut cairn_private_heap, pointer: *mut c_void);
    pub fn cairn_private_heap_of(pointer: *const c_void) -> *mut cairn_private_heap;
    pub fn cairn_private_heap_set_limit(heap: *mut cairn_private_heap, limit_bytes: usize);
    pub fn cairn_private_heap_trim(heap: *mut cairn_private_heap);
    pub fn cairn_private_heap_read_stats(
        heap: *mut cairn_private_heap,
        stats: *mut cairn_private_heap_stats,
    );
    pub fn cairn_private_heap_allocator(heap: *mut cairn_private_heap) -> cairn_allocator;
    pub fn cairn_profile_start(interval_bytes: usize) -> c_int;
    pub fn cairn_profile_stop();
    pub fn cairn_profile_reset();
    pub fn cairn_profile_dump(path: *const c_char) -> c_int;
    pub fn cairn_profile_read_stats(stats: *mut cairn_profile_stats);
    pub fn cairn_ring_new(options: *const cairn_ring_options) -> *mut cairn_ring;
    pub fn cairn_ring_delete(ring: *mut cairn_ring) -> c_int;
    pub fn cairn_ring_close(ring: *mut cairn_ring);
    pub fn cairn_ring_open(ring: *mut cairn_ring) -> cairn_frame;
    pub fn cairn_ring_seal(ring: *mut cairn_ring) -> cairn_frame;
    pub fn cairn_ring_retain(frame: cairn_frame, more: c_uint);
    pub fn cairn_ring_release(frame: cairn_frame);
    pub fn cairn_ring_checkpoint(ring: *const cairn_ring) -> cairn_checkpoint;
    pub fn cairn_ring_rewind(ring: *mut cairn_ring, checkpoint: cairn_checkpoint) -> c_int;
    pub fn cairn_ring_trim(ring: *mut cairn_ring, keep_bytes: usize) -> usize;
    pub fn cairn_ring_adopt(ring: *mut cairn_ring);
    pub fn cairn_ring_read_stats(ring: *const cairn_ring, stats: *mut cairn_ring_stats);
    pub fn cairn_ring_allocator(ring: *mut cairn_ring) -> cairn_allocator;
    pub fn cairn_ring_alloc_slow(ring: *mut cairn_ring, size: usize, align: usize) -> *mut c_void;
    pub fn cairn_stack_new(options: *const cairn_stack_options) -> *mut cairn_stack;
    pub fn cairn_stack_delete(stack: *mut cairn_stack) -> c_int;
    pub fn cairn_stack_reset(stack: *mut cairn_stack);
    pub fn cairn_stack_defer(
        stack: *mut cairn_stack,
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        context: *mut c_void,
    ) -> c_int;
    pub fn cairn_stack_seal(stack: *mut cairn_stack);
    pub fn cairn_stack_unseal(stack: *mut cairn_stack);
    pub fn cairn_stack_trim(stack: *mut cairn_stack, keep_bytes: usize) -> usize;
    pub fn cairn_stack_adopt(stack: *mut cairn_stack);
    pub fn cairn_stack_read_stats(stack: *const cairn_stack, stats: *mut cairn_stack_stats);
    pub fn cairn_stack_allocator(stack: *mut cairn_stack) -> cairn_allocator;
    pub fn cairn_stack_printf(stack: *mut cairn_stack, format: *const c_char, ...) -> *mut c_char;
    pub fn cairn_stack_push_slow(stack: *mut cairn_stack) -> cairn_mark;
    pub fn cairn_stack_pop_slow(stack: *mut cairn_stack, mark: cairn_mark);
    pub fn cairn_stack_alloc_slow(
        stack: *mut cairn_stack,
        size: usize,
        align: usize,
    ) -> *mut c_void;
    pub fn cairn_stack_realloc_slow(
        stack: *mut cairn_stack,
        pointer: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
    ) -> *mut c_void;
    pub fn cairn_thread_stack() -> *mut cairn_stack;
    pub fn cairn_scope_defer(
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        context: *mut c_void,
    ) -> c_int;
    pub fn cairn_scope_printf(format: *const c_char, ...) -> *mut c_char;
    pub fn cairn_thread_stack_push() -> cairn_mark;
    pub fn cairn_thread_stack_alloc(size: usize, align: usize) -> *mut c_void;
    pub fn cairn_thread_stack_realloc(
        pointer: *mut c_void,
        old_size: usize,
        new_size: usize,
        align: usize,
    ) -> *mut c_void;
    pub fn cairn_heap_read_stats(stats: *mut cairn_heap_stats);
    pub fn cairn_heap_read_class_stats(rows: *mut cairn_heap_class_stats, count: usize) -> usize;
    pub fn cairn_heap_read_thread_stats(rows: *mut cairn_heap_thread_stats, count: usize) -> usize;
    pub fn cairn_tlsf_init(memory: *mut c_void, size: usize) -> *mut cairn_tlsf;
    pub fn cairn_tlsf_init_for(
        memory: *mut c_void,
        size: usize,
        largest_region: usize,
    ) -> *mut cairn_tlsf;
    pub fn cairn_tlsf_control_bytes(size: usize, largest_region: usize) -> usize;
    pub fn cairn_tlsf_bytes_for(capacity: usize) -> usize;
    pub fn cairn_tlsf_new(capacity: usize) -> *mut cairn_tlsf;
    pub fn cairn_tlsf_delete(heap: *mut cairn_tlsf) -> c_int;
    pub fn cairn_tlsf_add(heap: *mut cairn_tlsf, memory: *mut c_void, size: usize) -> c_int;
    pub fn cairn_tlsf_remove(heap: *mut cairn_tlsf, memory: *mut c_void) -> c_int;
    pub fn cairn_tlsf_set_out_of_memory(
        heap: *mut cairn_tlsf,
        out_of_memory: Option<unsafe extern "C" fn(*mut c_void, usize) -> bool>,
        context: *mut c_void,
    );
    pub fn cairn_tlsf_alloc(heap: *mut cairn_tlsf, size: usize) -> *mut c_void;
    pub fn cairn_tlsf_alloc_zero(heap: *mut cairn_tlsf, size: usize) -> *mut c_void;
    pub fn cairn_tlsf_alloc_array(heap: *mut cairn_tlsf, count: usize, size: usize) -> *mut c_void;
    pub fn cairn_tlsf_alloc_array_zero(
        heap: *mut cairn_tlsf,
        count: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_alloc_aligned(
        heap: *mut cairn_tlsf,
        size: usize,
        align: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_realloc(
        heap: *mut cairn_tlsf,
        pointer: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_resize(
        heap: *mut cairn_tlsf,
        pointer: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_free(heap: *mut cairn_tlsf, pointer: *mut c_void);
    pub fn cairn_tlsf_usable(heap: *const cairn_tlsf, pointer: *const c_void) -> usize;
    pub fn cairn_tlsf_walk(
        heap: *const cairn_tlsf,
        visit: Option<cairn_tlsf_visit>,
        context: *mut c_void,
    );
    pub fn cairn_tlsf_check(heap: *const cairn_tlsf) -> *const c_char;
    pub fn cairn_tlsf_read_stats(heap: *const cairn_tlsf, stats: *mut cairn_tlsf_stats);
    pub fn cairn_tlsf_share(heap: *mut cairn_tlsf) -> *mut cairn_tlsf_shared;
    pub fn cairn_tlsf_unshare(shared: *mut cairn_tlsf_shared) -> *mut cairn_tlsf;
    pub fn cairn_tlsf_shared_alloc(shared: *mut cairn_tlsf_shared, size: usize) -> *mut c_void;
    pub fn cairn_tlsf_shared_alloc_zero(shared: *mut cairn_tlsf_shared, size: usize) -> *mut c_void;
    pub fn cairn_tlsf_shared_alloc_array(
        shared: *mut cairn_tlsf_shared,
        count: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_shared_alloc_array_zero(
        shared: *mut cairn_tlsf_shared,
        count: usize,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_shared_alloc_aligned(
        shared: *mut cairn_tlsf_shared,
        size: usize,
        align: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_shared_realloc(
        shared: *mut cairn_tlsf_shared,
        pointer: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_shared_resize(
        shared: *mut cairn_tlsf_shared,
        pointer: *mut c_void,
        size: usize,
    ) -> *mut c_void;
    pub fn cairn_tlsf_shared_free(shared: *mut cairn_tlsf_shared, pointer: *mut c_void);
    pub fn cairn_tlsf_shared_usable(
        shared: *mut cairn_tlsf_shared,
        pointer: *const c_void,
    ) -> usize;
    pub fn cairn_tlsf_shared_add(
        shared: *mut cairn_tlsf_shared,
        memory: *mut c_void,
        size: usize,
    ) -> c_int;
    pub fn cairn_tlsf_shared_remove(shared: *mut cairn_tlsf_shared, memory: *mut c_void) -> c_int;
    pub fn cairn_tlsf_shared_walk(
        shared: *mut cairn_tlsf_shared,
        visit: Option<cairn_tlsf_visit>,
        context: *mut c_void,
    );
    pub fn cairn_tlsf_shared_check(shared: *mut cairn_tlsf_shared) -> *const c_char;
    pub fn cairn_tlsf_shared_read_stats(
        shared: *mut cairn_tlsf_shared,
        stats: *mut cairn_tlsf_stats,
    );
    pub fn cairn_tlsf_allocator(heap: *mut cairn_tlsf) -> cairn_allocator;
    pub fn cairn_tlsf_shared_allocator(shared: *mut cairn_tlsf_shared) -> cairn_allocator;
}
// Inline functions that the library also has as symbols, in cairn-sys/shim.c.
unsafe extern "C" {
    pub fn cairn_sys_fifo_alloc(fifo: *mut cairn_fifo, size: usize, align: usize) -> *mut c_void;
    pub fn cairn_sys_fifo_free(fifo: *mut cairn_fifo, pointer: *mut c_void);
    pub fn cairn_sys_ring_alloc(ring: *mut cairn_ring, size: usize, align: usize) -> *mut c_void;
    pub fn cairn_sys_pool_get(pool: *mut cairn_pool) -> *mut c_void;
    pub fn cairn_sys_pool_put(pool: *mut cairn_pool, object: *mut c_void);
    pub fn cairn_sys_pool_magazine_get(magazine: *mut cairn_pool_magazine) -> *mut c_void;
    pub fn cairn_sys_pool_magazine_put(magazine: *mut cairn_pool_magazine, object: *mut c_void);
}
