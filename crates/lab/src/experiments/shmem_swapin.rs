//! Series 5: the cost of swapping a large object in (spec §5).

use crate::ram_device::PAGE;
use folioswap_report::statistics::Summary;
use folioswap_report::{Bar, Chart, Progress, Report, Show, Table};
use folioswap_shmem::before::{After1, After2, After5, After7, Before, Series};
use folioswap_shmem::variant::{Current, Hooked, Hooks, Variant};
use folioswap_shmem::{
    Counts, CreateError, HugePolicy, ObjectOf, Options as SpaceOptions, ShmemError, ShmemSpace,
};
use folioswap_slots::Order;
use serde::Serialize;
use std::cell::Cell;
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// Size of the published object, MiB.
const PUBLISHED_MIB: u64 = 24 << 10;

/// Size of the object and number of rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Options {
    /// Size of the object.
    pub mib: u64,
    /// Rounds, in each of which every variant swaps the object in once.
    pub rounds: u32,
}

impl Options {
    /// 1/24 of the published size, with as many samples as were published.
    pub fn full() -> Options {
        Options { mib: 1024, rounds: 24 }
    }

    /// Half a minute.
    pub fn quick() -> Options {
        Options { mib: 256, rounds: 3 }
    }

    /// Scales a time for this object to the published size.
    fn scaled(&self, seconds: f64) -> f64 {
        seconds * PUBLISHED_MIB as f64 / self.mib as f64
    }
}

/// Whether large folios can be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Supply {
    /// Always.
    Plenty,
    /// Every second attempt at a folio as large as the entry fails; smaller ones are to be had.
    EverySecond,
    /// Never, as once zswap was used or a range is watched by userfaultfd: every swap-in takes the
    /// fallback.
    Never,
}

impl Supply {
    /// The name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Supply::Plenty => "large folios are always to be had",
            Supply::EverySecond => "every second large folio is not to be had",
            Supply::Never => "large folios are never to be had",
        }
    }
}

/// Size of the object's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Entries {
    /// 2 MB, as huge=always gives it.
    Huge,
    /// 64 kB.
    Kb64,
}

impl Entries {
    const fn order(self) -> u32 {
        match self {
            Entries::Huge => 9,
            Entries::Kb64 => 4,
        }
    }

    /// The size in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Entries::Huge => "2 MB",
            Entries::Kb64 => "64 kB",
        }
    }
}

/// All cases: supply of large folios, and size of entries.
const CASES: [(Supply, Entries); 6] = [
    (Supply::Plenty, Entries::Huge),
    (Supply::EverySecond, Entries::Huge),
    (Supply::Never, Entries::Huge),
    (Supply::Plenty, Entries::Kb64),
    (Supply::EverySecond, Entries::Kb64),
    (Supply::Never, Entries::Kb64),
];

thread_local! {
    static SUPPLY: Cell<Supply> = const { Cell::new(Supply::Plenty) };
    /// Order of the object's entries, and how many folios as large were asked for.
    static ENTRY_ORDER: Cell<u32> = const { Cell::new(0) };
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// Refuses large folios as `SUPPLY` says.
struct Refusal;

impl Hooks for Refusal {
    fn may_allocate_large(order: Order) -> bool {
        let is_largest = order.index() as u32 == ENTRY_ORDER.get();
        ASKED.set(ASKED.get() + u64::from(is_largest));
        match SUPPLY.get() {
            Supply::Plenty => true,
            Supply::EverySecond => !is_largest || ASKED.get().is_multiple_of(2),
            Supply::Never => false,
        }
    }
}

type Refused<V> = Hooked<V, Refusal>;

/// The swap-in of one round.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Sample {
    /// Time for the whole object.
    pub seconds: f64,
    /// Folios that came back.
    pub swapins: u64,
    /// Walks of the map for these folios.
    pub walks: u64,
    /// Number of the folios as large as the entries.
    pub large: u64,
    /// Swap-ins that fell back to smaller folios.
    pub fallbacks: u64,
    /// Large entries that were split.
    pub splits: u64,
    /// Pages read ahead.
    pub read_ahead: u64,
    /// Major faults.
    pub major_faults: u64,
    /// Swap-ins that were begun again.
    pub retries: u64,
}

impl Sample {
    fn between(seconds: f64, entries: Entries, before: &Counts, after: &Counts) -> Sample {
        let order = entries.order() as usize;
        Sample {
            seconds,
            swapins: after.swapins - before.swapins,
            walks: after.walks - before.walks,
            large: after.swpin[order] - before.swpin[order],
            fallbacks: after.swpin_fallback[order] - before.swpin_fallback[order],
            splits: after.entry_splits - before.entry_splits,
            read_ahead: after.swap_ra - before.swap_ra,
            major_faults: after.pgmajfault - before.pgmajfault,
            retries: after.retries - before.retries,
        }
    }

    /// Walks of the map per swap-in.
    pub fn walks_each(&self) -> f64 {
        self.walks as f64 / self.swapins.max(1) as f64
    }
}

