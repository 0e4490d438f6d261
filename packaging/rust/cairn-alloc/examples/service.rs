//! A small service with Cairn: requests use scopes, sessions a pool, and visits a heap that
//! survives the process. Run it twice: `cargo run --example service -- /tmp/visits.heap`.

use cairn_alloc::persist::{OpenOptions, PersistentHeap};
use cairn_alloc::{Cairn, Pool, scope};
use std::io;

#[global_allocator]
static HEAP: Cairn = Cairn;

struct Session {
    user: usize,
    requests: u64,
}

/// Answers one request. All memory that the request needs is released when it ends.
fn answer(session: &mut Session, words: &[&str]) -> usize {
    session.requests += 1;
    scope(|s| {
        let lengths = s.alloc_slice_with(words.len(), |index| words[index].len());
        let line = s.alloc_fmt(format_args!("user {}: {lengths:?}", session.user));
        line.len()
    })
}

fn count_visit(heap: &mut PersistentHeap) -> Result<u64, cairn_alloc::Error> {
    let mut transaction = heap.transaction();
    let visits = match transaction.root::<u64>(c"visits") {
        Some(visits) => visits,
        None => transaction.alloc(0u64)?,
    };
    transaction.set_root(c"visits", Some(visits))?;
    // SAFETY: this root was always set to a u64.
    let count = unsafe { transaction.get_mut(visits) };
    *count += 1;
    let count = *count;
    transaction.commit()?;
    Ok(count)
}

fn main() -> io::Result<()> {
    let sessions = Pool::new()?;
    let mut first = sessions.get(Session { user: 1, requests: 0 })?;
    let mut bytes = 0;
    for _ in 0..1000 {
        bytes += answer(&mut first, &["a", "few", "words"]);
    }
    println!("{} requests, {bytes} bytes of answers", first.requests);
    if let Some(path) = std::env::args_os().nth(1) {
        let mut heap = OpenOptions::new().create(true).open(path)?;
        println!("visit {}", count_visit(&mut heap)?);
    }
    println!("{} bytes in use", Cairn::stats().allocated_bytes);
    Ok(())
}
