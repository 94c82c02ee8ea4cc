//! Link options of the shared object.
fn main() {
    // The constructor runs before all others, so that no thread is older than the gate.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now,-z,relro,--gc-sections");
    println!("cargo:rustc-cdylib-link-arg=-nostdlib");
}
