//! Containers of hashbrown and allocator-api2 in the allocators.
#![cfg(all(feature = "allocator-api2", feature = "heap"))]
#![allow(missing_docs)]

use allocator_api2::vec::Vec;
use cairn_alloc::{Cairn, Pool, PrivateHeap, Tlsf, scope};
use core::mem::MaybeUninit;
use hashbrown::HashMap;

#[test]
fn a_map_of_vectors_lives_in_a_scope() {
    for _ in 0..10 {
        let total = scope(|s| {
            let mut map = HashMap::new_in(s.allocator());
            for number in 0..10_000u64 {
                map.entry(number % 100).or_insert_with(|| Vec::new_in(s.allocator())).push(number);
            }
            s.scope(|inner| {
                let mut copy = Vec::new_in(inner.allocator());
                copy.extend(map.values().flatten().copied());
                copy.sort_unstable();
                assert!(copy.iter().enumerate().all(|(index, number)| index as u64 == *number));
            });
            map.values().flatten().sum::<u64>()
        });
        assert_eq!(total, 49_995_000);
    }
}

#[test]
fn the_newest_vector_of_a_scope_grows_in_place() {
    scope(|s| {
        let mut numbers = Vec::with_capacity_in(8, s.allocator());
        let place = numbers.as_ptr();
        numbers.extend(0..5000u32);
        assert_eq!(numbers.as_ptr(), place);
        numbers.truncate(100);
        numbers.shrink_to_fit();
        assert_eq!(numbers.as_ptr(), place);
        let other = s.alloc([7u32; 10]);
        numbers.extend(0..1000u32);
        assert_ne!(numbers.as_ptr(), place);
        assert!(numbers[..100].iter().copied().eq(0..100));
        assert_eq!(other[9], 7);
    });
}

#[test]
fn a_container_of_an_outer_scope_finds_no_memory_while_an_inner_one_is_open() {
    scope(|s| {
        let mut numbers = Vec::new_in(s.allocator());
        numbers.extend(0..10u64);
        s.scope(|inner| {
            inner.alloc(1);
            assert!(numbers.try_reserve(10_000).is_err());
            numbers.shrink_to_fit();
        });
        assert!(numbers.try_reserve(10_000).is_ok());
        assert_eq!(numbers.len(), 10);
    });
}

#[test]
fn a_map_lives_in_a_heap_of_its_own() {
    let heap = PrivateHeap::new().unwrap();
    let mut map = HashMap::new_in(&heap);
    for number in 0..10_000u64 {
        map.entry(number % 100).or_insert_with(|| Vec::new_in(&heap)).push(number);
    }
    assert_eq!(map.values().flatten().sum::<u64>(), 49_995_000);
    assert!(heap.stats().live_bytes > 80_000);
    drop(map);
    assert_eq!(heap.stats().live_blocks, 0);
    let mut owner = Vec::new_in(PrivateHeap::new().unwrap());
    owner.extend(0..100_000u32);
    assert_eq!(owner[99_999], 99_999);
}

#[test]
fn tlsf_pool_and_heap_serve_containers() {
    let mut memory = std::vec![MaybeUninit::uninit(); 1 << 20];
    let heap = Tlsf::new(&mut memory).unwrap();
    let mut map = HashMap::new_in(heap.allocator());
    for number in 0..1000u64 {
        map.insert(number, number * number);
    }
    assert_eq!(map[&999], 998_001);
    let mut numbers = Vec::new_in(heap.allocator());
    assert!(numbers.try_reserve(1 << 20).is_err());
    numbers.push(1u64);
    drop((map, numbers));
    assert_eq!(heap.used_blocks(), 0);

    let pool = Pool::<[u64; 16]>::new().unwrap();
    let mut small = Vec::with_capacity_in(16, pool.allocator());
    small.extend(0..16u64);
    assert!(small.try_reserve(1).is_err());
    assert_eq!((small.len(), pool.live()), (16, 1));
    drop(small);
    assert_eq!(pool.live(), 0);

    let mut words = Vec::new_in(Cairn);
    words.extend((0..100_000u64).map(|number| number * 2));
    words.shrink_to_fit();
    assert_eq!(words[99_999], 199_998);
}