/// One variant with one supply.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The name in the table.
    pub variant: &'static str,
    /// The supply of large folios.
    pub supply: Supply,
    /// Size of the entries.
    pub entries: Entries,
    /// A sample for each round.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// Summary of the times, seconds.
    pub fn seconds(&self) -> Summary {
        Summary::of(&self.samples.iter().map(|sample| sample.seconds).collect::<Vec<_>>())
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ShmemSwapinError {
    /// The space cannot be created, most likely for want of memory.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The object cannot be written or read.
    #[error(transparent)]
    Shmem(#[from] ShmemError),
    /// The object differs from the data written to it.
    #[error("page {page} came back wrong with the variant {variant:?}: a lost page")]
    Wrong {
        /// The page's number in the object.
        page: u64,
        /// The variant.
        variant: &'static str,
    },
    /// The object was not swapped out.
    #[error("only {left} of {pages} pages were swapped out: memory is short")]
    Stayed {
        /// Pages that left.
        left: u64,
        /// Pages that should have left.
        pages: u64,
    },
}

/// An object of any variant, so that variants can be in one list.
trait Subject {
    fn name(&self) -> &'static str;
    fn write(&self, mib: u64, entries: Entries) -> Result<(), ShmemSwapinError>;
    fn round(&self, mib: u64, case: (Supply, Entries)) -> Result<Sample, ShmemSwapinError>;
}

struct Object<V: Variant> {
    name: &'static str,
    object: ObjectOf<Refused<V>>,
}

/// Fills a page of the object: about as compressible as memory is, and different in each page.
fn fill(page: u64, bytes: &mut [u8]) {
    let mut state = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        if at % 8 < 3 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        word.copy_from_slice(&state.to_le_bytes());
    }
}

impl<V: Variant> Subject for Object<V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn write(&self, mib: u64, entries: Entries) -> Result<(), ShmemSwapinError> {
        // Each piece becomes one folio.
        let mut piece = vec![0; PAGE << entries.order()];
        for start in (0..mib * MIB).step_by(piece.len()) {
            for (number, page) in piece.chunks_exact_mut(PAGE).enumerate() {
                fill(start / PAGE as u64 + number as u64, page);
            }
            self.object.write(start, &piece)?;
        }
        Ok(())
    }

    fn round(&self, mib: u64, (supply, entries): (Supply, Entries)) -> Result<Sample, ShmemSwapinError> {
        let pages = mib * MIB / PAGE as u64;
        let left = self.object.page_out();
        if left < pages {
            return Err(ShmemSwapinError::Stayed { left, pages });
        }
        SUPPLY.set(supply);
        ENTRY_ORDER.set(entries.order());
        ASKED.set(0);
        let before = self.object.space().statistics().counts;
        let mut firsts = Vec::with_capacity(pages as usize);
        let start = Instant::now();
        for page in 0..pages {
            let mut touch = |piece: &[u8]| firsts.push(piece[page as usize % PAGE]);
            self.object.read_with(page * PAGE as u64, PAGE, &mut touch)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        SUPPLY.set(Supply::Plenty);
        let after = self.object.space().statistics().counts;
        let mut expected = [0; PAGE];
        for (page, &byte) in firsts.iter().enumerate() {
            fill(page as u64, &mut expected);
            if expected[page % PAGE] != byte {
                return Err(ShmemSwapinError::Wrong { page: page as u64, variant: self.name });
            }
        }
        Ok(Sample::between(seconds, entries, &before, &after))
    }
}

/// The variants, and the published times of the steps that they stand for: seconds for 24 GiB.
const VARIANTS: [(&str, &str); 7] = [
    ("before", "10.66"),
    ("after 1", "10.58"),
    ("after 2", "10.65"),
    ("after 5", "9.79"),
    ("after 7", "9.78"),
    ("all", "9.79"),
    ("today", "-"),
];

fn subject(name: &'static str, mib: u64) -> Result<Box<dyn Subject>, ShmemSwapinError> {
    fn of<V: Variant>(name: &'static str, mib: u64) -> Result<Box<dyn Subject>, ShmemSwapinError> {
        // The object fits into the limit in memory and in the store at once, so that only the
        // swap-in takes time.
        let space = ShmemSpace::new(SpaceOptions::within(2 * mib * MIB + 64 * MIB))?;
        let object = ObjectOf::<Refused<V>>::new(&space, HugePolicy::Always);
        Ok(Box::new(Object::<V> { name, object }))
    }
    match name {
        "before" => of::<Before>(name, mib),
        "after 1" => of::<After1>(name, mib),
        "after 2" => of::<After2>(name, mib),
        "after 5" => of::<After5>(name, mib),
        "after 7" => of::<After7>(name, mib),
        "all" => of::<Series>(name, mib),
        _ => of::<Current>(name, mib),
    }
}

/// Runs all variants, each once a round, one at a time.
///
/// # Errors
/// [`ShmemSwapinError`].
pub fn run(options: &Options, show: Show) -> Result<Vec<Outcome>, ShmemSwapinError> {
    let progress = Progress::new(show, CASES.len() * VARIANTS.len() * options.rounds as usize);
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (supply, entries) in CASES {
        let first = outcomes.len();
        outcomes.extend(VARIANTS.iter().map(|&(variant, _)| Outcome {
            variant,
            supply,
            entries,
            samples: Vec::new(),
        }));
        for _ in 0..options.rounds {
            for outcome in &mut outcomes[first..] {
                // Only one object exists at a time, so that memory for one is enough.
                let subject = subject(outcome.variant, options.mib)?;
                subject.write(options.mib, entries)?;
                outcome.samples.push(subject.round(options.mib, (supply, entries))?);
                progress.done(subject.name());
            }
        }
    }
    Ok(outcomes)
}

fn published() -> Table {
    let mut table = Table::new(
        "Published: sequential swap-in of 24 GiB from zram, huge=always, mean of 24, seconds (sigma 0.04-0.05)",
        &["before", "after 1", "after 2", "after 3", "after 4", "after 5", "after 6", "after 7", "after 8"],
    );
    let nine = ["10.66", "10.58", "10.65", "10.65", "10.67", "9.79", "9.79", "9.78", "9.79"];
    table.rows.push(nine.map(str::to_owned).to_vec());
    table
}

/// The table of the variants with one size of entries and one supply of large folios.
fn ours(options: &Options, outcomes: &[Outcome], (supply, entries): (Supply, Entries)) -> Table {
    let belongs = |outcome: &&Outcome| outcome.supply == supply && outcome.entries == entries;
    let of: Vec<&Outcome> = outcomes.iter().filter(belongs).collect();
    let mut head = vec![supply.name()];
    head.extend(of.iter().map(|outcome| outcome.variant));
    let mut table = Table::new(
        format!(
            "Ours: {} MiB in the compressed RAM device, in entries of {}, read from start to end, page by page",
            options.mib,
            entries.name()
        ),
        &head,
    );
    let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(of.iter().map(|outcome| cell(outcome)));
        table.rows.push(cells);
    };
    row("published, s", &|outcome| {
        let of_variant = VARIANTS.iter().find(|(name, _)| *name == outcome.variant);
        of_variant.map_or("-", |(_, published)| published).to_owned()
    });
    row("ours, s for 24 GiB (mean)", &|outcome| format!("{:.2}", options.scaled(outcome.seconds().mean)));
    row("lowest and highest", &|outcome| {
        let seconds = outcome.seconds();
        format!("{:.2}-{:.2}", options.scaled(seconds.min), options.scaled(seconds.max))
    });
    let last = |outcome: &Outcome| outcome.samples.last().copied();
    let figure = |get: fn(&Sample) -> u64| {
        move |outcome: &Outcome| last(outcome).map_or_else(String::new, |sample| get(&sample).to_string())
    };
    row("walks for each swap-in", &|outcome| {
        last(outcome).map_or_else(String::new, |sample| format!("{:.2}", sample.walks_each()))
    });
    row("swap-ins", &figure(|sample| sample.swapins));
    row(&format!("swpin, {}", entries.name()), &figure(|sample| sample.large));
    row("swpin_fallback", &figure(|sample| sample.fallbacks));
    row("entries split", &figure(|sample| sample.splits));
    row("swap_ra", &figure(|sample| sample.read_ahead));
    row("pgmajfault", &figure(|sample| sample.major_faults));
    row("begun again", &figure(|sample| sample.retries));
    table
}

