//! Tests of a limit that sinks while the thread that reclaims gets no processor.

use crate::options::{HugePolicy, Options};
use crate::sync::lock;
use crate::{ShmemObject, ShmemSpace};

/// The thread that reclaims may get no processor while others wait for it: who waits for a lower
/// limit does its work too.
#[test]
fn who_waits_for_a_lower_limit_helps() {
    let mib = 1 << 20;
    let (low, high) = (16 * mib, 64 * mib);
    let options = Options { limit_max: high, size: Some(high), ..Options::within(high) };
    let space = ShmemSpace::new(options).expect("a space");
    let object = ShmemObject::new(&space, HugePolicy::Never);
    let text: Vec<u8> = (0..mib).map(|at| if at % 64 == 0 { (at / 64) as u8 } else { 7 }).collect();
    for at in 0..40 {
        assert_eq!(object.write(at * mib, &text), Ok(text.len()));
    }
    let reclaimer = space.reclaimer.as_ref().expect("a thread that reclaims");
    let _stopped = lock(&reclaimer.signal.working);
    space.set_limit(low).expect("allowed");
    assert!(!space.is_within_limit(), "nothing leaves by itself");
    let rounds = (0..100).take_while(|_| !space.help_within_limit()).count();
    assert!((1..100).contains(&rounds), "{rounds} rounds, a part at a time");
}
