//! What the gate adds to an image: no relocation, and no symbol that another object must have.
#![cfg(target_arch = "x86_64")]

mod common;

use object::{Object, ObjectSection, ObjectSymbol};

#[test]
fn the_gate_needs_no_relocation() {
    let bytes = std::fs::read(common::object()).expect("the object is there");
    let file = object::File::parse(&*bytes).expect("it is ELF");
    let undefined: Vec<_> =
        file.dynamic_symbols().filter(|symbol| symbol.is_undefined()).filter_map(|s| s.name().ok()).collect();
    assert!(undefined.iter().all(|name| name.is_empty()), "{undefined:?}");
    let named: std::collections::HashMap<u64, &str> =
        file.symbols().filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?))).collect();
    let init = file.section_by_name(".init_array").expect("a constructor");
    let table = file.section_by_name(".got");
    for (at, relocation) in file.dynamic_relocations().into_iter().flatten() {
        if (init.address()..init.address() + init.size()).contains(&at) {
            continue;
        }
        // The compiler calls the functions for bytes, which the image provides, through the table.
        let within =
            table.as_ref().is_some_and(|got| (got.address()..got.address() + got.size()).contains(&at));
        let name = named.get(&(relocation.addend() as u64)).copied().unwrap_or("?");
        assert!(
            within && matches!(name, "memcpy" | "memmove" | "memset" | "memcmp" | "bcmp" | "strlen"),
            "{at:#x}: {relocation:?} {name}"
        );
    }
}
