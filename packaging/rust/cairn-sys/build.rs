//! Compiles Cairn's C sources into a static library: the sources of the repository, or in a
//! packaged crate their copy in `vendor/`. The lists and flags are those of src/CMakeLists.txt and
//! cmake/CairnFlags.cmake; test/package/languages_test.py compares them.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Every C file of these folders of src/ is compiled.
const LAYERS: [&str; 9] =
    ["base", "os", "unwind", "page", "heap", "frame", "region", "watch", "front"];
/// The files that are not compiled: they define the names of libc and C++.
const NAMES: [&str; 4] = ["libc.c", "cxx.c", "replaced.c", "dlopen.c"];
/// The files of TLSF without an operating system, in addition to `tlsf*.c`.
const FREESTANDING: [&str; 1] = ["base/check.c"];

const FLAGS: [&str; 16] = [
    "-fno-omit-frame-pointer",
    "-momit-leaf-frame-pointer",
    "-fno-tree-vectorize",
    "-fno-tree-slp-vectorize",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-plt",
    "-fno-semantic-interposition",
    "-fno-builtin-malloc",
    "-fno-builtin-calloc",
    "-fno-builtin-realloc",
    "-fno-builtin-free",
    "-fno-builtin-aligned_alloc",
    "-fno-builtin-memalign",
    "-fno-builtin-posix_memalign",
    "-pthread",
];

fn main() {
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = source_root(&own);
    for path in [root.join("src"), root.join("include"), own.join("shim.c")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::metadata=include={}", root.join("include").display());
    println!("cargo::rustc-env=CAIRN_SYS_INCLUDE={}", root.join("include").display());

    let pointer_width = env::var("CARGO_CFG_TARGET_POINTER_WIDTH").unwrap_or_default();
    assert!(pointer_width == "64", "Cairn needs 64-bit addresses: this is a 32-bit build.");

    let mut build = cc::Build::new();
    // The allocators are optimized also when the program is a debug build.
    build.std("gnu17").opt_level(3).pic(true).warnings(false).define("NDEBUG", None);
    build.include(root.join("include")).include(root.join("src"));
    build.define("CAIRN_TEST_DELAYS", "0");
    build.define("CAIRN_DEBUG", if feature("VERIFY") { "1" } else { "0" });
    build.define("CAIRN_HARDENED", hardening());
    if feature("HEAP") {
        let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
        assert!(
            system == "linux",
            "Cairn runs on Linux only; this is {system}. Without the feature `heap` TLSF is left."
        );
        for flag in FLAGS {
            build.flag(flag);
        }
        build.file(own.join("shim.c"));
        for layer in LAYERS {
            build.files(c_files(&root.join("src").join(layer)));
        }
    } else {
        build.flag("-ffreestanding").flag("-fno-stack-protector");
        build.files(FREESTANDING.map(|file| root.join("src").join(file)));
        build.files(
            c_files(&root.join("src/region")).into_iter().filter(|file| {
                file.file_name().is_some_and(|name| is_tlsf(&name.to_string_lossy()))
            }),
        );
    }
    build.compile("cairn_rust");
}

fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

fn hardening() -> &'static str {
    if feature("HARDENED") {
        "2"
    } else if feature("HARDENED_LIGHT") {
        "1"
    } else {
        "0"
    }
}

fn source_root(own: &Path) -> PathBuf {
    let vendored = own.join("vendor");
    let repository = own.join("../../..");
    for root in [vendored, repository] {
        if root.join("src/front/api.c").is_file() {
            return root;
        }
    }
    panic!("no C sources: neither vendor/ nor Cairn's repository around {}", own.display());
}

fn is_tlsf(name: &str) -> bool {
    name.starts_with("tlsf")
}

fn c_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder that can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .filter(|path| {
            path.file_name().is_some_and(|name| !NAMES.iter().any(|other| name == *other))
        })
        .collect();
    files.sort();
    files
}
