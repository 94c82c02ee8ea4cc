//! `run --trace`: the requests of a real program to the allocator are recorded in the file,
//! whichever process is killed, and can be replayed.

use folioswap_acceptance::job::{self, Job, Outcome};
use folioswap_acceptance::programs::{self, c_program};
use folioswap_acceptance::{MIB, skip};
use folioswap_trace::{Event, HEADER_BYTES, Header, RECORD_BYTES, Record};
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The trace file of one test, removed on drop.
struct Trace(PathBuf);

impl Trace {
    fn new(name: &str) -> Self {
        Trace(PathBuf::from(format!("/var/tmp/folioswap-acc-{name}-{}.trace", std::process::id())))
    }

    fn of(&self, job: Job) -> Job {
        job.option("--trace").option(&self.0)
    }

    fn records(&self) -> Vec<Record> {
        let bytes = fs::read(&self.0).expect("the trace");
        Header::decode(&bytes).expect("a header");
        let (records, rest) = bytes[HEADER_BYTES..].as_chunks::<RECORD_BYTES>();
        assert!(rest.is_empty(), "{} bytes of a record", rest.len());
        records.iter().map(|record| Record::decode(record).expect("a record")).collect()
    }

    fn replay(&self) -> Value {
        let output = Command::new(programs::folioswap())
            .args(["lab", "replay", "--json", "--device", "ram"])
            .arg(&self.0)
            .output()
            .expect("lab replay");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// The events and the missing events of the trace, as `--stats-json` reports them. Missing events
/// must have been announced.
fn recorded(outcome: &Outcome) -> (u64, u64) {
    let stats = &outcome.stats.as_ref().expect("statistics")["trace"];
    let lost = stats["lost"].as_u64().expect("lost");
    let announced = outcome.stderr.contains("events are missing");
    assert_eq!(announced, lost > 0, "{}", outcome.describe());
    assert_eq!(stats["error"], Value::Null);
    (stats["events"].as_u64().expect("events"), lost)
}

/// Asserts that every member in the records ends once, has no records afterwards, and that its
/// clock does not go back. Returns the number of members.
fn check_members(records: &[Record]) -> usize {
    let (mut alive, mut ended) = (HashSet::from([0]), HashSet::new());
    let (mut member, mut forks) = (0, 0);
    let mut ticks = std::collections::HashMap::<u32, u64>::new();
    for record in records {
        let of = match record.event {
            Event::Member { member: number } => {
                member = number;
                alive.insert(number);
                number
            }
            Event::Fork { member: child } => {
                forks += 1;
                assert!(alive.insert(child), "member {child} is there already");
                member
            }
            Event::End { member: number } => {
                assert!(ended.insert(number), "member {number} ends twice");
                number
            }
            _ => member,
        };
        assert!(
            matches!(record.event, Event::End { .. }) || !ended.contains(&of),
            "{record:?} after its end"
        );
        let last = ticks.entry(of).or_default();
        assert!(record.tick >= *last, "{record:?}: time goes back");
        *last = record.tick;
    }
    assert!(alive.is_subset(&ended), "{alive:?} {ended:?}");
    forks
}

/// Asserts that the replay ends with nothing in use: every allocated slot was freed, or its member
/// ended.
fn check_replay(trace: &Trace, lost: u64) {
    let result = trace.replay();
    assert_eq!(result["devices"][0][1], 0, "{result}");
    if lost == 0 {
        assert_eq!(result["odd"]["unknown_slots"], 0, "{result}");
        assert_eq!(result["odd"]["taken_twice"], 0, "{result}");
    }
}

fn touch() -> Job {
    let words = ["--size", "96M", "--phases", "fill,reread,random,verify", "--touches", "4000"];
    Job::new(std::iter::once(env!("CARGO_BIN_EXE_acc-touch")).chain(words))
}

#[test]
fn a_program_that_swaps_is_recorded_and_replayed() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let trace = Trace::new("trace-swaps");
    let outcome = trace.of(touch()).within(48 * MIB);
    job::check_swapped(&outcome, 40 * MIB);
    let (events, lost) = recorded(&outcome);
    let records = trace.records();
    let told = records.iter().filter(|record| !matches!(record.event, Event::Member { .. })).count();
    assert_eq!(told as u64, events);
    check_members(&records);
    let pages: u64 = records
        .iter()
        .map(|record| match record.event {
            Event::Alloc { order, .. } => 1 << order,
            Event::Reuse { slots, .. } => u64::from(slots),
            _ => 0,
        })
        .sum();
    let out = outcome.figure("pswpout").expect("pswpout") as u64;
    assert!(pages + lost * 16 >= out, "{pages} pages in the trace, {lost} events lost, {out} pages went out");
    assert!(records.iter().any(|record| matches!(record.event, Event::Alloc { order: 4, .. })));
    assert!(
        records.iter().any(|record| matches!(record.event, Event::Retain { .. })),
        "no page came back clean"
    );
    check_replay(&trace, lost);
    // The trace can also be fitted, for the generator.
    let fit =
        Command::new(programs::folioswap()).args(["lab", "fit"]).arg(&trace.0).output().expect("lab fit");
    let fit: Value = serde_json::from_slice(&fit.stdout).expect("JSON");
    assert!(fit["parameters"]["order_weights"][4].as_f64() > Some(0.0), "{fit}");
}

/// Asserts the above for members that fork, that become other programs, and that are killed at any
/// moment.
fn check_tree(name: &str, devices: &[String]) {
    let program = c_program("tree", "", &[]);
    let words = ["4", "24", "4", "8"].map(str::to_owned);
    let mut job = Job::new(std::iter::once(program.display().to_string()).chain(words))
        .timeout(Duration::from_secs(120));
    for device in devices {
        job = job.option("--swap").option(device);
    }
    let trace = Trace::new(name);
    // Whether such a tree keeps its limit is tested elsewhere (`tree`).
    let outcome = trace.of(job).under(job::engine(48 * MIB));
    assert_eq!(outcome.text(), "only the root is left\nok\n", "{}", outcome.describe());
    outcome.check_clean();
    let (events, lost) = recorded(&outcome);
    assert!(events > 1000, "{events} events");
    let records = trace.records();
    assert!(check_members(&records) >= 2, "members fork after the root has swapped");
    check_replay(&trace, lost);
}

#[test]
fn a_tree_with_killed_members_is_recorded_to_each_ones_end() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    check_tree("trace-tree", &[]);
}

