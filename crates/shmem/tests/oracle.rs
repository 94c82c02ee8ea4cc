//! Random operations on objects within a tiny limit, by several threads, against plain vectors.
//!
//! The long form: `FOLIOSWAP_SHMEM_OPERATIONS=2000000 cargo test --release -p folioswap-shmem
//! --test oracle -- --nocapture`

use folioswap_shmem::before::{After1, After2, After5, After7, Series};
use folioswap_shmem::variant::{Current, Variant};
use folioswap_shmem::{
    Allocation, DeviceIo, HugePolicy, ObjectOf, Options, ShmemError, ShmemSpace, SwapDevice,
};
use folioswap_test_support::{environment, random::Random};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PAGE: u64 = 4096;

/// Bytes of one kind: zero, alike, compressible, or random.
fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    match random.below(4) {
        0 => {}
        1 => out.fill(random.next() as u8),
        2 => {
            for word in out.chunks_mut(8) {
                let value = random.below(5) as u8;
                word.fill(value);
            }
        }
        _ => {
            for word in out.chunks_mut(8) {
                let value = random.next().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                word.copy_from_slice(&value[..word.len()]);
            }
        }
    }
    out
}

/// An object and its expected content. A tail beyond the vector's end does not exist.
struct Checked<V: Variant> {
    object: ObjectOf<V>,
    expected: Vec<u8>,
    max: u64,
}

impl<V: Variant> Checked<V> {
    fn new(space: &Arc<ShmemSpace>, huge: HugePolicy, max: u64) -> Self {
        Checked { object: ObjectOf::new(space, huge), expected: Vec::new(), max }
    }

    fn step(&mut self, random: &mut Random) {
        let offset = random.below(self.max);
        let scale = [100, PAGE, 16 * PAGE, 300 * PAGE, self.max][random.below(5) as usize];
        let offset = if random.below(2) == 0 { offset / scale * scale } else { offset };
        let len = random.below(scale + 1).min(self.max - offset);
        match random.below(20) {
            0..=7 => {
                let mut found = vec![0xaa; len as usize];
                let read = self.object.read(offset, &mut found).unwrap();
                let end = (offset + len).min(self.expected.len() as u64).max(offset);
                assert_eq!(read as u64, end - offset);
                let there =
                    (offset as usize).min(self.expected.len())..(end as usize).min(self.expected.len());
                compare(&found[..read], &self.expected[there], offset);
            }
            8..=14 => {
                let new = bytes(random, len as usize);
                let written = match self.object.write(offset, &new) {
                    Ok(written) => written,
                    Err(ShmemError::NoSpace) => 0,
                    Err(error) => panic!("{error}"),
                };
                let end = offset as usize + written;
                if written > 0 {
                    let size = self.expected.len().max(end);
                    self.expected.resize(size, 0);
                    self.expected[offset as usize..end].copy_from_slice(&new[..written]);
                }
            }
            15 => match self.object.set_size(offset) {
                Ok(()) => self.expected.resize(offset as usize, 0),
                Err(error) => assert_eq!(error, ShmemError::NoSpace),
            },
            16 | 17 => {
                self.object.punch_hole(offset, len).unwrap();
                self.zeroed(offset, len);
            }
            18 => {
                if self.object.allocate(offset, len, Allocation::KeepSize).is_ok() && len > 0 {
                    let inside = offset.min(self.object.size().saturating_sub(1));
                    if offset < self.object.size() {
                        assert_eq!(self.object.seek_data(inside), Some(inside));
                    }
                }
            }
            _ => {
                // Lent all at once, so not too much of the limit.
                let from = (offset as usize).min(self.expected.len());
                let to = (from + 200_000).min(self.expected.len());
                let lent = self.object.lend(from as u64, to - from).unwrap();
                compare(&lent.pieces().collect::<Vec<_>>().concat(), &self.expected[from..to], from as u64);
            }
        }
        assert_eq!(self.object.size(), self.expected.len() as u64);
    }

    fn zeroed(&mut self, offset: u64, len: u64) {
        let size = self.expected.len() as u64;
        let (from, to) = (offset.min(size) as usize, (offset + len).min(size) as usize);
        self.expected[from..to].fill(0);
    }
}

