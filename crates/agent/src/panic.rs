//! What a bug in the agent does: one message and the end of the process.

use crate::start;
use core::panic::PanicInfo;
use folioswap_pager::kernel::sys;
use linux_raw_sys::general as raw;

/// A bug in the agent ends the process with one message, because its memory can no longer be
/// served.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut message = Line { text: [0; 320], length: 0 };
    let _ = core::fmt::write(
        &mut message,
        format_args!("folioswap: internal error, the program is ended: {info}\n"),
    );
    // SAFETY: the call writes initialised bytes to the standard error of the calling process's
    // table.
    let _ = unsafe {
        sys::syscall(raw::__NR_write, [2, message.text.as_ptr() as usize, message.length, 0, 0, 0])
    };
    if let Some(engine) = start::engine() {
        engine.report_bug();
    }
    sys::kill_self()
}

// The object files of `core` name the function that unwinds, and GNU ld keeps the name: a program
// could not be loaded for want of it. Nothing unwinds here, and nobody else sees the name.
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality:",
    "brk #1",
    ".size rust_eh_personality, 4",
);

struct Line {
    text: [u8; 320],
    length: usize,
}

impl core::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let length = text.len().min(self.text.len() - self.length);
        self.text[self.length..self.length + length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}
