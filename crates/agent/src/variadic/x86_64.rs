//! x86_64.

/// Functions of one argument and a list. The list's first five words come in registers; the others
/// lie on the stack above the return address. When the registers are pushed in place of the return
/// address, the list is one array of any length, which is passed on without a copy. The words that
/// are overwritten are the callee's own.
///
/// Stack, from the CFA (the stack pointer before the call) down: five words of the list, the return
/// address; that is 48 bytes below a multiple of 16, so the call is aligned. `ret` takes the
/// address that was pushed by the call, as a shadow stack demands.
macro_rules! variadic {
    ($($name:ident => $array:ident)*) => {$(
        #[doc = concat!(stringify!($name), "(3): more arguments follow, up to a null.\n\n# Safety\nAs ", stringify!($name), ".")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(first: *const c_char, argument: *const c_char) -> c_int {
            naked_asm!(
                ".cfi_startproc",
                "pop rax",
                ".cfi_def_cfa_offset 0",
                ".cfi_register rip, rax",
                "push r9",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "mov rsi, rsp",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_offset rip, -48",
                "call {array}",
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_register rip, rcx",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "push rcx",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_offset rip, -8",
                "ret",
                ".cfi_endproc",
                array = sym $array,
            )
        }
    )*};
}

pub(crate) use variadic;
