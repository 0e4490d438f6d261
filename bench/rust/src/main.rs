//! A Rust program whose work is done by the standard collections: a ledger in trees and hash maps,
//! boxed expression trees that are rewritten, and worker threads that exchange strings. Rust's
//! default allocator on Linux calls malloc, so a preloaded allocator serves it. The output depends
//! on the argument only.
//!
//! usage: cairn-collections [SIZE]   SIZE 1 to 1000, about 10 ms each; default 60

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::mpsc;
use std::thread;

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Accounts by name, entries by account, and the largest entries of all.
fn keep_ledger(random: &mut Random, entries: u64) -> u64 {
    let mut accounts: HashMap<String, Vec<(u64, String)>> = HashMap::new();
    let mut largest = BinaryHeap::new();
    for number in 0..entries {
        let account = format!("account {}", random.below(2000));
        let text = format!("entry {number} of {account}, {} items", random.below(50));
        let amount = random.below(1_000_000);
        largest.push((amount, text.clone()));
        accounts.entry(account).or_default().push((amount, text));
    }
    let sorted: BTreeMap<String, BTreeSet<(u64, String)>> = accounts
        .into_iter()
        .map(|(name, list)| (name, list.into_iter().collect()))
        .collect();
    let mut sum = 0u64;
    for (name, set) in &sorted {
        sum = sum.wrapping_mul(31).wrapping_add(name.len() as u64 * set.len() as u64);
    }
    for _ in 0..entries / 10 {
        if let Some((amount, text)) = largest.pop() {
            sum = sum.wrapping_add(amount ^ text.len() as u64);
        }
    }
    sum
}

enum Expression {
    Number(u64),
    Sum(Box<Expression>, Box<Expression>),
    Product(Vec<Expression>),
}

fn grow(random: &mut Random, depth: u32) -> Expression {
    if depth == 0 {
        return Expression::Number(random.below(10));
    }
    if random.below(2) == 0 {
        let left = grow(random, depth - 1);
        Expression::Sum(Box::new(left), Box::new(grow(random, depth - 1)))
    } else {
        let factors = 1 + random.below(3);
        Expression::Product((0..factors).map(|_| grow(random, depth - 1)).collect())
    }
}

/// A new tree in which sums of two numbers are one number.
fn simplify(expression: &Expression) -> Expression {
    match expression {
        Expression::Number(value) => Expression::Number(*value),
        Expression::Sum(left, right) => match (simplify(left), simplify(right)) {
            (Expression::Number(a), Expression::Number(b)) => {
                Expression::Number(a.wrapping_add(b))
            }
            (left, right) => Expression::Sum(Box::new(left), Box::new(right)),
        },
        Expression::Product(factors) => {
            Expression::Product(factors.iter().map(simplify).collect())
        }
    }
}

fn evaluate(expression: &Expression) -> u64 {
    match expression {
        Expression::Number(value) => *value,
        Expression::Sum(left, right) => evaluate(left).wrapping_add(evaluate(right)),
        Expression::Product(factors) => {
            factors.iter().map(evaluate).fold(1, |a, b| a.wrapping_mul(b | 1))
        }
    }
}

fn rewrite_expressions(random: &mut Random, count: u64) -> u64 {
    let mut recent = VecDeque::new();
    let mut sum = 0u64;
    for _ in 0..count {
        let tree = simplify(&grow(random, 8));
        sum = sum.wrapping_add(evaluate(&tree));
        recent.push_back(tree);
        if recent.len() > 50 {
            recent.pop_front();
        }
    }
    sum
}

/// Strings are made by one thread, changed by a second and dropped by a third.
fn pass_messages(seed: u64, count: u64) -> u64 {
    let (to_second, from_first) = mpsc::sync_channel::<Vec<String>>(64);
    let (to_third, from_second) = mpsc::sync_channel::<Vec<String>>(64);
    let first = thread::spawn(move || {
        let mut random = Random(seed);
        for _ in 0..count {
            let words = 1 + random.below(20);
            let batch = (0..words).map(|_| format!("message {}", random.next())).collect();
            to_second.send(batch).expect("the second thread lives");
        }
    });
    let second = thread::spawn(move || {
        for batch in from_first {
            let changed = batch.iter().map(|word| word.to_uppercase() + "!").collect();
            to_third.send(changed).expect("the third thread lives");
        }
    });
    let sum = from_second.iter().flatten().map(|word| word.len() as u64).sum();
    first.join().expect("the first thread ended well");
    second.join().expect("the second thread ended well");
    sum
}

fn main() {
    let size: u64 = match std::env::args().nth(1).map(|text| text.parse()) {
        None => 60,
        Some(Ok(size)) if (1..=1000).contains(&size) => size,
        Some(_) => {
            eprintln!("usage: cairn-collections [SIZE]   SIZE 1 to 1000");
            std::process::exit(2);
        }
    };
    let mut random = Random(20240607);
    let mut sum = 0u64;
    for part in (0..size).step_by(20) {
        let left = (size - part).min(20);
        sum = sum.wrapping_mul(31).wrapping_add(keep_ledger(&mut random, 4000 * left));
        sum = sum.wrapping_mul(31).wrapping_add(rewrite_expressions(&mut random, 25 * left));
        sum = sum.wrapping_mul(31).wrapping_add(pass_messages(part, 600 * left));
    }
    println!("{sum:016x}");
}
