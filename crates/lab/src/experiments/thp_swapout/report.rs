//! The report of series 3.

use super::{Case, LIMIT, Load, Measured, Options, Outcome, Outcomes, ScenarioOutcome, TASKS, Variant};
use crate::swapout::UnmapBy;
use folioswap_report::statistics::{Equivalence, Summary};
use folioswap_report::{Bar, Chart, Report, Table};

fn size(order: u32) -> &'static str {
    match order {
        0 => "4 kB",
        4 => "64 kB",
        9 => "2 MB",
        _ => "-",
    }
}

fn load(load: Load) -> &'static str {
    match load {
        Load::WithMemory => "with memory",
        Load::WithData => "with data",
        Load::SlotsOnly => "slots only",
    }
}

/// Published throughput relative to 4 kB before: before, after.
fn published(case: &Case) -> [&'static str; 2] {
    match (case.load, case.order) {
        (Load::WithMemory, 0) => ["0.0 %", "+1.3 %"],
        (Load::WithMemory, 4) => ["-13.6 %", "+46.3 %"],
        (Load::WithMemory, 9) => ["+91.4 %", "+89.6 %"],
        _ => ["-", "-"],
    }
}

/// The claim of the series, and whether the runs bear it out.
fn claim(order: u32, test: Option<Equivalence>) -> [String; 2] {
    let claimed = if order == 4 { "faster" } else { "noise" };
    let found = match (order, test) {
        (_, None) => "-",
        (4, Some(test)) if test.interval.0 > 1.0 => "faster",
        (4, Some(test)) if test.interval.1 < 1.0 => "SLOWER",
        (4, Some(_)) => "undecided",
        (_, Some(test)) => test.verdict.name(),
    };
    [claimed.to_owned(), found.to_owned()]
}

fn relative(summary: &Summary) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    format!("{:+.1} % ({:+.0}, {:+.0})", percent(summary.median), percent(summary.min), percent(summary.max))
}

fn throughput(options: &Options, outcomes: &Outcomes) -> Table {
    let title = format!(
        "Throughput relative to 4 kB before, median (lowest, highest); equivalence of after / before at 5 % (90 % interval) with a margin of {} %",
        options.margin * 100.0
    );
    let head = [
        "workload",
        "published before",
        "published after",
        "ours before",
        "ours after",
        "split first",
        "today",
        "MB/s before",
        "after / before",
        "90 % interval",
        "claimed",
        "found",
    ];
    let mut table = Table::new(title, &head);
    for Outcome { case, measured, equivalence, .. } in &outcomes.cases {
        let mut row = vec![format!("{}, {}", size(case.order), load(case.load))];
        row.extend(published(case).map(str::to_owned));
        row.extend(measured.iter().map(|measured| relative(&measured.to_baseline)));
        row.push(format!("{:.0}", measured[0].rate.median));
        row.extend(interval(*equivalence));
        row.extend(claim(case.order, *equivalence));
        table.rows.push(row);
    }
    table
}

/// The same in processor time, which other programs of the machine do not disturb.
fn processor_time(outcomes: &Outcomes) -> Table {
    let title = "Processor time for each page written, ns, median (lowest, highest); equivalence as above, of pages per processor second";
    let head = [
        "workload",
        "before",
        "after",
        "split first",
        "today",
        "after / before",
        "90 % interval",
        "claimed",
        "found",
    ];
    let mut table = Table::new(title, &head);
    for Outcome { case, measured, processor_equivalence, .. } in &outcomes.cases {
        let mut row = vec![format!("{}, {}", size(case.order), load(case.load))];
        row.extend(measured.iter().map(|Measured { processor_ns: time, .. }| {
            let digits = usize::from(case.load == Load::SlotsOnly);
            format!("{:.digits$} ({:.digits$}, {:.digits$})", time.median, time.min, time.max)
        }));
        row.extend(interval(*processor_equivalence));
        row.extend(claim(case.order, *processor_equivalence));
        table.rows.push(row);
    }
    table
}

/// Ratio and interval.
fn interval(test: Option<Equivalence>) -> [String; 2] {
    test.map_or(["-".to_owned(), "-".to_owned()], |test| {
        [format!("{:.3}", test.ratio), format!("{:.3} to {:.3}", test.interval.0, test.interval.1)]
    })
}

/// The work for the folios of a run: the same for every load, apart from the size of the tasks.
fn work(outcomes: &Outcomes) -> Table {
    let head = [
        "slots only",
        "swpout",
        "swpout_fallback",
        "pages alone",
        "split",
        "requests",
        "frees",
        "lookups",
        "CPU ns to free a page",
        "slots lost",
    ];
    let mut table = Table::new("What a run did (the last round's; time: median of all)", &head);
    let rows = outcomes.cases.iter().filter(|outcome| outcome.case.load == Load::SlotsOnly);
    for Outcome { case, measured, .. } in rows {
        for Measured { variant, counts, free_ns, .. } in measured {
            table.rows.push(vec![
                format!("{}, {}", size(case.order), name(*variant)),
                counts.swpout.to_string(),
                counts.swpout_fallback.to_string(),
                counts.pages_alone.to_string(),
                counts.splits.sum().to_string(),
                counts.requests.to_string(),
                counts.exit.calls.to_string(),
                counts.exit.lookups.to_string(),
                format!("{:.1}", free_ns.median),
                counts.lost.to_string(),
            ]);
        }
    }
    table
}

