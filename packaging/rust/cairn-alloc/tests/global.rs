//! The heap is the global allocator of this whole test program: its harness, threads and
//! collections.
#![cfg(feature = "heap")]
#![allow(missing_docs)]

use cairn_alloc::Cairn;
use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

#[global_allocator]
static HEAP: Cairn = Cairn;

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    /// A random size of a block: small ones are as frequent as large ones.
    fn size(&mut self) -> usize {
        let most = 1 << self.below(18);
        1 + self.below(most)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) >> 1).unwrap() % limit
    }
}

struct Block {
    start: *mut u8,
    layout: Layout,
    tag: u8,
}

// SAFETY: one thread uses a block at a time.
unsafe impl Send for Block {}

impl Block {
    fn new(random: &mut Random) -> Self {
        let size = random.size();
        let layout = Layout::from_size_align(size, 1 << random.below(13)).unwrap();
        let tag = u8::try_from(random.below(256)).unwrap();
        // SAFETY: the size is not 0, and the bytes are written within it.
        unsafe {
            let start = if tag % 2 == 0 {
                let start = Cairn.alloc_zeroed(layout);
                assert!((0..size).all(|at| *start.add(at) == 0), "not zero");
                start
            } else {
                Cairn.alloc(layout)
            };
            assert!(!start.is_null() && start.addr() % layout.align() == 0);
            start.write_bytes(tag, size);
            Block { start, layout, tag }
        }
    }

    fn check(&self) {
        // SAFETY: the block has that size.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) };
        assert!(bytes.iter().all(|byte| *byte == self.tag), "changed by somebody else");
    }

    fn resize(&mut self, random: &mut Random) {
        let size = random.size();
        // SAFETY: the block has this layout.
        unsafe {
            let start = Cairn.realloc(self.start, self.layout, size);
            assert!(!start.is_null() && start.addr() % self.layout.align() == 0);
            let kept = self.layout.size().min(size);
            assert!((0..kept).all(|at| *start.add(at) == self.tag), "lost by realloc");
            start.write_bytes(self.tag, size);
            self.start = start;
            self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        }
    }

    fn free(self) {
        self.check();
        // SAFETY: the block is freed once, with its layout.
        unsafe { Cairn.dealloc(self.start, self.layout) };
    }
}

#[test]
fn blocks_of_every_layout_go_from_thread_to_thread() {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<Block>()).unzip();
    thread::scope(|threads| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % 4].clone();
            threads.spawn(move || {
                let mut random = Random(number as u64);
                let mut held = Vec::new();
                for _ in 0..4000 {
                    match random.below(4) {
                        0 | 1 => held.push(Block::new(&mut random)),
                        2 if !held.is_empty() => {
                            let at = random.below(held.len());
                            held[at].resize(&mut random);
                        }
                        _ if !held.is_empty() => {
                            let block: Block = held.swap_remove(random.below(held.len()));
                            if let Err(lost) = next.send(block) {
                                lost.0.free();
                            }
                        }
                        _ => {}
                    }
                    receiver.try_iter().take(2).for_each(Block::free);
                }
                held.into_iter().for_each(Block::free);
                drop(next);
                receiver.try_iter().for_each(Block::free);
            });
        }
        drop(senders);
    });
}

#[test]
fn small_aligned_blocks_change_between_the_kinds() {
    // Blocks of at most 8 bytes that are aligned to 16 have a path of their own.
    let layout = |size| Layout::from_size_align(size, 16).unwrap();
    // SAFETY: each block has the layout of its allocation or of its last resize.
    unsafe {
        for sizes in [[8, 100, 4], [1000, 8, 1000], [9, 8, 16], [40_000, 3, 40_000]] {
            let mut block = Cairn.alloc(layout(sizes[0]));
            let mut last = sizes[0];
            block.write_bytes(5, last);
            for size in &sizes[1..] {
                block = Cairn.realloc(block, layout(last), *size);
                assert_eq!(block.addr() % 16, 0);
                assert!((0..last.min(*size)).all(|at| *block.add(at) == 5));
                block.write_bytes(5, *size);
                last = *size;
            }
            Cairn.dealloc(block, layout(last));
        }
    }
}

#[test]
fn the_standard_collections_live_in_it() {
    let before = Cairn::stats().allocated_blocks;
    let shared = Arc::new(Mutex::new(HashMap::new()));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut tree = BTreeMap::new();
                let mut queue = VecDeque::new();
                for number in 0..5000u32 {
                    tree.insert(number.wrapping_mul(0x9e37_79b9), format!("{worker}-{number}"));
                    queue.push_back(vec![number; (number % 100) as usize]);
                    if number % 3 == 0 {
                        queue.pop_front();
                    }
                }
                shared.lock().unwrap().insert(worker, tree);
                queue.len()
            })
        })
        .collect();
    for worker in workers {
        assert_eq!(worker.join().unwrap(), 3333);
    }
    let trees = shared.lock().unwrap();
    assert!(Cairn::stats().allocated_blocks > before + 20_000);
    for (worker, tree) in trees.iter() {
        assert_eq!(tree.len(), 5000);
        assert!(tree.values().all(|text| text.starts_with(&format!("{worker}-"))));
    }
}

#[test]
fn a_vector_that_grows_keeps_its_place_where_it_can() {
    let mut numbers: Vec<u64> = Vec::new();
    let mut moves = 0;
    let mut place = numbers.as_ptr();
    for number in 0..4_000_000 {
        numbers.push(number);
        if numbers.as_ptr() != place {
            moves += 1;
            place = numbers.as_ptr();
        }
    }
    assert!(numbers.iter().enumerate().all(|(index, number)| index as u64 == *number));
    assert!(moves <= 20, "{moves}");
}

#[test]
fn too_much_is_refused_and_said() {
    let mut bytes: Vec<u8> = Vec::new();
    assert!(bytes.try_reserve_exact(1 << 50).is_err());
    assert!(bytes.try_reserve_exact(1 << 20).is_ok());
}

#[test]
fn a_wrong_size_ends_the_process_with_one_line() {
    const HELPER: &str = "CAIRN_TEST_WRONG_SIZE";
    if std::env::var_os(HELPER).is_some() {
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: it is unsafe on purpose: this is the misuse to be detected.
        unsafe { Cairn.dealloc(Cairn.alloc(layout(48)), layout(1000)) };
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_wrong_size_ends_the_process_with_one_line", "--nocapture"])
        .env(HELPER, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success());
    assert!(said.starts_with("cairn: sized free of 0x"), "{said}");
    // The size in the message depends on the build: hardened builds have larger blocks.
    assert!(said.contains(" with size 1000 ("), "{said}");
}
