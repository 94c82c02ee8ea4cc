//! What the agent takes from the program, and what it brings itself.

use std::{collections::BTreeSet, hint::black_box, process::Command};

// The agent has no test binary of its own, so its functions on bytes are linked into this one, in
// place of the C library's.
#[path = "../../agent/src/bytes/mod.rs"]
mod bytes;

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8;
    fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8;
    fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32;
    fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32;
    fn strlen(text: *const u8) -> usize;
}

/// The names that the agent leaves to the program's objects. Pager threads call none of them.
const TAKEN: [&str; 8] = [
    "__errno_location",
    "dlerror",
    "dlsym",
    "environ",
    "free",
    "getauxval",
    "malloc",
    "pthread_attr_getstacksize",
];

/// A program may have its own function of any name, and must not have it run by the pager.
#[test]
fn the_agent_takes_no_function_of_the_program_that_the_pager_could_call() {
    let agent = env!("FOLIOSWAP_AGENT_FILE");
    let names = |arguments: &[&str]| -> BTreeSet<(String, String)> {
        let output = Command::new("nm").arg("-D").args(arguments).arg(agent).output().expect("binutils");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        let pair = |line: &str| {
            let (kind, name) = line.trim().rsplit_once(' ').map(|(rest, name)| (rest, name.to_owned()))?;
            Some((kind.rsplit(' ').next()?.to_owned(), name))
        };
        text.lines().filter_map(pair).collect()
    };
    let undefined = names(&["--undefined-only"]);
    let strong: BTreeSet<_> =
        undefined.iter().filter(|(kind, _)| kind == "U").map(|(_, name)| name).collect();
    assert_eq!(strong.into_iter().map(String::as_str).collect::<Vec<_>>(), TAKEN);
    let weak = |name: &str| undefined.contains(&("w".to_owned(), name.to_owned()));
    assert!(weak("__register_atfork"), "another C library has none: {undefined:?}");
    let defined = names(&["--defined-only"]);
    let shown = defined.iter().find(|(_, name)| name.starts_with("mem") || name.starts_with("str"));
    assert_eq!(shown, None, "nor may the program get ours");
}

/// Its own calls of what it interposes must not reach a program's function of the same name, which
/// may call the agent.
#[test]
fn the_agent_calls_its_own_functions() {
    let agent = env!("FOLIOSWAP_AGENT_FILE");
    let text = |command: &str, arguments: &[&str]| {
        let output = Command::new(command).args(arguments).arg(agent).output().expect("binutils");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let defined = text("nm", &["-D", "--defined-only"]);
    let defined: BTreeSet<&str> =
        defined.lines().filter_map(|line| line.rsplit(' ').next()?.split('@').next()).collect();
    assert!(["mmap", "ioctl", "syscall"].iter().all(|name| defined.contains(name)), "{defined:?}");
    let relocations = text("readelf", &["-rW"]);
    let named = relocations.lines().filter_map(|line| line.split_whitespace().nth(4));
    let by_name: Vec<_> =
        named.filter(|name| defined.contains(name.split('@').next().unwrap_or(name))).collect();
    assert_eq!(by_name, Vec::<&str>::new());
}

const LENGTH: usize = 3000;

fn numbers() -> Vec<u8> {
    (0..LENGTH as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// All counts up to some beyond the last change of method.
fn counts() -> impl Iterator<Item = usize> {
    (0..150).chain([191, 192, 193, 255, 256, 257, 300, 1023, 1024, 1025, 1300])
}

#[test]
fn bytes_are_copied_wherever_they_overlap() {
    for copy in [memcpy, memmove] {
        let copy = black_box(copy);
        for count in counts() {
            let upwards = [(0, 1500), (100, 101), (100, 107), (100, 163), (100, 170), (9, 900)];
            let downwards = [(1490, 3), (100, 100), (101, 100), (107, 100), (163, 100), (170, 100), (900, 9)];
            for (from, to) in upwards.into_iter().chain(downwards) {
                let (mut found, before) = (numbers(), numbers());
                // SAFETY: both ranges lie within the bytes.
                let returned = unsafe { copy(found.as_mut_ptr().add(to), found.as_ptr().add(from), count) };
                assert_eq!(returned, found[to..].as_mut_ptr());
                for (at, &byte) in found.iter().enumerate() {
                    let copied = at.wrapping_sub(to) < count;
                    let expected = if copied { before[at - to + from] } else { before[at] };
                    assert_eq!(byte, expected, "{count} bytes from {from} to {to}: at {at}");
                }
            }
        }
    }
}

#[test]
fn bytes_are_set_and_no_others() {
    for count in counts() {
        for (start, byte) in [(0, 0), (1, 0x5a), (15, 0x1ff)] {
            let (mut found, before) = (numbers(), numbers());
            // SAFETY: the range lies within the bytes.
            let returned = unsafe { black_box(memset)(found.as_mut_ptr().add(start), byte, count) };
            assert_eq!(returned, found[start..].as_mut_ptr());
            for (at, &now) in found.iter().enumerate() {
                let expected = if at.wrapping_sub(start) < count { byte as u8 } else { before[at] };
                assert_eq!(now, expected, "{count} bytes from {start}: at {at}");
            }
        }
    }
}

#[test]
fn bytes_are_compared_as_numbers_from_the_first() {
    let (compare, differ) = (black_box(memcmp), black_box(bcmp));
    for count in counts() {
        let one = numbers();
        let of = |other: &[u8]| {
            let (one, other) = (one.as_ptr(), other.as_ptr());
            // SAFETY: `count` bytes of each are there.
            unsafe { (compare(one, other, count), differ(one, other, count)) }
        };
        let mut other = one.clone();
        other[count] ^= 0x80;
        assert_eq!(of(&other), (0, 0), "what follows does not count");
        for at in 0..count {
            let mut other = one.clone();
            other[at] ^= 0x80;
            other[count - 1] ^= 0x01;
            let sign = i32::from(one[at]) - i32::from(other[at]);
            let (found, differs) = of(&other);
            assert!(found.signum() == sign.signum() && differs != 0, "{count} bytes: at {at}");
        }
    }
    for length in 0..40 {
        let text = [&vec![b'x'; length][..], b"\0rest"].concat();
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { black_box(strlen)(text.as_ptr()) }, length);
    }
}
