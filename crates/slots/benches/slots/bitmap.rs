//! The simplest allocator that could work: a bitmap behind a mutex, with the same words in a table
//! beside it.

use super::workload::Allocator;
use folioswap_slots::Order;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 1000 * 512;

/// Takes the next fit; runs are naturally aligned.
pub struct Bitmap {
    map: Mutex<Map>,
    words: Vec<AtomicU64>,
}

struct Map {
    used: Vec<u64>,
    next: usize,
}

impl Bitmap {
    pub fn new() -> Bitmap {
        let map = Mutex::new(Map { used: vec![0; SLOTS / 64], next: 1 });
        Bitmap { map, words: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Map {
    fn is_free(&self, first: usize, count: usize) -> bool {
        if count >= 64 {
            return self.used[first / 64..(first + count) / 64].iter().all(|bits| *bits == 0);
        }
        let bits = self.used[first / 64] >> (first % 64);
        bits & ((1 << count) - 1) == 0
    }

    /// Flips `count` bits from `first` on: used slots become free, free ones used.
    fn flip(&mut self, first: usize, count: usize) {
        for slot in (first..first + count).step_by(64.min(count)) {
            let bits = if count >= 64 { !0 } else { ((1 << count) - 1) << (slot % 64) };
            self.used[slot / 64] ^= bits;
        }
    }
}

impl Allocator for Bitmap {
    fn alloc(&self, _cpu: u32, order: Order, folio: u32) -> u64 {
        let count = order.slots() as usize;
        let first = {
            let mut map = self.map.lock().unwrap();
            let mut first = map.next.next_multiple_of(count);
            loop {
                if first + count > SLOTS {
                    first = count;
                }
                if map.is_free(first, count) {
                    break;
                }
                first += count;
            }
            map.flip(first, count);
            map.next = first + count;
            first
        };
        for word in &self.words[first..first + count] {
            word.store(1 << 60 | u64::from(folio) << 2 | 2, Ordering::Release);
        }
        first as u64
    }

    fn free(&self, raw: u64, order: Order, folio: u32) {
        let (first, count) = (raw as usize, order.slots() as usize);
        for word in &self.words[first..first + count] {
            assert_eq!(word.load(Ordering::Relaxed), 1 << 60 | u64::from(folio) << 2 | 2);
            word.store(0, Ordering::Release);
        }
        self.map.lock().unwrap().flip(first, count);
    }
}
