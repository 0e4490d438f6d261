//! The sizes, alignments, offsets and constants that the C compiler sees are those of the Rust
//! declarations. The C side is compiled here, from the headers that the library was made of.
#![cfg(feature = "heap")]
#![allow(missing_docs, clippy::case_sensitive_file_extension_comparisons)]

use cairn_sys::*;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// A line of C for each struct: its size, its alignment and the place of every field.
macro_rules! layout {
    ($text:ident: $($name:ident { $($field:ident),+ })*) => {$(
        writeln!($text, "same(sizeof({0}), {1}); same(_Alignof({0}), {2});",
            concat!(stringify!($name), "_"), size_of::<$name>(), align_of::<$name>()).unwrap();
        $(writeln!($text, "same(offsetof({}, {}), {});", concat!(stringify!($name), "_"),
            stringify!($field), std::mem::offset_of!($name, $field)).unwrap();)+
        writeln!($text, "#undef {0}_", stringify!($name)).unwrap();
    )*};
}

macro_rules! constants {
    ($text:ident: $($name:ident)*) => {
        $(writeln!($text, "same({}, {});", stringify!($name), $name).unwrap();)*
    };
}

fn compile(assertions: &str) -> std::process::Output {
    let include = env!("CAIRN_SYS_INCLUDE");
    let mut source = String::from("#include <stddef.h>\n");
    for header in std::fs::read_dir(PathBuf::from(include).join("cairn")).unwrap() {
        let name = header.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".h") {
            writeln!(source, "#include <cairn/{name}>").unwrap();
        }
    }
    source += "#define same(a, b) _Static_assert((a) == (b), #a \" is \" #b \" in Rust\")\n";
    source += assertions;
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("layout-{:?}.c", std::thread::current().id()));
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    Command::new(compiler)
        .args(["-std=gnu17", "-fsyntax-only", "-I", include])
        .arg(&file)
        .output()
        .expect("a C compiler")
}

#[test]
fn structs_and_constants_are_those_of_c() {
    let mut text = String::new();
    // A struct that shares its name with a function is reached by `struct` only.
    for name in include_str!("../src/types.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub struct ").and_then(|rest| rest.split(' ').next()))
    {
        writeln!(text, "#define {name}_ struct {name}").unwrap();
    }
    layout!(text:
        cairn_allocator_operations { alloc, resize, free, capabilities, name }
        cairn_allocator { context, operations }
        cairn_fifo { position, limit, owner, made }
        cairn_fifo_options { max_bytes, name, any_thread_free, out_of_memory,
            out_of_memory_context }
        cairn_fifo_stats { segment_bytes, returned_bytes }
        cairn_mallinfo { arena, keepcost }
        cairn_mallinfo2 { arena, keepcost }
        cairn_persist_options { flags, tracking, address, size_bytes, capacity_bytes, log_bytes,
            why }
        cairn_persist_stats { address, moved, tracking, size_bytes, used_blocks, last_commit,
            syncs, error }
        cairn_offset { distance }
        cairn_pool_options { name, max_objects, shared, out_of_memory, out_of_memory_context }
        cairn_pool_stats { name, object_bytes, slab_bytes }
        cairn_pool_view { top, limit, inverse, numbers, recent }
        cairn_ring { position, limit, owner }
        cairn_frame { chunk, index, generation }
        cairn_checkpoint { chunk, position, sealed, opened, open }
        cairn_ring_options { max_bytes, name, out_of_memory, out_of_memory_context }
        cairn_ring_stats { chunk_bytes, spare_bytes, sealed, chunks }
        cairn_stack_frame { previous, serial }
        cairn_mark { frame, serial }
        cairn_stack { position, limit, frame, owner, serial, inside }
        cairn_stack_options { reserve_bytes, max_bytes, name, buffer, buffer_bytes, fixed,
            out_of_memory, out_of_memory_context }
        cairn_stack_stats { used_bytes, resident_bytes, reserved_bytes, blocks, frames }
        cairn_heap_stats { allocated_bytes, sampled_blocks, thread_heaps, purged_bytes,
            remap_calls }
        cairn_heap_class_stats { block_bytes, slab_bytes }
        cairn_heap_thread_stats { heap, is_current, is_orphan, live_blocks, slab_bytes }
        cairn_tlsf_stats { total_bytes, largest_request_bytes, regions }
    );
    constants!(text:
        CAIRN_VERSION_MAJOR CAIRN_VERSION_MINOR CAIRN_VERSION_PATCH CAIRN_CAN_FREE
        CAIRN_CAN_RESIZE CAIRN_FREES_TOGETHER CAIRN_ANY_THREAD CAIRN_ANY_THREAD_FREE
        CAIRN_ONE_SIZE CAIRN_PAGES_ZERO CAIRN_PAGES_HUGE CAIRN_PAGES_POPULATE
        CAIRN_PERSIST_CREATE CAIRN_PERSIST_READ_ONLY CAIRN_PERSIST_FIXED
        CAIRN_PERSIST_WRITERS_PAUSE CAIRN_PERSIST_CHECK CAIRN_PERSIST_AUTO
        CAIRN_PERSIST_PROTECT CAIRN_POOL_RECENT CAIRN_STACK_INLINE_ALIGN
        CAIRN_STACK_LIMIT_GRANULE CAIRN_STACK_PUSH_TICK CAIRN_TLSF_BLOCK_LEAST_BYTES
        CAIRN_TLSF_NEW_BYTES
    );
    let done = compile(&text);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_difference_would_be_found() {
    let done = compile("same(sizeof(cairn_mark), 17);\n");
    assert!(!done.status.success());
    assert!(String::from_utf8_lossy(&done.stderr).contains("is 17 in Rust"));
}

#[test]
fn the_library_has_the_version_of_the_crate() {
    // SAFETY: it returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(cairn_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
