//! TLSF over buffers, with and without the rest of the library.
#![allow(missing_docs)]

use cairn_alloc::{Tlsf, TlsfBox};
use core::alloc::Layout;
use core::mem::MaybeUninit;

#[test]
fn blocks_of_all_sizes_come_and_go() {
    let mut memory = vec![MaybeUninit::uninit(); 1 << 20];
    let heap = Tlsf::new(&mut memory).unwrap();
    let whole = heap.largest_request();
    let mut held: Vec<(TlsfBox<[u64; 9]>, u64)> = Vec::new();
    let mut raw = Vec::new();
    for number in 0..20_000u64 {
        match heap.alloc([number; 9]) {
            Ok(block) => held.push((block, number)),
            Err(error) => {
                assert!(error.is_out_of_memory());
                held.drain(..1000);
            }
        }
        if number % 5 == 0 {
            let size = usize::try_from(number % 3000).unwrap();
            let layout = Layout::from_size_align(size, 1 << (number % 11)).unwrap();
            if let Ok(block) = heap.alloc_layout(layout) {
                assert_eq!(block.as_ptr().addr() % layout.align(), 0);
                raw.push((block, layout));
            }
        }
        if number % 7 == 0 && held.len() > 2 {
            let middle = held.len() / 2;
            let (block, value) = held.swap_remove(middle);
            assert_eq!(*block, [value; 9]);
        }
        if raw.len() > 50 {
            let (block, layout) = raw.swap_remove(25);
            // SAFETY: the block is freed once, with its layout.
            unsafe { heap.free(block, layout) };
        }
    }
    assert!(held.iter().all(|(block, value)| **block == [*value; 9]));
    drop(held);
    for (block, layout) in raw {
        // SAFETY: the block is freed once, with its layout.
        unsafe { heap.free(block, layout) };
    }
    assert_eq!((heap.used_blocks(), heap.largest_request()), (0, whole));
}

#[test]
fn values_drop_and_those_without_size_take_nothing() {
    struct Counted<'c>(&'c core::cell::Cell<u32>);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let drops = core::cell::Cell::new(0);
    let mut memory = [MaybeUninit::uninit(); 8192];
    let heap = Tlsf::new(&mut memory).unwrap();
    let empty = heap.alloc(()).unwrap();
    assert_eq!(heap.used_blocks(), 0);
    drop((heap.alloc(Counted(&drops)).unwrap(), empty));
    assert_eq!(drops.get(), 1);
    assert!(heap.alloc([0u8; 16_000]).unwrap_err().is_out_of_memory());
}

#[test]
fn a_heap_goes_from_thread_to_thread() {
    let mut memory = vec![MaybeUninit::uninit(); 65536];
    let heap = Tlsf::new(&mut memory).unwrap();
    let heap = std::thread::scope(|threads| {
        let used = threads.spawn(move || {
            assert_eq!(*heap.alloc(1).unwrap(), 1);
            heap
        });
        used.join().unwrap()
    });
    assert_eq!(*heap.alloc(2).unwrap(), 2);
}
