//! Prepared swap files and block devices that fail: the disk is full, is pulled out, ends too
//! early, or returns other bytes. Wrong bytes never reach the program; at most pages are lost, by
//! name.

use folioswap_acceptance::disk::{FileSystem, LoopDevice, Scratch};
use folioswap_acceptance::job::{self, Engine, Job, Outcome, Running};
use folioswap_acceptance::programs::run_folioswap;
use folioswap_acceptance::{MIB, need, skip};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const LOST: &str = env!("CARGO_BIN_EXE_acc-lost");
const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");
const LIMIT: u64 = 32 * MIB;
const PAGE: u64 = 4096;

macro_rules! only_folioswap {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
    };
}

fn mkswap(path: &Path) {
    let made = run_folioswap(&["mkswap", &path.display().to_string()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A file system that can be pulled out, with a prepared swap file on it.
fn disk_with_swap_file() -> Result<(FileSystem, PathBuf), String> {
    let disk = FileSystem::new(160 * MIB).map_err(|why| why.to_string())?;
    let file = disk.point.0.join("swap");
    File::create_new(&file).and_then(|file| file.set_len(128 * MIB)).expect("a file");
    mkswap(&file);
    Ok((disk, file))
}

fn device(path: &Path, rest: &str) -> String {
    format!("file:{}{rest}", path.display())
}

fn job(words: &[&str], devices: &[String]) -> Job {
    let add = |job: Job, device: &String| job.option("--swap").option(device);
    devices.iter().fold(Job::new(words), add)
}

fn start(job: &Job) -> Running {
    job.start(Engine::Folioswap { memory: Some(LIMIT), scope: "resident" })
}

fn of_device(outcome: &Outcome, number: usize) -> serde_json::Value {
    outcome.stats.as_ref().expect("statistics")["devices"][number].clone()
}

/// The pages that `acc-lost` counted.
struct Pages {
    right: u64,
    lost: u64,
}

/// Asserts that no page came back wrong, that every page is accounted for, and that each lost one
/// was counted.
fn accounted(outcome: &Outcome, mib: u64) -> Pages {
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    let text = outcome.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |name: &str| {
        let at =
            words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("{}", outcome.describe()));
        words[at + 1].parse::<u64>().expect("a number")
    };
    let pages = Pages { right: number("right"), lost: number("lost") };
    assert_eq!(number("wrong"), 0, "{}", outcome.describe());
    assert_eq!(pages.right + pages.lost, mib * MIB / PAGE);
    assert_eq!(outcome.figure("pages_poisoned"), Some(pages.lost as f64), "{}", outcome.describe());
    outcome.check_validated();
    outcome.check_clean();
    pages
}

/// Runs `acc-lost`: it fills its memory, `spoil` damages the device, and the program then reads
/// every page.
fn spoilt(mib: u64, devices: &[String], spoil: impl FnOnce(&Running)) -> (Outcome, Pages) {
    let go = Scratch::new("go");
    let mut running = start(&job(&[LOST, &mib.to_string(), &go.0.display().to_string()], devices));
    running.wait_for_output("ready");
    spoil(&running);
    File::create(&go.0).expect("a file");
    let outcome = running.finish();
    job::report(&devices.join(" "), &outcome);
    let pages = accounted(&outcome, mib);
    (outcome, pages)
}

#[test]
fn a_prepared_file_is_used_by_one_run_at_a_time_and_keeps_its_header() {
    only_folioswap!();
    let file = Scratch::file("swap", 128 * MIB);
    mkswap(&file.0);
    let header = fs::read(&file.0).expect("readable")[..4096].to_vec();
    let devices = [device(&file.0, ",discard")];
    let (outcome, pages) = spoilt(64, &devices, |_| {
        let second = run_folioswap(&["run", "-m", "64M", "--swap", &devices[0], "--", "true"]);
        let text = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(125), "{text}");
        assert!(text.contains("another run uses it"), "{text}");
        let forced = run_folioswap(&["mkswap", "--force", &file.0.display().to_string()]);
        assert_eq!(forced.status.code(), Some(125), "not even by force");
    });
    assert_eq!(pages.lost, 0);
    outcome.check();
    assert!(of_device(&outcome, 0)["used_peak_bytes"].as_u64() >= Some(28 * MIB), "{}", outcome.describe());
    assert_eq!(fs::read(&file.0).expect("readable")[..4096], header);
    assert!(fs::metadata(&file.0).expect("there").blocks() * 512 <= 16 * MIB, "discard punches holes");
    start(&job(&["true"], &devices)).finish().check();
}

#[test]
fn a_block_device_takes_what_is_cold() {
    only_folioswap!();
    let backing = Scratch::file("block", 256 * MIB);
    let block = match LoopDevice::new(&backing.0) {
        Ok(block) => block,
        Err(why) => skip!("no loop device: {why}"),
    };
    let devices = [device(&block.path, ",discard")];
    let refused = run_folioswap(&["run", "-m", "64M", "--swap", &devices[0], "--", "true"]);
    assert_eq!(refused.status.code(), Some(125), "it was not prepared");
    mkswap(&block.path);
    let words = [TOUCH, "--size", "96M", "--kind", "random", "--phases", "fill,verify"];
    let go = Scratch::new("go");
    let script = "echo ready; while [ ! -e \"$0\" ]; do sleep 0.05; done; exec \"$@\"";
    let path = go.0.display().to_string();
    let mut running = start(&job(&[&["sh", "-c", script, &path], &words[..]].concat(), &devices));
    running.wait_for_output("ready");
    let shown = run_folioswap(&["swapon", "--show", &running.pid.to_string()]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let row: Vec<&str> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    let why = String::from_utf8_lossy(&shown.stderr);
    assert_eq!(row.get(..2), Some(&[&*block.path.display().to_string(), "block"][..]), "{text}{why}");
    File::create(&go.0).expect("a file");
    let outcome = running.finish();
    job::report("block device", &outcome);
    outcome.check();
    job::check_swapped(&outcome, 64 * MIB);
    assert!(outcome.figure("file_pswpout") >= Some(64.0 * 256.0 * 0.8), "{}", outcome.describe());
}

/// The disk under a block device becomes full in the middle: pages that it does not take go to the
/// next tier, and none is lost.
#[test]
fn a_full_disk_sends_pages_elsewhere() {
    only_folioswap!();
    let small = match FileSystem::new(40 * MIB) {
        Ok(small) => small,
        Err(why) => skip!("no file system: {why}"),
    };
    let backing = small.point.0.join("backing");
    File::create_new(&backing).and_then(|file| file.set_len(256 * MIB)).expect("a sparse file");
    let block = LoopDevice::new(&backing).expect("a loop device");
    mkswap(&block.path);
    let behind = Scratch::new("behind");
    fs::create_dir(&behind.0).expect("a directory");
    let devices = [device(&block.path, ",prio=5"), device(&behind.0, ",prio=0")];
    let words = ["--size", "96M", "--kind", "random", "--phases", "fill,verify"];
    let outcome = start(&job(&[&[TOUCH][..], &words[..]].concat(), &devices)).finish();
    job::report("full disk", &outcome);
    outcome.check();
    assert!(outcome.figure("device_write_errors") > Some(0.0), "{}", outcome.describe());
    assert!(outcome.stderr.contains(&block.path.display().to_string()), "{}", outcome.describe());
    assert!(of_device(&outcome, 0)["used_peak_bytes"].as_u64() >= Some(16 * MIB), "{}", outcome.describe());
    assert!(of_device(&outcome, 1)["used_peak_bytes"].as_u64() >= Some(16 * MIB), "{}", outcome.describe());
}

/// The disk is pulled out before any page is written to it: the next tier takes all, and none is
/// lost.
#[test]
fn a_disk_that_refuses_everything_is_left_alone() {
    only_folioswap!();
    let (disk, file) = match disk_with_swap_file() {
        Ok(found) => found,
        Err(why) => skip!("no file system: {why}"),
    };
    let (behind, go, shown) = (Scratch::new("behind"), Scratch::new("go"), Scratch::new("shown"));
    fs::create_dir(&behind.0).expect("a directory");
    let devices = [device(&file, ",prio=5"), device(&behind.0, ",prio=0")];
    let wait = |file: &Scratch| format!("while [ ! -e {} ]; do sleep 0.05; done", file.0.display());
    let script = format!(
        "echo ready; {}; {TOUCH} --size 96M --kind random --phases fill,verify; {}",
        wait(&go),
        wait(&shown)
    );
    let mut running = start(&job(&["sh", "-c", &script], &devices));
    running.wait_for_output("ready");
    disk.shut_down().expect("ext4 can be shut down");
    File::create(&go.0).expect("a file");
    running.wait_for_output("ok ");
    let output = run_folioswap(&["swapon", "--show", &running.pid.to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    File::create(&shown.0).expect("a file");
    let outcome = running.finish();
    job::report("pulled out before", &outcome);
    outcome.check();
    let first = of_device(&outcome, 0);
    // The file's blocks are reserved before a cluster of it is granted. The reservation fails
    // there, and is not tried again while other devices have room.
    assert_eq!(
        (first["used_bytes"].as_u64(), first["errors"].as_u64() >= Some(1)),
        (Some(0), true),
        "{first}"
    );
    assert!(outcome.stderr.contains("cannot give room for more pages"), "{}", outcome.describe());
    assert!(of_device(&outcome, 1)["used_peak_bytes"].as_u64() >= Some(48 * MIB), "{}", outcome.describe());
    assert!(text.contains("ERRORS"), "{text}");
}

/// The disk is pulled out with pages on it: those are lost by name, all others are right, and later
/// writes go elsewhere.
#[test]
fn what_lay_on_a_disk_that_was_pulled_out_is_lost_and_nothing_else() {
    only_folioswap!();
    let (disk, file) = match disk_with_swap_file() {
        Ok(found) => found,
        Err(why) => skip!("no file system: {why}"),
    };
    let behind = Scratch::new("behind");
    fs::create_dir(&behind.0).expect("a directory");
    let devices = [device(&file, ",prio=5"), device(&behind.0, ",prio=0")];
    let (outcome, pages) = spoilt(48, &devices, |_| disk.shut_down().expect("ext4 can be shut down"));
    assert!(pages.lost >= 8 * MIB / PAGE, "{} pages lost: {}", pages.lost, outcome.describe());
    assert!(pages.right >= 24 * MIB / PAGE, "what is in memory is not harmed: {}", outcome.describe());
    for word in [
        "its page at 0x",
        "is lost",
        "Input/output error",
        "gets SIGBUS",
        "no longer named",
        "failed 16 times",
    ] {
        assert!(outcome.stderr.contains(word), "{word} is missing: {}", outcome.describe());
    }
    let first = of_device(&outcome, 0);
    assert_eq!(
        (first["failed"].as_bool(), first["errors"].as_u64() >= Some(16)),
        (Some(true), true),
        "{first}"
    );
    assert_eq!(of_device(&outcome, 1)["failed"], false);
}

/// Another process overwrites the swap file or truncates it. The damage is found by the checksum or
/// by the file's end, and is never read as if it were right.
#[test]
fn a_swap_file_that_others_wrote_to_costs_the_pages_that_they_hit() {
    only_folioswap!();
    let file = Scratch::file("swap", 128 * MIB);
    mkswap(&file.0);
    let devices = [device(&file.0, "")];
    let (outcome, pages) = spoilt(64, &devices, |_| {
        let opened = File::options().write(true).open(&file.0).expect("writable");
        // Zeroes cover half a cluster, and one byte of another is changed.
        opened.write_all_at(&vec![0; 1 << 20], 4 << 20).expect("written");
        opened.write_all_at(b"x", (10 << 20) + 5000).expect("written");
        opened.sync_all().expect("written");
    });
    let hit = MIB / PAGE + 1;
    assert!((hit / 2..=hit).contains(&pages.lost), "{} of {hit}: {}", pages.lost, outcome.describe());
    assert!(outcome.stderr.contains("gives other bytes than were written"), "{}", outcome.describe());
    let file = Scratch::file("swap", 128 * MIB);
    mkswap(&file.0);
    let (outcome, pages) = spoilt(48, &[device(&file.0, "")], |_| {
        File::options().write(true).open(&file.0).and_then(|file| file.set_len(12 * MIB)).expect("cut off");
    });
    assert!(pages.lost >= MIB / PAGE, "{}", outcome.describe());
    // Later writes make the file longer again, with holes: the checksum then finds the damage.
    let told = ["ends before it", "gives other bytes"].iter().any(|word| outcome.stderr.contains(word));
    assert!(told, "{}", outcome.describe());
}

/// Nothing of the program's data is readable on an encrypted file, and the search finds it on an
/// unencrypted one. A page that was moved on the encrypted file does not open.
#[test]
fn an_encrypted_file_shows_nothing_and_loses_what_was_moved() {
    only_folioswap!();
    need!("python3");
    let program = "import os\nb=[bytearray(b'planted-pattern %7d '%i+os.urandom(3900)) for i in range(16000)]\nfor i,x in \
                   enumerate(b): assert x.startswith(b'planted-pattern %7d '%i)\n";
    for (more, readable) in [("", true), (",encrypt=yes", false)] {
        let file = Scratch::file("swap", 128 * MIB);
        mkswap(&file.0);
        let outcome = start(&job(&["python3", "-c", program], &[device(&file.0, more)])).finish();
        outcome.check();
        assert_eq!(of_device(&outcome, 0)["type"], "file");
        assert!(
            of_device(&outcome, 0)["used_peak_bytes"].as_u64() >= Some(16 * MIB),
            "{}",
            outcome.describe()
        );
        let bytes = fs::read(&file.0).expect("readable");
        assert_eq!(bytes.windows(15).any(|window| window == b"planted-pattern"), readable, "{more}");
    }
    let file = Scratch::file("swap", 128 * MIB);
    mkswap(&file.0);
    let (outcome, pages) = spoilt(64, &[device(&file.0, ",encrypt=yes")], |_| {
        let opened = File::options().read(true).write(true).open(&file.0).expect("writable");
        let mut bytes = vec![0; 1 << 20];
        opened.read_exact_at(&mut bytes, 4 << 20).expect("read");
        opened.write_all_at(&bytes, 8 << 20).expect("written");
        opened.sync_all().expect("written");
    });
    let hit = MIB / PAGE;
    assert!((hit / 2..=hit).contains(&pages.lost), "{} of {hit}: {}", pages.lost, outcome.describe());
}

/// On a device that takes single pages only, larger folios are split, and counted as such.
#[test]
fn a_device_of_order_0_splits_folios() {
    only_folioswap!();
    let run = |device: &str| {
        let words = [TOUCH, "--size", "96M", "--kind", "random", "--phases", "fill,verify"];
        let outcome = start(&job(&words, &[device.to_owned()])).finish();
        outcome.check();
        outcome.size_figure("64kB", "swpout_fallback").expect("statistics")
    };
    assert_eq!(run("ram,size=256M"), 0, "all orders are taken");
    let fallbacks = run("ram,size=256M,orders=0");
    assert!(fallbacks >= 64 * MIB / (64 << 10) / 2, "{fallbacks} folios were split");
}

/// A hot set that fits the fast tier stays there while a cold stream of ten times its size passes
/// through to the file: no priority inversion.
#[test]
fn a_hot_set_stays_in_ram_while_a_cold_stream_passes() {
    only_folioswap!();
    let behind = Scratch::new("behind");
    fs::create_dir(&behind.0).expect("a directory");
    let devices = ["zram,prio=1".to_owned(), device(&behind.0, ",prio=0")];
    let job = job(&[LOST, "hot", "16", "160"], &devices);
    let (mut all, mut from_file) = (0.0, 0.0);
    // The scheduler decides the time of a demotion, so three runs are taken together.
    for _ in 0..3 {
        let outcome = job.under(Engine::Folioswap { memory: Some(64 * MIB), scope: "total" });
        job::report("hot set", &outcome);
        outcome.check();
        let figure = |name: &str| outcome.figure(name).expect("a figure");
        // The stream is never read again, so every page that comes back is hot.
        all += figure("pswpin") + figure("swap_cache_hits");
        from_file += figure("file_pswpin");
        assert!(
            figure("file_pswpout") >= 40.0 * 256.0,
            "the stream went to the file: {}",
            outcome.describe()
        );
    }
    println!("{all} pages of the hot set came back, {from_file} of them from the file");
    assert!(from_file <= 0.05 * all, "{from_file} of {all} came from the file");
}

/// Each mistake is refused with status 125 and its message, and no byte of the target changes.
#[test]
fn targets_that_are_none() {
    only_folioswap!();
    let refused = |words: &[&str], expected: &str| {
        let mut line = vec!["run", "--memory", "64M"];
        line.extend(words);
        line.extend(["--", "true"]);
        let output = run_folioswap(&line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{words:?}: {text}");
        assert!(text.contains(expected) && !text.contains("panicked"), "{words:?}: {text}");
    };
    let empty = Scratch::file("empty", 0);
    refused(&["--swap", &device(&empty.0, "")], "size is 0");
    let foreign = Scratch::file("foreign", 8 * MIB);
    let opened = File::options().write(true).open(&foreign.0).expect("writable");
    opened.write_all_at(b"SWAPSPACE2", 4086).expect("written");
    refused(&["--swap", &device(&foreign.0, ",discard")], "swap space of the kernel");
    let made = run_folioswap(&["mkswap", &foreign.0.display().to_string()]);
    assert_eq!(made.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&made.stderr).contains("--force"));
    let mut expected = vec![0; 8 << 20];
    expected[4086..4096].copy_from_slice(b"SWAPSPACE2");
    assert!(fs::read(&foreign.0).expect("readable") == expected, "a byte was changed");
    let good = Scratch::file("good", 8 * MIB);
    mkswap(&good.0);
    let before = fs::read(&good.0).expect("readable");
    let wrong = ",uuid=01234567-89ab-cdef-0123-456789abcdef,discard=once";
    refused(&["--swap", &device(&good.0, wrong)], "another device is there");
    refused(&["--swap", &device(&good.0, ",discard"), "--swap", &device(&good.0, ",prio=3")], "are one file");
    refused(&["--swap", &device(Path::new("/var/tmp"), wrong)], "a directory has no UUID");
    let cut = File::options().write(true).open(&good.0).expect("writable");
    cut.set_len(6 * MIB).expect("cut off");
    refused(&["--swap", &device(&good.0, ",discard")], "had 8388608 when it was prepared");
    assert!(fs::read(&good.0).expect("readable") == before[..6 << 20], "a byte was changed");
    match FileSystem::new(16 * MIB) {
        Ok(disk) => {
            let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
            let point = disk.point.0.display().to_string();
            let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&*point)).expect("mounted");
            let block = line.split(' ').next().unwrap_or_default().to_owned();
            refused(&["--swap", &format!("file:{block}")], "mounted on");
            let forced = run_folioswap(&["mkswap", "--force", &block]);
            assert_eq!(forced.status.code(), Some(125), "not even by force");
        }
        Err(why) => folioswap_acceptance::skipping::note_part(&format!("no mounted target: {why}")),
    }
}
