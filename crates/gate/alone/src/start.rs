//! The constructor, its options, and the figures at the end.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use folioswap_gate::{dispatch, figures, hooks, rewrite};

/// write(2), kept here so that the object needs no further crate.
const WRITE: u32 = 1;

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(i32, *const *const c_char, *const *const c_char) = start;

extern "C" fn start(_count: i32, _arguments: *const *const c_char, environment: *const *const c_char) {
    let options = options(environment);
    if options.has(b"off") {
        return;
    }
    if options.has(b"print") {
        hooks::LEAVING.set(print);
    }
    if options.has(b"no-rewriting") {
        rewrite::after_traps(u32::MAX);
    } else if options.has(b"at-once") {
        rewrite::after_traps(1);
    }
    if options.has(b"hold") {
        STACK.store(environment as u64 / 4096, Relaxed);
        hooks::MANAGED.set(managed);
    }
    let _ = if options.has(b"no-dispatch") { dispatch::prepare() } else { dispatch::arm() };
}

/// The text of `FOLIOSWAP_GATE`.
struct Options(&'static [u8]);

impl Options {
    fn has(&self, wanted: &[u8]) -> bool {
        self.0.split(|byte| *byte == b',').any(|option| option == wanted)
    }
}

fn options(mut environment: *const *const c_char) -> Options {
    const NAME: &[u8] = b"FOLIOSWAP_GATE=";
    if environment.is_null() {
        return Options(b"");
    }
    loop {
        // SAFETY: the loader gives constructors the environment, which ends with a null pointer.
        let entry = unsafe { *environment };
        if entry.is_null() {
            return Options(b"");
        }
        // SAFETY: the entries are strings, and the program does not change them before its start.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(options) = text.strip_prefix(NAME) {
            return Options(options);
        }
        // SAFETY: this was not the last entry.
        environment = unsafe { environment.add(1) };
    }
}

/// The page of the first thread's stack that has the environment.
static STACK: AtomicU64 = AtomicU64::new(0);
/// Pages below it that are treated as managed.
const STACK_PAGES: u64 = 16;

/// Treats the beginning of the first thread's stack, which grows where it is touched, as managed,
/// so that calls hold and touch what they have in it.
fn managed(page: u64) -> hooks::Run {
    let managed = match STACK.load(Relaxed).checked_sub(page) {
        Some(0..STACK_PAGES) => hooks::Managed::Writable,
        _ => hooks::Managed::No,
    };
    hooks::Run { managed, end: page + 1 }
}

extern "C" fn print() {
    let mut line = Line { text: [0; 160], length: 0 };
    line.add(b"gate:");
    for (name, figure) in [
        (&b" trapped "[..], &figures::TRAPPED),
        (b" rewritten ", &figures::REWRITTEN),
        (b" left_alone ", &figures::LEFT_ALONE),
        (b" abandoned ", &figures::ABANDONED),
    ] {
        line.add(name);
        line.number(figure.get());
    }
    line.add(b"\n");
    // SAFETY: writes initialised bytes.
    let _ = unsafe { hooks::make_call(WRITE, [2, line.text.as_ptr() as u64, line.length as u64, 0, 0, 0]) };
}

struct Line {
    text: [u8; 160],
    length: usize,
}

impl Line {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(place) = self.text.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn number(&mut self, number: u64) {
        let mut power = 10_000_000_000_000_000_000u64;
        while power > 1 && number / power == 0 {
            power /= 10;
        }
        while power > 0 {
            self.add(&[b'0' + (number / power % 10) as u8]);
            power /= 10;
        }
    }
}
