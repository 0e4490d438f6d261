//! A private heap. This is the only test of its process, because it compares statistics of the
//! whole process.
#![cfg(feature = "heap")]
#![allow(missing_docs)]

use cairn_alloc::PrivateHeap;
use std::thread;

#[test]
fn a_heap_of_its_own_is_used_by_many_threads_and_ends_with_what_was_forgotten() {
    #[repr(align(4096))]
    struct Page([u8; 4096]);

    let before = cairn_alloc::Cairn::stats().allocated_blocks;
    let heap = PrivateHeap::with_limit(32 << 20).unwrap();
    thread::scope(|threads| {
        for number in 0..4u64 {
            let heap = &heap;
            threads.spawn(move || {
                let mut held = Vec::new();
                for round in 0..2000 {
                    held.push(heap.alloc([number + round; 20]).unwrap());
                    if round % 3 == 0 {
                        let middle = held.len() / 2;
                        held.swap_remove(middle);
                    }
                    if round % 100 == 0 {
                        std::mem::forget(heap.alloc([0u64; 2000]).unwrap());
                    }
                }
                held
            });
        }
    });
    assert_eq!((heap.stats().live_blocks, heap.stats().large_blocks), (80, 0));
    let page = heap.alloc(Page([7; 4096])).unwrap();
    assert_eq!((std::ptr::from_ref(&*page).addr() % 4096, page.0[4095]), (0, 7));
    drop(page);
    drop(heap);
    assert!(cairn_alloc::Cairn::stats().allocated_blocks <= before);
}
