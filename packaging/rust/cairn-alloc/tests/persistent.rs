//! The persistent heap over several processes: committed changes exist afterwards, others do not.
#![cfg(feature = "std")]
#![allow(missing_docs)]

use cairn_alloc::offset::Rel;
use cairn_alloc::persist::{OpenOptions, Persist, PersistentHeap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[repr(C)]
struct Node {
    number: u64,
    next: Option<Rel<Node>>,
}

// SAFETY: the fields are a number and a place in the heap, in the layout of C.
unsafe impl Persist for Node {}

const HEAP: &str = "CAIRN_TEST_HEAP";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cairn-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn heap(&self) -> PathBuf {
        self.0.join("list.heap")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> PersistentHeap {
    OpenOptions::new().create(true).check(true).open(path).unwrap()
}

fn push(heap: &mut PersistentHeap, number: u64) {
    let next = heap.root::<Node>(c"list");
    let node = heap.alloc(Node { number, next }).unwrap();
    heap.set_root(c"list", Some(node)).unwrap();
}

fn numbers(heap: &PersistentHeap) -> Vec<u64> {
    let mut found = Vec::new();
    let mut next = heap.root::<Node>(c"list");
    while let Some(place) = next {
        // SAFETY: the list contains live nodes only.
        let node = unsafe { heap.get(place) };
        found.push(node.number);
        next = node.next;
    }
    found
}

/// Runs this test again in a process of its own, which finds the path in its environment.
fn again(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(HEAP, path).stdout(Stdio::null());
    command
}

#[test]
fn a_killed_process_leaves_what_it_committed() {
    if let Some(path) = std::env::var_os(HEAP) {
        let mut heap = open(Path::new(&path));
        let first = numbers(&heap).len() as u64;
        for number in first..first + 100 {
            push(&mut heap, number);
        }
        heap.commit().unwrap();
        push(&mut heap, 1_000_000); // never committed
        std::process::abort();
    }
    let folder = Folder::new("killed");
    for run in 1..=5u64 {
        let done = again("a_killed_process_leaves_what_it_committed", &folder.heap())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(!done.success());
        let heap = open(&folder.heap());
        assert_eq!(numbers(&heap), (0..100 * run).rev().collect::<Vec<_>>());
    }
}

#[test]
fn a_transaction_is_aborted_unless_it_is_committed() {
    let folder = Folder::new("transaction");
    let mut heap = open(&folder.heap());
    push(&mut heap, 1);
    heap.commit().unwrap();
    let mut transaction = heap.transaction();
    push(&mut transaction, 2);
    assert_eq!(numbers(&transaction), [2, 1]);
    drop(transaction);
    assert_eq!(numbers(&heap), [1]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut transaction = heap.transaction();
        push(&mut transaction, 3);
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(numbers(&heap), [1]);
    let mut transaction = heap.transaction();
    push(&mut transaction, 4);
    transaction.commit().unwrap();
    assert_eq!(numbers(&heap), [4, 1]);
    assert_eq!(heap.verify(), Ok(()));
    heap.close().unwrap();
}

#[test]
fn commits_of_many_share_a_wait_and_blocks_are_freed() {
    let folder = Folder::new("tickets");
    let mut heap = open(&folder.heap());
    let tickets: Vec<_> = (0..10)
        .map(|number| {
            push(&mut heap, number);
            heap.commit_async().unwrap()
        })
        .collect();
    std::thread::scope(|threads| {
        for ticket in tickets {
            let heap = &heap;
            threads.spawn(move || heap.wait(ticket).unwrap());
        }
    });
    assert!(heap.stats().durable_commit >= 10);
    let before = heap.stats().used_bytes;
    let large = heap.alloc([7u64; 1000]).unwrap();
    assert!(heap.stats().used_bytes >= before + 8000);
    // SAFETY: no other pointer to the place exists.
    unsafe {
        assert_eq!(heap.get(large)[999], 7);
        heap.free(large);
    }
    assert_eq!(heap.stats().used_bytes, before);
    heap.remove_root(c"list").unwrap();
    assert_eq!(heap.remove_root(c"list").unwrap_err().code(), 2); // ENOENT
    heap.checkpoint().unwrap();
}

#[test]
fn errors_say_what_is_wrong() {
    let folder = Folder::new("errors");
    let path = folder.heap();
    let code = |options: OpenOptions, path: &Path| options.open(path).unwrap_err().error().code();
    assert_eq!(code(OpenOptions::new(), &path), 2); // ENOENT
    std::fs::write(&path, vec![7u8; 100_000]).unwrap();
    let error = OpenOptions::new().open(&path).unwrap_err();
    assert_eq!(error.error().code(), 95); // ENOTSUP
    assert_eq!(error.why(), Some("the file is not a heap"));
    assert_eq!(error.to_string(), "the file is not a heap");
    std::fs::remove_file(&path).unwrap();

    let mut heap = open(&path);
    push(&mut heap, 1);
    heap.commit().unwrap();
    assert_eq!(code(OpenOptions::new(), &path), 16); // EBUSY
    drop(heap);
    let mut readers: Vec<_> =
        (0..2).map(|_| OpenOptions::new().read_only(true).open(&path).unwrap()).collect();
    assert_eq!(numbers(&readers[1]), [1]);
    assert!(readers[0].alloc(1u64).is_err());
    assert!(readers[0].commit().is_err());
    assert!(readers[0].set_root::<Node>(c"list", None).is_err());
    let name = std::ffi::CString::new(vec![b'n'; 256]).unwrap();
    assert!(readers[0].root::<Node>(&name).is_none());
}
