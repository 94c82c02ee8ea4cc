use super::model;
use std::env::consts::ARCH;

#[test]
fn a_processor_has_the_name_that_the_kernel_gives_it() {
    let x86 =
        "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 7B13\nprocessor\t: 1\nmodel name\t: other\n";
    assert_eq!(model(x86), "AMD EPYC 7B13");
}

/// As on aarch64, where the kernel knows numbers only, or without any of them.
#[test]
fn a_processor_without_a_name_has_its_architecture() {
    let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
    assert_eq!(model(arm), format!("{ARCH} processor (implementer 0x41, part 0xd0c)"));
    let half = "processor\t: 0\nCPU implementer\t: 0x41\n";
    assert_eq!(model(half), format!("unknown {ARCH} processor"));
    assert_eq!(model(""), format!("unknown {ARCH} processor"));
}
