//! A system call that our functions make for the program, with memory of the program's: it goes
//! through the gate, where there is one, which knows what the call uses.

use folioswap_pager::kernel::sys;

/// Makes a system call of the program's.
///
/// # Errors
/// The kernel's, by its number.
///
/// # Safety
/// That of the call, which must return here: none that begins a child.
pub(crate) unsafe fn make(number: u32, arguments: [usize; 6]) -> Result<usize, i32> {
    #[cfg(target_arch = "x86_64")]
    {
        use core::sync::atomic::Ordering::Relaxed;
        if folioswap_gate::dispatch::ARMED.load(Relaxed) != 0 {
            // SAFETY: by contract.
            let answer = unsafe { through_gate(number, arguments) };
            return if (-4095..0).contains(&answer) { Err(-answer as i32) } else { Ok(answer as usize) };
        }
    }
    // SAFETY: by contract.
    unsafe { make_past_gate(number, arguments) }
}

/// The same, past the gate, for one that has come through it.
///
/// # Errors
/// The kernel's, by its number.
///
/// # Safety
/// That of the call.
pub(crate) unsafe fn make_past_gate(number: u32, arguments: [usize; 6]) -> Result<usize, i32> {
    // SAFETY: by contract.
    unsafe { sys::syscall(number, arguments) }.map_err(|errno| errno.raw_os_error())
}

/// As a call by an instruction of the program's; returns the kernel's word.
///
/// # Safety
/// That of the call.
#[cfg(target_arch = "x86_64")]
unsafe fn through_gate(number: u32, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the gate goes on at the address in rcx with all registers but these as they were.
    unsafe {
        core::arch::asm!(
            "2:",
            "lea rcx, [rip + 3f]",
            "mov r11, rcx",
            "jmp {gate}",
            // A signal that comes before the gate has begun the call leads the thread back to the
            // two bytes before the address in r11, where it expects the site.
            ".byte 0xeb, 2b - 3f",
            "3:",
            gate = sym folioswap_gate::dispatch::folioswap_gate_begin,
            inlateout("rax") number as isize => answer,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}
