//! Links the library so that its constructor runs before those of all other libraries.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
