//! Reuse of request buffers: allocating and clearing one for each request takes as long as copying
//! its data.
//!
//! The process has one stock of buffers, because the thread that makes a request takes its buffer,
//! and the thread that reads the answer gives it back. A buffer keeps its old contents. A taker
//! overwrites all of it, or learns that not all data came
//! ([`Expected::finish`](crate::reply::Expected::finish)).

use std::sync::{Mutex, PoisonError};

/// Most bytes in stock: as many as are usefully under way at a time, and few beside the smallest
/// limit of a group.
const KEPT_BYTES: usize = 1 << 20;

/// Buffers, and the sum of their lengths.
struct Stock {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

static STOCK: Mutex<Stock> = Mutex::new(Stock { buffers: Vec::new(), bytes: 0 });

/// Takes a buffer of this length, with arbitrary contents. Cost: a scan of the stock, or an
/// allocation.
pub fn take(length: usize) -> Vec<u8> {
    let mut stock = STOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let found = stock.buffers.iter().rposition(|buffer| buffer.len() == length);
    match found {
        Some(index) => {
            stock.bytes -= length;
            stock.buffers.swap_remove(index)
        }
        None => {
            drop(stock);
            vec![0; length]
        }
    }
}

/// Returns a buffer that is no longer needed. When the stock is full, the oldest buffers are
/// dropped.
pub fn give_back(buffer: Vec<u8>) {
    if buffer.is_empty() || buffer.len() > KEPT_BYTES {
        return;
    }
    let mut stock = STOCK.lock().unwrap_or_else(PoisonError::into_inner);
    stock.bytes += buffer.len();
    stock.buffers.push(buffer);
    while stock.bytes > KEPT_BYTES {
        let old = stock.buffers.remove(0);
        stock.bytes -= old.len();
    }
}

#[cfg(test)]
mod tests;
