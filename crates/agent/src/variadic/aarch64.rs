//! aarch64.

/// Functions of one argument and a list. The list's first seven words come in registers; the others
/// lie on the stack from its pointer on. When the registers are stored right below them, the list
/// is one array of any length, which is passed on without a copy.
///
/// Stack, from the CFA (the stack pointer before the call) down: seven words of the list, a gap of
/// one, the return address and the frame pointer; that is 80 bytes, so the call is aligned.
macro_rules! variadic {
    ($($name:ident => $array:ident)*) => {$(
        #[doc = concat!(stringify!($name), "(3): more arguments follow, up to a null.\n\n# Safety\nAs ", stringify!($name), ".")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(first: *const c_char, argument: *const c_char) -> c_int {
            naked_asm!(
                ".cfi_startproc",
                // A landing pad where the processor demands one (BTI), else nothing.
                "hint #34",
                "stp x29, x30, [sp, #-80]!",
                ".cfi_def_cfa_offset 80",
                ".cfi_offset x29, -80",
                ".cfi_offset x30, -72",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {array}",
                "ldp x29, x30, [sp], #80",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "ret",
                ".cfi_endproc",
                array = sym $array,
            )
        }
    )*};
}

pub(crate) use variadic;
