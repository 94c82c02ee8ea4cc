//! The engine that keeps a program within its limit.

use crate::MIB;

/// The engine that keeps a program within its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// No engine: the run shows the program's need and its output.
    Nothing,
    /// `folioswap run --memory N`.
    Folioswap {
        /// The limit in bytes. `None` omits `--memory`.
        memory: Option<u64>,
        /// `total` or `resident`.
        scope: &'static str,
    },
    /// A memory cgroup with this limit on resident memory, and zram with LZ4 as swap.
    Kernel {
        /// The limit in bytes.
        memory: u64,
    },
}

impl Engine {
    /// The limit in bytes, where there is one.
    pub fn limit(&self) -> Option<u64> {
        match *self {
            Engine::Nothing => None,
            Engine::Folioswap { memory, .. } => memory,
            Engine::Kernel { memory } => Some(memory),
        }
    }
}

/// The engine that the tests judge: folioswap, or the kernel with
/// `FOLIOSWAP_ACCEPTANCE_ENGINE=kernel`. The kernel's run proves the tests themselves: a test that
/// fails there is defective.
pub fn engine(memory: u64) -> Engine {
    match std::env::var("FOLIOSWAP_ACCEPTANCE_ENGINE").as_deref() {
        Ok("kernel") => Engine::Kernel { memory },
        Ok("nothing") => Engine::Nothing,
        Ok("folioswap") | Err(_) => Engine::Folioswap { memory: Some(memory), scope: "total" },
        Ok(other) => panic!("FOLIOSWAP_ACCEPTANCE_ENGINE={other}: folioswap, kernel or nothing"),
    }
}

/// Whether the tests judge folioswap itself (see [`engine`]).
pub fn judging_folioswap() -> bool {
    matches!(engine(MIB), Engine::Folioswap { .. })
}

/// How much a test does (the seconds that a timed program runs, rounds, rows): `long`, which the
/// requirement states, when `FOLIOSWAP_LONG=1`, else `short`.
pub fn amount(short: u64, long: u64) -> u64 {
    if std::env::var_os("FOLIOSWAP_LONG").is_some_and(|value| value == "1") { long } else { short }
}
