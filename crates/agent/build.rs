//! Link options of the shared object.
fn main() {
    // The constructor runs before all others: its fork handlers must be the last before a fork and
    // the first after.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // Every symbol is bound at load time, because the pager threads must never enter the dynamic
    // linker.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now,-z,relro");
    // Its own calls of the functions that it interposes reach them whatever the program defines: a
    // program's own `mmap` may call `syscall`, which is ours.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfolioswap_agent.so");
}
