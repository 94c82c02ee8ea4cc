//! Link options of the shared object.
fn main() {
    // The constructor runs before all others: its fork handlers must be the last before a fork and
    // the first after.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Every symbol is bound at load time, because the pager threads must never enter the dynamic
    // linker.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now,-z,relro");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfolioswap_agent.so");
}
