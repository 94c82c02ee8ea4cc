//! Vectors, messages, and other structures that lead on.

use super::Call;
use crate::table::Access;
use linux_raw_sys::general as raw;

/// Bytes of a msghdr, and of a mmsghdr.
const MESSAGE_BYTES: u64 = 56;
const MESSAGES_BYTES: u64 = 64;
/// Messages that a call may have.
const MOST_MESSAGES: u64 = 1024;

impl Call {
    pub(super) fn vectors(&self, address: u64, count: u64, access: Access) {
        if count > raw::UIO_MAXIOV as u64 {
            return;
        }
        self.range(address, count * 16, Access::Read);
        let mut base = None;
        self.words_of(address, count * 2, |word| match base.take() {
            None => base = Some(word),
            Some(base) => self.range(base, word, access),
        });
    }

    /// The words for which futex_waitv waits.
    pub(super) fn waiters(&self, address: u64, count: u64) {
        const BYTES: u64 = 24;
        for index in 0..count.min(raw::FUTEX_WAITV_MAX as u64) {
            let [word] = self.words(address.wrapping_add(index * BYTES + 8));
            self.range(word, 4, Access::Read);
        }
    }

    pub(super) fn message(&self, address: u64, access: Access) {
        self.range(address, MESSAGE_BYTES, Access::Both);
        let [name, name_bytes, vectors, count, control, control_bytes] = self.words(address);
        self.range(name, name_bytes as u32 as u64, access);
        self.vectors(vectors, count, access);
        self.range(control, control_bytes, access);
    }

    /// An array of messages.
    pub(super) fn messages(&self, address: u64, count: u32, access: Access) {
        let count = (count as u64).min(MOST_MESSAGES);
        self.range(address, count * MESSAGES_BYTES, Access::Both);
        for index in 0..count {
            self.message(address.wrapping_add(index * MESSAGES_BYTES), access);
        }
    }
}
