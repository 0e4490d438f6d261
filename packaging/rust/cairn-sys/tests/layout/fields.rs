// Made by dev/rust_bindings.py.
{
    layout!(text:
        cairn_allocator_operations {
            alloc,
            resize,
            free,
            capabilities,
            name
        }
        cairn_allocator {
            context,
            operations
        }
        cairn_fifo_options {
            max_bytes,
            name,
            any_thread_free,
            out_of_memory,
            out_of_memory_context
        }
        cairn_fifo_stats {
            segment_bytes,
            spare_bytes,
            reserved_bytes,
            returned_bytes
        }
        cairn_fifo {
            position,
            limit,
            owner,
            made
        }
        cairn_fifo_group {
            tag,
            live
        }
        cairn_mallinfo2 {
            arena,
            ordblks,
            smblks,
            hblks,
            hblkhd,
            usmblks,
            fsmblks,
            uordblks,
            fordblks,
            keepcost
        }
        cairn_mallinfo {
            arena,
            ordblks,
            smblks,
            hblks,
            hblkhd,
            usmblks,
            fsmblks,
            uordblks,
            fordblks,
            keepcost
        }
        cairn_persist_options {
            flags,
            tracking,
            address,
            size_bytes,
            capacity_bytes,
            log_bytes,
            why
        }
        cairn_persist_stats {
            address,
            moved,
            tracking,
            size_bytes,
            capacity_bytes,
            used_bytes,
            free_bytes,
            used_blocks,
            last_commit,
            durable_commit,
            recovered_commits,
            log_bytes,
            logged_pages,
            logged_bytes,
            skipped_pages,
            syncs,
            error
        }
        cairn_offset {
            distance
        }
        cairn_pool_options {
            name,
            max_objects,
            shared,
            out_of_memory,
            out_of_memory_context
        }
        cairn_pool_stats {
            name,
            object_bytes,
            live_objects,
            free_objects,
            slabs,
            slab_bytes
        }
        cairn_pool_entry {
            object,
            state
        }
        cairn_pool_view {
            top,
            limit,
            inverse,
            numbers,
            recent
        }
        cairn_private_heap_options {
            limit_bytes,
            out_of_memory,
            context
        }
        cairn_private_heap_stats {
            live_bytes,
            live_blocks,
            large_bytes,
            large_blocks,
            held_bytes,
            peak_bytes,
            limit_bytes,
            refusals
        }
        cairn_profile_stats {
            is_on,
            interval_bytes,
            samples,
            live_samples,
            allocated_bytes,
            live_bytes,
            sites,
            lost_stacks,
            lost_blocks
        }
        cairn_frame {
            chunk,
            index,
            generation
        }
        cairn_checkpoint {
            chunk,
            position,
            sealed,
            opened,
            open
        }
        cairn_ring_options {
            max_bytes,
            name,
            out_of_memory,
            out_of_memory_context
        }
        cairn_ring_stats {
            chunk_bytes,
            spare_bytes,
            sealed,
            chunks
        }
        cairn_ring {
            position,
            limit,
            owner
        }
        cairn_mark {
            frame,
            serial
        }
        cairn_stack_options {
            reserve_bytes,
            max_bytes,
            name,
            buffer,
            buffer_bytes,
            fixed,
            out_of_memory,
            out_of_memory_context
        }
        cairn_stack_stats {
            used_bytes,
            resident_bytes,
            reserved_bytes,
            blocks,
            frames
        }
        cairn_stack_frame {
            previous,
            serial
        }
        cairn_stack {
            position,
            limit,
            frame,
            owner,
            serial,
            inside
        }
        cairn_heap_stats {
            allocated_bytes,
            allocated_blocks,
            large_bytes,
            large_blocks,
            guarded_bytes,
            guarded_blocks,
            active_bytes,
            slab_bytes,
            free_bytes,
            dirty_bytes,
            mapped_bytes,
            retained_bytes,
            metadata_bytes,
            thread_heaps,
            purged_bytes,
            purges,
            map_calls,
            protect_calls,
            unmap_calls,
            advise_calls,
            remap_calls
        }
        cairn_heap_class_stats {
            block_bytes,
            live_blocks,
            free_blocks,
            slabs,
            slab_bytes
        }
        cairn_heap_thread_stats {
            heap,
            is_current,
            is_orphan,
            live_blocks,
            live_bytes,
            slabs,
            slab_bytes
        }
        cairn_tlsf_stats {
            total_bytes,
            used_bytes,
            free_bytes,
            least_free_bytes,
            largest_request_bytes,
            used_blocks,
            regions
        }
    );
    constants!(text:
        CAIRN_VERSION_MAJOR
        CAIRN_VERSION_MINOR
        CAIRN_VERSION_PATCH
        CAIRN_FIFO_PAGE_SHIFT
        CAIRN_FIFO_PAGES
        CAIRN_FIFO_INLINE_ALIGN
        CAIRN_RING_INLINE_ALIGN
        CAIRN_STACK_INLINE_ALIGN
        CAIRN_STACK_LIMIT_GRANULE
        CAIRN_STACK_PUSH_TICK
        CAIRN_CAN_FREE
        CAIRN_CAN_RESIZE
        CAIRN_FREES_TOGETHER
        CAIRN_ANY_THREAD
        CAIRN_ANY_THREAD_FREE
        CAIRN_ONE_SIZE
        CAIRN_OUT_OF_MEMORY_TRIES
        CAIRN_VALUE_BYTES
        CAIRN_ANSWER_BYTES
        CAIRN_PAGES_ZERO
        CAIRN_PAGES_HUGE
        CAIRN_PAGES_POPULATE
        CAIRN_PERSIST_CREATE
        CAIRN_PERSIST_READ_ONLY
        CAIRN_PERSIST_FIXED
        CAIRN_PERSIST_WRITERS_PAUSE
        CAIRN_PERSIST_CHECK
        CAIRN_PERSIST_AUTO
        CAIRN_PERSIST_USERFAULT
        CAIRN_PERSIST_SCAN
        CAIRN_PERSIST_PAGEMAP
        CAIRN_PERSIST_PROTECT
        CAIRN_POOL_RECENT
        CAIRN_POOL_RECENT_SHIFT
        CAIRN_POOL_NUMBER_SHIFT
        CAIRN_PRIVATE_HEAP_TRIES
        CAIRN_PROFILE_INTERVAL
        CAIRN_TLSF_ALLOC_INSTRUCTIONS
        CAIRN_TLSF_FREE_INSTRUCTIONS
        CAIRN_TLSF_REGION_INSTRUCTIONS
        CAIRN_TLSF_REGION_OVERHEAD_BYTES
        CAIRN_TLSF_BLOCK_OVERHEAD_BYTES
        CAIRN_TLSF_BLOCK_MIN_BYTES
        CAIRN_TLSF_ALIGNMENT_BYTES
        CAIRN_TLSF_NEW_BYTES
    );
}
