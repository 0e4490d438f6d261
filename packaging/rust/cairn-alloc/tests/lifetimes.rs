//! Scopes, rings, FIFOs and pools with lifetimes that end in another order or in another thread.
//! The documentation of each type has the programs that must not compile.
#![cfg(feature = "heap")]
#![allow(missing_docs)]

use cairn_alloc::{Contents, Fifo, Pool, Ring, Shared, Stack, StackOptions, scope};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

struct Counted<'c>(&'c AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn scopes_nest_and_memory_is_used_again() {
    let mut places = Vec::new();
    for round in 0..100u32 {
        scope(|s| {
            let outer = s.alloc_slice_with(100, |index| index);
            let inner_place = s.scope(|inner| {
                let block = inner.alloc([round; 1000]);
                assert!(block.iter().all(|number| *number == round));
                block.as_ptr().addr()
            });
            let again = s.scope(|inner| inner.alloc([0u32; 1000]).as_ptr().addr());
            assert_eq!(inner_place, again);
            assert!(outer.iter().enumerate().all(|(index, number)| index == *number));
            places.push(outer.as_ptr().addr());
        });
    }
    places.dedup();
    assert!(places.len() <= 2, "{}", places.len());
}

#[test]
fn an_outer_scope_cannot_be_used_behind_an_inner_ones_back() {
    scope(|outer| {
        let said = catch_unwind(AssertUnwindSafe(|| {
            scope(|_inner| {
                outer.alloc(1); // would end with the inner frame
            });
        }))
        .unwrap_err();
        let said = said.downcast_ref::<&str>().copied().unwrap_or_default();
        assert!(said.contains("while one within it is open"), "{said}");
        assert_eq!(*outer.alloc(2), 2);
    });
}

#[test]
fn a_panic_ends_the_frames_that_it_passes() {
    let mut stack = Stack::new(&StackOptions::default()).unwrap();
    let place = stack.scope(|s| s.alloc(1).addr_of());
    for _ in 0..3 {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            stack.scope(|s| s.scope(|inner| assert_eq!(*inner.alloc(1), 2)));
        }));
        assert!(caught.is_err());
        assert_eq!(stack.scope(|s| s.alloc(1).addr_of()), place);
    }
}

trait AddressOf {
    fn addr_of(&self) -> usize;
}

