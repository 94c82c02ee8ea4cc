//! Link options of the shared object.
fn main() {
    // Its constructor comes before everybody else's: its fork handlers must be the last before a fork and the first after.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Every symbol is bound when it is loaded: the pager threads must never enter the dynamic linker.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now,-z,relro");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfolioswap_agent.so");
}
