//! Pages in a store: text that is written there is found again, and is searched for where it must
//! not be readable.

use folioswap_group::units::PAGE_SIZE;
use folioswap_nbd::error::RequestError;
use folioswap_nbd::store::Store;
use std::sync::{Arc, mpsc};

const PLANTED: &[u8] = b"planted: nobody may find this anywhere ";

/// A page full of a text that names its number.
pub fn planted(number: u64) -> Vec<u8> {
    let text = [PLANTED, format!("{number:8} ").as_bytes()].concat();
    text.iter().copied().cycle().take(PAGE_SIZE).collect()
}

/// Whether any planted text is readable in these bytes.
pub fn holds_planted(bytes: &[u8]) -> bool {
    bytes.windows(PLANTED.len()).any(|window| window == PLANTED)
}

/// Writes pages from a slot on, and waits for the end.
pub fn write(store: &Arc<Store>, slot: u64, pages: Vec<u8>) -> Result<(), RequestError> {
    let (sender, receiver) = mpsc::channel();
    store.write(slot, pages, Box::new(move |result| drop(sender.send(result))));
    receiver.recv().expect("an answer").map(drop)
}

/// Reads `count` pages, and waits for them.
pub fn read(store: &Arc<Store>, slot: u64, count: u64) -> Result<Vec<u8>, RequestError> {
    let (sender, receiver) = mpsc::channel();
    store.read(slot, count, Box::new(move |result| drop(sender.send(result))));
    receiver.recv().expect("an answer")
}