impl AddressOf for i32 {
    fn addr_of(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[test]
fn boxes_in_scopes_drop_and_plain_values_do_not() {
    let drops = AtomicUsize::new(0);
    scope(|s| {
        s.alloc(Counted(&drops));
        let kept = s.alloc_box(Counted(&drops));
        drop(s.alloc_box(Counted(&drops)));
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        drop(kept);
    });
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[test]
fn large_aligned_and_empty_values_have_their_places() {
    #[repr(align(8192))]
    struct Aligned(u8);

    scope(|s| {
        for number in 0..50u8 {
            let aligned = s.alloc(Aligned(number));
            assert_eq!(std::ptr::from_ref(aligned).addr() % 8192, 0);
            assert_eq!(aligned.0, number);
            s.alloc(());
            assert_eq!(s.alloc_slice_copy::<u64>(&[]).len(), 0);
            assert_eq!(s.alloc_str(""), "");
        }
        let large = s.alloc_slice_with(10_000_000, |index| index);
        assert_eq!(large[9_999_999], 9_999_999);
        assert_eq!(s.alloc_fmt(format_args!("{:>5}|{}", 7, "ö")), "    7|ö");
    });
}

#[test]
fn each_thread_has_its_own_stack() {
    thread::scope(|threads| {
        for number in 0..8u64 {
            threads.spawn(move || {
                for round in 0..1000 {
                    scope(|s| {
                        let block = s.alloc([number * round; 64]);
                        assert!(block.iter().all(|value| *value == number * round));
                    });
                }
            });
        }
    });
}

struct Job;

impl Contents for Job {
    type Of<'f> = (u64, &'f [u64]);
}

#[test]
fn frames_are_released_by_other_threads_in_any_order() {
    let mut ring = Ring::with_limit(1 << 22).unwrap();
    let (sender, receiver) = mpsc::channel::<cairn_alloc::Frame<Job>>();
    let workers = thread::spawn(move || {
        let mut late = Vec::new();
        let mut sum = 0;
        for (number, frame) in receiver.into_iter().enumerate() {
            sum += frame.with(|(first, rest)| first + rest.iter().sum::<u64>());
            let other = frame.clone();
            thread::scope(|threads| threads.spawn(move || drop(other)).join().unwrap());
            if number % 7 == 0 {
                late.push(frame);
            }
            if late.len() > 20 {
                late.clear();
            }
        }
        sum
    });
    let mut expected = 0;
    for number in 0..2000u64 {
        let frame = loop {
            let made = ring.frame::<Job>(|f| {
                Ok((number, f.alloc_slice_with(100, |index| index as u64 + number)?))
            });
            match made {
                Ok(frame) => break frame,
                Err(error) => assert!(error.is_out_of_memory()),
            }
            thread::yield_now();
        };
        expected += number + 4950 + 100 * number;
        sender.send(frame).unwrap();
    }
    drop((sender, ring));
    assert_eq!(workers.join().unwrap(), expected);
}

#[test]
fn a_frame_that_fails_or_panics_leaves_the_ring_as_it_was() {
    let mut ring = Ring::new().unwrap();
    let failed = ring.frame::<Job>(|f| {
        f.alloc([1u8; 100])?;
        Ok((0, f.alloc_slice_with(usize::MAX, |_| 0)?))
    });
    assert!(failed.unwrap_err().is_out_of_memory());
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = ring.frame::<Job>(|_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    let frame = ring.frame::<Job>(|f| Ok((1, f.alloc_slice_with(1, |_| 2)?))).unwrap();
    assert_eq!(frame.with(|job| (job.0, job.1[0])), (1, 2));
}

#[test]
fn objects_outlive_their_fifo_and_drop_once() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let fifo = Fifo::new().unwrap();
    let objects: Vec<_> = (0..1000).map(|_| fifo.alloc(Counted(&DROPS)).unwrap()).collect();
    drop(fifo);
    thread::spawn(move || drop(objects)).join().unwrap();
    assert_eq!(DROPS.load(Ordering::Relaxed), 1000);
    let other = Fifo::new().unwrap();
    std::mem::forget(other.alloc(()).unwrap());
    assert_eq!(DROPS.load(Ordering::Relaxed), 1000);
}

#[test]
fn a_shared_pool_serves_many_threads() {
    let pool = Pool::<Cell<u64>, Shared>::shared().unwrap();
    thread::scope(|threads| {
        for number in 0..4 {
            let pool = &pool;
            threads.spawn(move || {
                let mut magazine = pool.attach().unwrap();
                let mut held = Vec::new();
                for round in 0..5000 {
                    held.push(magazine.get(Cell::new(round)).unwrap());
                    held.push(pool.get(Cell::new(round)).unwrap());
                    if round % 3 == number % 3 {
                        let object = held.swap_remove(held.len() / 2);
                        object.set(object.get() + 1);
                        magazine.put(object);
                    }
                    if held.len() > 500 {
                        held.clear();
                    }
                }
            });
        }
    });
    assert_eq!(pool.live(), 0);
}

#[test]
fn values_in_a_pool_drop_once_whoever_takes_them() {
    let drops = AtomicUsize::new(0);
    let pool = Pool::new().unwrap();
    drop(pool.get(Counted(&drops)).unwrap());
    let taken = pool.get(Counted(&drops)).unwrap().into_inner();
    assert_eq!((drops.load(Ordering::Relaxed), pool.live()), (1, 0));
    drop(taken);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[test]
fn a_drop_that_panics_still_gives_the_place_back() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let pool = Pool::new().unwrap();
    let object = pool.get(Panics).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(object))).is_err());
    assert_eq!(pool.live(), 0);
}
