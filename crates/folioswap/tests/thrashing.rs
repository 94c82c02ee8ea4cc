//! A program that works with more than its limit holds is told so, and one that does not is not.

use folioswap::{Device, FaultMode, Notices, Region, RegionAllocator, Swap};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "FOLIOSWAP_TEST_CHILD";
const MIB: usize = 1 << 20;

/// Returns a swap whose pages come from a file: the waiting is for the file then, and not for the
/// processors, which other tests may need.
fn swap() -> Swap {
    Swap::builder().limit("8M").device(Device::file("/var/tmp").size("256M")).sigbus().build().unwrap()
}

fn thrashing_ms(swap: &Swap) -> u64 {
    swap.statistics().counter("thrashing_ms").unwrap()
}

const ENTRIES: u64 = 50_000;

/// The case is a map of 34 MiB within 8, as a program that was given too small a limit has.
#[test]
fn a_map_that_is_larger_than_the_limit_is_told_once() {
    let Some(part) = std::env::var_os(CHILD) else {
        let name = std::thread::current().name().expect("a test has a name").to_owned();
        let children = [("stderr", 1), ("silent", 0)].map(|(part, lines)| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "--nocapture", &name]).env(CHILD, part);
            (child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap(), lines)
        });
        for (child, lines) in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            let notices: Vec<_> = said.lines().filter(|line| line.starts_with("folioswap: ")).collect();
            assert_eq!(notices.len(), lines, "{said}");
            assert!(notices.iter().all(|line| line.contains("its limit of 8.0 MiB holds")), "{said}");
        }
        return;
    };
    let swap = swap();
    if part == "silent" {
        swap.set_notices(Notices::Silent);
    }
    let allocator = RegionAllocator::new(&swap, "64M").unwrap();
    let mut map = hashbrown::HashMap::with_capacity_in(ENTRIES as usize, allocator);
    let (mut word, until) = (1_u64, Instant::now() + Duration::from_secs(150));
    // The notice comes after ten seconds, and there has been time for more of them.
    while thrashing_ms(&swap) < 15_000 {
        assert!(Instant::now() < until, "{} ms, {}", thrashing_ms(&swap), swap.statistics());
        for _ in 0..100 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (word >> 33) % ENTRIES;
            assert_eq!(map.entry(key).or_insert([key; 64])[63], key);
        }
    }
    assert!(swap.statistics().to_string().contains("it thrashed for"), "{}", swap.statistics());
}

fn fill(region: &mut Region) {
    for (number, page) in region.as_mut_slice().chunks_mut(4096).enumerate() {
        page.fill(number as u8);
    }
}

/// Touches far from each other are counted, whoever serves them.
#[test]
fn the_figure_grows_in_both_fault_modes() {
    let swap = swap();
    swap.set_notices(Notices::Silent);
    for mode in [FaultMode::HandlerThreads, FaultMode::Sigbus] {
        let mut region = swap.region_with(32 * MIB, mode).unwrap();
        fill(&mut region);
        let (before, mut at) = (thrashing_ms(&swap), 0);
        let until = Instant::now() + Duration::from_secs(30);
        while thrashing_ms(&swap) == before {
            assert!(Instant::now() < until, "{mode:?}: {}", swap.statistics());
            for _ in 0..1000 {
                at = (at + 4099 * 4096) % region.len();
                assert_eq!(region.as_slice()[at], (at / 4096) as u8);
            }
        }
    }
}

/// New memory waits for other memory to leave. More memory would not help it.
#[test]
fn a_program_that_only_fills_memory_is_not_told() {
    let swap = swap();
    let mut regions: Vec<Region> = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        let mut region = swap.region(16 * MIB).unwrap();
        fill(&mut region);
        if regions.len() == 3 {
            regions.clear();
        }
        regions.push(region);
    }
    assert!(swap.statistics().counter("pswpout").unwrap() > 10_000);
    assert_eq!(thrashing_ms(&swap), 0);
}
