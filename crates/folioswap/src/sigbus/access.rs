//! The access that faulted, from the registers that the kernel hands to a signal handler. One
//! function for each processor.

use folioswap_pager::kernel::uffd::Access;

/// The access by two bits of a register, each 0 or not: that of a write, and that of a page that is
/// there.
fn access(write: u64, there: u64) -> Access {
    match (write, there) {
        (0, _) => Access::Read,
        (_, 0) => Access::Write,
        _ => Access::WriteProtected,
    }
}

/// The access of a fault by the processor's error code: bit 0 says that a page is there, bit 1 that
/// it was a write.
#[cfg(target_arch = "x86_64")]
pub(super) fn access_of(context: &libc::ucontext_t) -> Access {
    by_error_code(context.uc_mcontext.gregs[libc::REG_ERR as usize] as u64)
}

#[cfg(target_arch = "x86_64")]
fn by_error_code(code: u64) -> Access {
    access(code & 2, code & 1)
}

/// The access of a fault by the exception syndrome, which the kernel lays among the records behind
/// the registers (`struct esr_context`).
#[cfg(target_arch = "aarch64")]
pub(super) fn access_of(context: &libc::ucontext_t) -> Access {
    /// The records begin here: 35 words of registers, and the gap before a multiple of 16.
    const RECORDS: usize = 288;
    const RECORDS_BYTES: usize = 4096;
    let start = (&raw const context.uc_mcontext).cast::<u8>();
    // SAFETY: the kernel's context has these bytes behind its registers, all written.
    let records = unsafe { core::slice::from_raw_parts(start.add(RECORDS).cast::<u64>(), RECORDS_BYTES / 8) };
    by_syndrome(syndrome_among(records).unwrap_or(0))
}

/// The exception syndrome among records, each of which begins with its kind and its size in bytes.
#[cfg(any(target_arch = "aarch64", test))]
fn syndrome_among(records: &[u64]) -> Option<u64> {
    const SYNDROME: u32 = 0x4553_5201;
    let mut at = 0;
    loop {
        let head = *records.get(at)?;
        let (kind, bytes) = (head as u32, (head >> 32) as usize);
        match (kind, bytes) {
            (SYNDROME, _) => return records.get(at + 1).copied(),
            (0, _) | (_, 0..8) => return None,
            _ => at += bytes / 8,
        }
    }
}

/// Bit 6 of a data abort's syndrome says that it was a write, unless bit 8 says that it was the
/// maintenance of a cache; the low six bits are 0b0011xx where a page is there and forbids it.
#[cfg(any(target_arch = "aarch64", test))]
fn by_syndrome(syndrome: u64) -> Access {
    let write = syndrome >> 6 & 1 & !(syndrome >> 8);
    access(write, u64::from(syndrome & 0b11_1100 == 0b00_1100))
}

#[cfg(test)]
mod tests;
