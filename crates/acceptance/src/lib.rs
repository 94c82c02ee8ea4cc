//! Judges folioswap from outside, as a user would: tests start programs under a limit, watch the
//! memory of the whole process tree in a memory cgroup that has no limit of its own, and compare
//! the output.
//!
//! * [`job::Job`] describes a program. It is started without a limit, under folioswap, or under the
//!   kernel's own swap (a memory cgroup with a limit, and zram), and yields an [`job::Outcome`].
//! * [`data`] makes page contents that can be verified from the page's number alone.
//! * [`others`] names programs of others, which print the same whenever they run.
//! * [`shown`] asks a running group what its devices hold.
//! * [`killer`] ends a process at a step that the process itself names.
//! * [`skip!`](crate::skip) ends a test whose facility is missing here, so that it counts as
//!   skipped.
//!
//! The programs are in `src/bin` and `c`. Each verifies its own data and prints a result that does
//! not depend on timing.

pub mod disk;
pub mod job;
pub mod killer;
pub mod mount;
pub mod others;
pub mod programs;
pub mod ratio;
pub mod shown;
pub use folioswap_test_support::skipping;
pub mod traces;
pub mod waiting;

pub use folioswap_bench::{data, memory};

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// Ends the test as skipped.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::skipping::note(&format!($($reason)*));
        return;
    }};
}

/// Whether root runs the test.
pub fn is_root() -> bool {
    // SAFETY: no memory effects.
    unsafe { libc::geteuid() == 0 }
}

/// Skips the test where it is not folioswap that is judged, or not root that runs it, who alone can
/// do this.
#[macro_export]
macro_rules! only_root {
    ($can:literal) => {
        if !$crate::is_root() {
            $crate::skip!(concat!("only root can ", $can));
        }
        if !$crate::job::judging_folioswap() {
            $crate::skip!("only for folioswap");
        }
    };
}

/// Tests that each run one case of a program, by a function `case` that gets its name.
#[macro_export]
macro_rules! cases {
    ($($(#[$attribute:meta])* $test:ident = $name:literal,)*) => { $($(#[$attribute])* #[test] fn $test() { case($name); })* };
}

/// Skips the test when one of the named programs is not installed.
#[macro_export]
macro_rules! need {
    ($($program:expr),*) => {
        $(if $crate::programs::which($program).is_none() { $crate::skip!("{} is not installed", $program); })*
    };
}
