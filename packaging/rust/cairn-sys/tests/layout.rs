//! The sizes, alignments, offsets and constants of the C compiler equal those of the Rust
//! declarations; layout/fields.rs lists them all. The C side is compiled here, from the headers of
//! the library.
#![cfg(feature = "heap")]
#![allow(missing_docs, clippy::case_sensitive_file_extension_comparisons)]

use cairn_sys::*;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// Prints a line of C for each struct: its size, its alignment and the offset of every field.
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
    let mut words = compiler.split_whitespace();
    Command::new(words.next().unwrap_or("cc"))
        .args(words)
        .args(["-std=gnu17", "-fsyntax-only", "-I", include])
        .arg(&file)
        .output()
        .expect("a C compiler")
}

#[test]
fn structs_and_constants_are_those_of_c() {
    let mut text = String::new();
    // C needs the word `struct` for a struct that shares its name with a function.
    for name in include_str!("../src/types.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub struct ").and_then(|rest| rest.split(' ').next()))
    {
        writeln!(text, "#define {name}_ struct {name}").unwrap();
    }
    include!("layout/fields.rs");
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
    // SAFETY: the function returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(cairn_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