fn name(variant: Variant) -> &'static str {
    match variant {
        Variant::Before => "before",
        Variant::After => "after",
        Variant::SplitFirst => "split first",
        Variant::Today => "today",
    }
}

fn scenarios(outcomes: &[ScenarioOutcome]) -> Table {
    let head = [
        "large folios",
        "swpout before",
        "fallback",
        "split",
        "pages alone",
        "lookups",
        "swpout after",
        "fallback",
        "split",
        "pages alone",
        "lookups",
    ];
    let mut table = Table::new("What becomes of 32 MiB that are advised to leave (counts)", &head);
    for pair in outcomes.chunks(2) {
        let mut row = vec![format!("{}, {}", size(pair[0].order), pair[0].scenario.name())];
        for ScenarioOutcome { counts, .. } in pair {
            let figures = [
                counts.swpout,
                counts.swpout_fallback,
                counts.splits.sum(),
                counts.pages_alone,
                counts.exit.lookups,
            ];
            row.extend(figures.map(|figure| figure.to_string()));
        }
        table.rows.push(row);
    }
    table
}

/// The host's setting of huge pages: the word in brackets.
fn huge_pages() -> String {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    folioswap_peer::chosen(&text).unwrap_or("none").to_owned()
}

/// Makes the report.
pub fn report(options: &Options, outcomes: &Outcomes) -> Report {
    let taken_away = match outcomes.unmap_by {
        UnmapBy::OneCall => "one call for a batch of 32 pages or a folio (process_madvise)",
        UnmapBy::CallPerRange => {
            "a call for each folio (madvise), since this kernel takes no several at once"
        }
    };
    let written = f64::from(options.threads) * f64::from(TASKS) * f64::from(options.task_mib);
    let huge_pages = huge_pages();
    let huge_part = outcomes.huge_part.map_or_else(String::new, |part| {
        let [median, min] = [part.median, part.min].map(|part| 100.0 * part);
        format!("; of the memory of 2 MB folios {median:.0} % was in huge pages (median; lowest {min:.0} %)")
    });
    Report {
        experiment: "thp-swapout",
        setup: vec![
            format!(
                "Series 3 (swap-out without splitting): {} real threads, each with {TASKS} tasks that write {} MiB each, once, within {}/{} of it; published: 70 tasks of 1 GiB within 40 GiB on 8 CPUs (scale 1/{:.0}); n = {} rounds.",
                options.threads,
                options.task_mib,
                LIMIT.0,
                LIMIT.1,
                70.0 * 1024.0 / written,
                options.rounds
            ),
            "before = only folios of 2 MB leave whole, slots freed as by free-per-slot; after = all leave whole, slots freed in batches, with the same order of lists (nonfull-first; `folioswap lab policies`); today = the same with current, which takes free clusters first while they are plentiful; split first = as before, but 2 MB is split too: for 4 kB and 64 kB the same as before, so that those two columns differ by what the measurement itself makes.".to_owned(),
            format!(
                "With memory: a folio comes by one call and goes by {taken_away}; its bytes are written and copied to a device in RAM. With data: the memory stays. Slots only: tasks {} times as large. Huge pages of the host: {huge_pages}{huge_part}.",
                super::SLOTS_ONLY_LARGER
            ),
        ],
        tables: vec![
            throughput(options, outcomes),
            processor_time(outcomes),
            work(outcomes),
            scenarios(&outcomes.scenarios),
        ],
        not_comparable: vec![
            "Absolute rates, and the distance between sizes: the published ones have page faults of the whole folio, reclaim, reverse map and memory groups of the kernel in them. Ours have what the kernel takes to give and to take memory by calls, the writing, the copy, and our slots and lists.".to_owned(),
            "What a split costs the kernel is missing for 64 kB, above all in the published -13.6 %: here the kernel has no folios of 64 kB, but 16 pages that come and go by one call. A split here is 16 allocations, places in the swap cache, requests and frees instead of one of each. Only for 2 MB, split first, the kernel splits too.".to_owned(),
            "Tasks are threads of one process: memory that is taken from one interrupts the processors of the others.".to_owned(),
            "The device is plain memory, without a queue; a request is a copy. 2 MB with memory means huge pages only as far as the host gives them.".to_owned(),
        ],
        results: serde_json::json!({ "options": options, "outcomes": outcomes, "huge_pages": huge_pages }),
        chart: Chart {
            title: "Throughput of swapping out, relative to 4 kB before (the line: all rounds)".to_owned(),
            axis: "throughput / 4 kB before".to_owned(),
            bars: outcomes.cases.iter().flat_map(bars).collect(),
        },
    }
}

fn bars(outcome: &Outcome) -> impl Iterator<Item = Bar> {
    let group = format!("{}, {}", size(outcome.case.order), load(outcome.case.load));
    outcome.measured.iter().map(move |measured| Bar {
        group: group.clone(),
        label: name(measured.variant).to_owned(),
        value: measured.to_baseline.median,
        spread: (measured.to_baseline.min, measured.to_baseline.max),
    })
}
