use super::*;
use folioswap_devices::{FileSlot, Page};

/// Memory for the keys of one test, which stays.
fn keys() -> (Keys, NonNull<u8>) {
    #[repr(C, align(4096))]
    struct Room([u8; Keys::BYTES]);
    let room = NonNull::from(Box::leak(Box::new(Room([0; Keys::BYTES])))).cast();
    // SAFETY: zeroed, aligned, and nobody else's.
    (unsafe { Keys::new(room) }, room)
}

/// A copy of the keys, as a forked child has one.
fn copy_of(of: &Keys, room: NonNull<u8>) -> Keys {
    let (copy, to) = keys();
    // SAFETY: both are of this size, and no thread uses either.
    unsafe { to.copy_from_nonoverlapping(room, Keys::BYTES) };
    let (from, mut table) = (of.0.lock(), copy.0.lock());
    (table.current, table.next, table.high) = (from.current, from.next, from.high);
    drop(table);
    copy
}

fn ciphertext(cipher: &PageCipher) -> Page {
    let mut to = [0; PAGE];
    cipher.encrypt(FileSlot::new(1).unwrap(), &[9; PAGE], &mut to);
    to
}

fn under(keys: &Keys, number: KeyNumber) -> Page {
    ciphertext(&keys.cipher(number).expect("a key"))
}

#[test]
fn a_key_is_used_on_until_it_is_to_be_another() {
    let (keys, _) = keys();
    let (first, cipher) = keys.take(3).unwrap();
    assert!(!first.is_none());
    assert_eq!(keys.take(1).unwrap().0, first);
    assert!(under(&keys, first) == ciphertext(&cipher));
    keys.renew();
    let (second, other) = keys.take(1).unwrap();
    assert_ne!(first, second);
    assert!(ciphertext(&other) != ciphertext(&cipher));
    assert!(under(&keys, first) == ciphertext(&cipher), "pages are under it still");
}

#[test]
fn neither_parent_nor_child_has_what_the_other_writes_after_the_fork() {
    let (parent, room) = keys();
    let (before, _) = parent.take(1).unwrap();
    parent.renew();
    let child = copy_of(&parent, room);
    let ((in_parent, of_parent), (in_child, of_child)) = (parent.take(1).unwrap(), child.take(1).unwrap());
    assert!(under(&parent, before) == under(&child, before), "what was inherited");
    let (of_parent, of_child) = (ciphertext(&of_parent), ciphertext(&of_child));
    assert!(of_parent != of_child);
    for number in 1..KEYS_MAX as u16 {
        let number = KeyNumber::new(number).unwrap();
        assert!(child.cipher(number).is_none_or(|cipher| ciphertext(&cipher) != of_parent), "{in_parent:?}");
        assert!(parent.cipher(number).is_none_or(|cipher| ciphertext(&cipher) != of_child), "{in_child:?}");
    }
}

#[test]
fn a_key_that_was_inherited_unused_is_used_by_nobody() {
    let (parent, room) = keys();
    let (number, cipher) = parent.take(1).unwrap();
    parent.put(number, 1);
    parent.renew();
    let child = copy_of(&parent, room);
    for keys in [&parent, &child] {
        assert!(ciphertext(&keys.take(1).unwrap().1) != ciphertext(&cipher));
    }
}

#[test]
fn a_key_goes_with_its_last_page() {
    let (keys, room) = keys();
    let (first, _) = keys.take(2).unwrap();
    // SAFETY: within the table, and no other thread uses it.
    let bytes = || unsafe { room.cast::<Key>().add(first.raw().into()).as_ref() }.bytes;
    keys.renew();
    let (second, _) = keys.take(1).unwrap();
    keys.put(first, 1);
    assert_ne!(bytes(), [0; PageCipher::KEY_BYTES]);
    keys.put(first, 1);
    assert_eq!(bytes(), [0; PageCipher::KEY_BYTES]);
    // Its number is free again; the present key stays without a page.
    keys.put(second, 1);
    assert_eq!(keys.take(1).unwrap().0, second);
    keys.renew();
    assert_eq!(keys.take(1).unwrap().0, first);
}

#[test]
fn there_are_as_many_as_numbers_and_the_last_is_used_on() {
    let (keys, _) = keys();
    let mut seen = std::collections::HashSet::new();
    for _ in 1..KEYS_MAX {
        keys.renew();
        assert!(seen.insert(keys.take(1).unwrap().0));
    }
    let last = keys.take(1).unwrap().0;
    keys.renew();
    assert_eq!(keys.take(1).unwrap().0, last);
    // One that becomes free is taken.
    let free = *seen.iter().find(|&&number| number != last).unwrap();
    keys.put(free, 1);
    assert_eq!(keys.take(1).unwrap().0, free);
}

#[test]
fn it_is_locked_and_in_no_dump() {
    let (keys, room) = keys();
    let _ = keys.take(1).unwrap();
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let address = room.as_ptr().addr();
    let mut inside = false;
    let flags = text.lines().find(|line| {
        if let Some((start, end)) = line.split(' ').next().and_then(|range| range.split_once('-'))
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = (start..end).contains(&address);
        }
        inside && line.starts_with("VmFlags:")
    });
    let flags = flags.expect("the mapping");
    assert!(flags.contains(" dd") && flags.contains(" lo"), "{flags}");
}