fn compare(found: &[u8], expected: &[u8], offset: u64) {
    assert_eq!(found.len(), expected.len());
    if let Some(at) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
        panic!("offset {} is {} and not {}", offset + at as u64, found[at], expected[at]);
    }
}

fn operations(short: u64) -> u64 {
    environment::number("FOLIOSWAP_SHMEM_OPERATIONS", short)
}

/// The devices of a run, and whether some of them are taken off while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Devices {
    Store,
    StoreAndFile,
    /// Files before, beside and behind the store, which are taken off one by one, and then the
    /// store.
    TakenOff,
}

fn file(name: &str, priority: i32) -> SwapDevice {
    let file = SwapDevice::temporary("/var/tmp".as_ref(), Some(256 << 20), priority).unwrap();
    SwapDevice { name: name.into(), ..file }
}

/// Ends the wait of the threads that wait for this one, however it ends.
struct Over<'l>(&'l AtomicU64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}

fn run<V: Variant>(operations: u64, seed: u64, devices: Devices) {
    let options = Options::within(6 << 20);
    let options = match devices {
        Devices::Store => options,
        Devices::StoreAndFile => options.and(file("file", 0)),
        Devices::TakenOff => {
            let ram = SwapDevice::ram("ram".as_ref(), 8 << 20, 2, DeviceIo::Synchronous).unwrap();
            options.and(file("before", 2)).and(ram).and(file("beside", 1)).and(file("behind", 0))
        }
    };
    let space = ShmemSpace::new(options).unwrap();
    let left = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (space, left) = (&space, &left);
            scope.spawn(move || {
                let mut random =
                    Random::new((seed * 31 + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                let max = if devices == Devices::Store { 2 << 20 } else { 5 << 20 };
                let policies = [HugePolicy::Always, HugePolicy::Never, HugePolicy::WithinSize];
                let mut objects = policies.map(|huge| Checked::<V>::new(space, huge, max - PAGE / 3));
                let mut operation = 0;
                // The loop also runs as long as other threads do: there is always something to race
                // with.
                while operation < operations || devices == Devices::TakenOff && left.load(Relaxed) > 0 {
                    objects[random.below(3) as usize].step(&mut random);
                    if operation % 64 == 0 {
                        let limit = space.statistics().limit;
                        let used = space.statistics().used;
                        assert!(used <= limit + (8 << 20), "{used} of {limit}");
                    }
                    operation += 1;
                }
            });
        }
        if devices == Devices::TakenOff {
            let (space, left) = (&space, &left);
            scope.spawn(move || {
                let _over = Over(left);
                for name in ["before", "ram", "zram", "beside"] {
                    let until = space.statistics().counts.pswpout + 4 * operations;
                    while space.statistics().counts.pswpout < until {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    let report = space.swapoff(name.as_ref(), || true).unwrap();
                    assert!(report.pages > 0 && report.lost == 0, "{name}: {report:?}");
                    let device = space.devices().into_iter().find(|device| device.name.as_os_str() == name);
                    assert!(device.is_some_and(|device| device.is_off && device.used == 0), "{name}");
                }
            });
        }
    });
    let statistics = space.statistics();
    assert!(statistics.counts.pswpin > 100 && statistics.counts.pswpout > 100, "it swaps: {statistics:?}");
    assert_eq!(statistics.content, 0, "all objects are gone");
    space.validate().unwrap();
}

#[test]
fn objects_are_what_a_plain_vector_is() {
    run::<Current>(operations(600), 1, Devices::StoreAndFile);
}

#[test]
fn without_a_file_too() {
    run::<Current>(operations(600), 2, Devices::Store);
}

/// swapoff against everything that the oracle does.
#[test]
fn while_devices_are_taken_off() {
    run::<Current>(operations(400), 8, Devices::TakenOff);
    run::<Series>(operations(50), 9, Devices::TakenOff);
}

#[test]
fn as_the_series_had_it_after_each_patch() {
    run::<After1>(operations(100), 3, Devices::StoreAndFile);
    run::<After2>(operations(100), 4, Devices::StoreAndFile);
    run::<After5>(operations(100), 5, Devices::StoreAndFile);
    run::<After7>(operations(100), 6, Devices::StoreAndFile);
    run::<Series>(operations(100), 7, Devices::StoreAndFile);
}