/// No message carries more descriptors than the welcome of a forked child that is recorded: one for
/// each device, its ring, and its userfaultfd.
#[test]
fn a_tree_on_as_many_devices_as_there_can_be_is_recorded() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let parent = PathBuf::from(format!("/var/tmp/folioswap-acc-trace-devices-{}", std::process::id()));
    let devices = (0..32).map(|number| {
        let directory = parent.join(number.to_string());
        fs::create_dir_all(&directory).expect("directory");
        format!("file:{},size=64M", directory.display())
    });
    let devices: Vec<_> = devices.collect();
    check_tree("trace-devices", &devices);
    drop(fs::remove_dir_all(parent));
}

#[test]
fn the_file_is_readable_when_everything_is_killed() {
    if !job::judging_folioswap() {
        skip!("only for folioswap");
    }
    let trace = Trace::new("trace-killed");
    let program = c_program("ending", "", &[]);
    let mut running = trace
        .of(Job::new([program.as_os_str(), "wait".as_ref(), "96".as_ref()]).timeout(Duration::from_secs(60)))
        .start(job::engine(40 * MIB));
    running.wait_for_output("ready");
    // The command itself is killed: all of the tree goes down without a word.
    running.signal(libc::SIGKILL);
    let outcome = running.finish();
    assert_eq!(outcome.signal, Some(libc::SIGKILL), "{}", outcome.describe());
    let records = trace.records();
    let allocated = records.iter().filter(|record| matches!(record.event, Event::Alloc { .. })).count();
    assert!(allocated > 0, "{} records", records.len());
    assert!(trace.replay()["allocated"].is_array());
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let refused = |path: &Path, why: &str| {
        let marker = Trace::new("trace-started");
        let output = Command::new(programs::folioswap())
            .args(["run", "--memory", "64M", "--trace"])
            .arg(path)
            .args(["--", "touch"])
            .arg(&marker.0)
            .output()
            .expect("folioswap");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{text}");
        assert!(text.contains("--trace") && text.contains(path.to_str().unwrap()), "{text}");
        assert!(text.contains(why), "{text}");
        assert!(!marker.0.exists(), "CMD was started");
    };
    refused(Path::new("/var/tmp"), "directory");
    refused(Path::new("/nonexistent/x.trace"), "No such file");
    if Path::new("/dev/full").exists() {
        refused(Path::new("/dev/full"), "No space");
    }
}