/// Makes the report.
pub fn report(options: &Options, outcomes: &[Outcome]) -> Report {
    Report {
        experiment: "shmem-swapin",
        setup: vec![
            format!(
                "Series 5 (large objects swap in): an object of {} MiB in folios of 2 MB, then of 64 kB, is swapped out whole and read back, n = {}; times scaled to 24 GiB.",
                options.mib, options.rounds
            ),
            "Patches 3 and 4 behave as after 2, 6 as after 5, and 8 counts major faults otherwise: they share columns. today: the walks that the insertion makes needless are gone.".to_owned(),
            "One byte of each page is read, and compared with what was written.".to_owned(),
        ],
        tables: std::iter::once(published())
            .chain(CASES.map(|case| ours(options, outcomes, case)))
            .collect(),
        not_comparable: vec![
            "Times in seconds: another machine, and reading by calls and not by page faults. The ratio of the columns is what is to be compared.".to_owned(),
            "The published runs do not say how many large folios were not to be had, nor how large the entries were; that is why there are several tables.".to_owned(),
            "There is no bypass of the swap cache in any column: the cache is the only synchronisation (section 6 of the specification), so the columns differ in policy alone.".to_owned(),
        ],
        results: serde_json::json!({ "options": options, "outcomes": outcomes }),
        chart: Chart {
            title: "Sequential swap-in of a large object".to_owned(),
            axis: "seconds for 24 GiB".to_owned(),
            bars: outcomes.iter().map(|outcome| bar(options, outcome)).collect(),
        },
    }
}

fn bar(options: &Options, outcome: &Outcome) -> Bar {
    let seconds = outcome.seconds();
    Bar {
        group: format!("{}, {}", outcome.entries.name(), outcome.supply.name()),
        label: outcome.variant.to_owned(),
        value: options.scaled(seconds.mean),
        spread: (options.scaled(seconds.min), options.scaled(seconds.max)),
    }
}
