//! Buffers of requests that have ended, for those that come: making and clearing one for each request takes as long as copying its data.
//!
//! One stock for the process, since a buffer is made by who asks and given back by who reads the answer. What is in it is what was in it before: whoever takes one
//! writes all of it, or learns that not all came ([`Expected::finish`](crate::reply::Expected::finish)).

use std::sync::{Mutex, PoisonError};

/// Bytes that are kept: as much as is under way at a time where it pays, and little beside the smallest limit of a group.
const KEPT_BYTES: usize = 1 << 20;

/// Buffers, and the bytes of all of them.
struct Stock {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

static STOCK: Mutex<Stock> = Mutex::new(Stock { buffers: Vec::new(), bytes: 0 });

/// A buffer of this length. Its contents are anything. Cost: a look at what is kept, or making one.
pub fn take(length: usize) -> Vec<u8> {
    let mut stock = STOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let found = stock.buffers.iter().rposition(|buffer| buffer.len() == length);
    match found {
        Some(place) => {
            stock.bytes -= length;
            stock.buffers.swap_remove(place)
        }
        None => {
            drop(stock);
            vec![0; length]
        }
    }
}

/// Nobody needs it any more. When there are enough, the one that was kept longest goes.
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
