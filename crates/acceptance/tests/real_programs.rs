//! Real programs at a half and a quarter of their need: the same output to the byte, within the
//! limit.

use folioswap_acceptance::job::{self, Job};
use folioswap_acceptance::{MIB, need, programs, skip};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Files on disk that all runs of one test share, removed on drop.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("directory");
        ScratchDirectory(path)
    }
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("file");
        path.display().to_string()
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The system's Python, whatever a developer has put before it in `$PATH`.
fn python() -> Option<PathBuf> {
    Path::new("/usr/bin/python3")
        .exists()
        .then(|| "/usr/bin/python3".into())
        .or_else(|| programs::which("python3"))
}

/// Asserts also that the program used at least `at_least` MiB: a test that needs little shows
/// little.
#[track_caller]
fn judge(name: &str, job: &Job, at_least: u64) {
    judge_at(name, job, at_least, &[2, 4]);
}

#[track_caller]
fn judge_at(name: &str, job: &Job, at_least: u64, parts: &[u64]) {
    let need = job::same_at_parts_of_need(name, job, parts);
    assert!(need >= at_least * MIB, "{name} needs only {} MiB", need / MIB);
}

#[test]
fn cpython_fills_hashes_and_samples_a_bytearray() {
    let Some(python) = python() else { skip!("python3 is not installed") };
    let scratch = ScratchDirectory::new("python");
    let script = scratch.write(
        "fill.py",
        &r#"
import hashlib, random
pages = 200 << 8
data = bytearray(pages << 12)
for page in range(pages):
    noise = hashlib.shake_128(page.to_bytes(8, "little")).digest(2000)
    data[page << 12 : (page + 1) << 12] = noise + noise[:8] * 262
print(hashlib.sha256(data).hexdigest())
pick = random.Random(1)
total = 0
for _ in range(PICKS):
    at = pick.randrange(len(data))
    total += data[at] * (at % 251)
    if at % 7 == 0:
        data[at] ^= 0x55
print(total)
print(hashlib.sha256(data).hexdigest())
lists = [[n, str(n), {n: n * 2}] for n in range(200000)]
print(sum(len(entry[1]) + entry[2][entry[0]] for entry in lists))
"#
        .replace("PICKS", &(job::amount(40, 100) * 1000).to_string()),
    );
    judge("python bytearray", &Job::new([python, script.into()]), 200);
}

#[test]
fn numpy_sorts_and_multiplies() {
    let Some(python) = python() else { skip!("python3 is not installed") };
    let probe = Command::new(&python).args(["-c", "import numpy"]).output().expect("python3 can be run");
    if !probe.status.success() {
        skip!("python3-numpy is not installed");
    }
    let scratch = ScratchDirectory::new("numpy");
    let script = scratch.write(
        "sort.py",
        r#"
import hashlib
import numpy
pick = numpy.random.default_rng(7)
# Measured values: doubles with 20 significant bits.
values = pick.integers(0, 1 << 20, 16_000_000).astype(numpy.float64) / 1024
whole = pick.integers(0, 1_000_000, 1_000_000)
values.sort()
print(hashlib.sha256(values.tobytes()[: 1 << 20]).hexdigest(), bool((values[1:] >= values[:-1]).all()))
order = numpy.argsort(whole, kind="stable")
print(hashlib.sha256(whole[order].data).hexdigest())
# Small whole numbers: the product is exact, whatever the order of the sums.
a = pick.integers(0, 1000, (1100, 1100)).astype(numpy.float64)
b = pick.integers(0, 1000, (1100, 1100)).astype(numpy.float64)
product = a @ b
print(int(product.sum()), hashlib.sha256(product.data).hexdigest())
print(hashlib.sha256(values.data).hexdigest())
"#,
    );
    judge("numpy sort and product", &Job::new([python, script.into()]), 200);
}

#[test]
fn gnu_sort_with_two_threads() {
    need!("sort", "sha256sum", "bash");
    let scratch = ScratchDirectory::new("sort");
    let path = scratch.0.join("lines");
    let mut out = BufWriter::new(fs::File::create(&path).expect("file"));
    let mut random = folioswap_acceptance::data::Random::new(4);
    // Words and numbers, 57 bytes a line, about 90 or 150 MB.
    for number in 0..job::amount(1_600_000, 2_650_000) {
        let x = random.next();
        writeln!(out, "{:016x} line {:07} of the file, word {:04x} {}", x, number, x >> 48, x % 100_000)
            .expect("write");
    }
    drop(out);
    // A sort that is killed must not pass for one that printed nothing.
    let line = format!("set -o pipefail; LC_ALL=C sort --parallel=2 -S 600M {} | sha256sum", path.display());
    // The last merges compare lines at random places: at a quarter of the need nearly each
    // comparison is a fault, which takes minutes.
    let parts: &[u64] = if job::amount(0, 1) == 1 { &[2, 4] } else { &[2] };
    let job = Job::new(["bash", "-c", &line]).timeout(Duration::from_secs(1200));
    judge_at("GNU sort", &job, job::amount(170, 290), parts);
}

#[test]
fn sqlite_in_memory() {
    need!("sqlite3");
    let scratch = ScratchDirectory::new("sqlite");
    let script = scratch.write(
        "queries.sql",
        &r#"
CREATE TABLE events (id INTEGER PRIMARY KEY, person INTEGER, kind TEXT, note TEXT);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < ROWS)
INSERT INTO events SELECT x, (x * 7919) % 50021, 'kind' || (x % 17),
    printf('%016x note of event %d, %s', (x * 2654435761) % 4294967296 * 2654435761, x, hex(x * 31)) FROM n;
CREATE INDEX by_person ON events (person, kind);
CREATE INDEX by_note ON events (note);
SELECT count(*), sum(length(note)) FROM events;
SELECT kind, count(*), sum(person), min(note), max(note) FROM events GROUP BY kind ORDER BY kind;
UPDATE events SET note = upper(note) WHERE id % 10 = 3;
DELETE FROM events WHERE id % 97 = 5;
SELECT person, count(*) AS c, sum(id) FROM events GROUP BY person ORDER BY c DESC, person LIMIT 20;
SELECT a.id, b.id, a.note FROM events a JOIN events b ON a.person = b.person AND b.id = a.id + 50021
    WHERE a.id % 5003 = 1 ORDER BY a.note LIMIT 100;
SELECT count(*), sum(length(note)) FROM events WHERE note > '8' AND kind <> 'kind3';
PRAGMA integrity_check;
"#
        .replace("ROWS", &(job::amount(130, 300) * 1000).to_string()),
    );
    let at_least = job::amount(31, 70);
    judge("SQLite in memory", &Job::new(["sqlite3", ":memory:", &format!(".read {script}")]), at_least);
}

#[test]
fn redis_with_every_value_checked() {
    need!("redis-server", "redis-benchmark");
    let scratch = ScratchDirectory::new("redis");
    // The client and its load are in the tree as well, and so is the child that BGSAVE forks.
    let script = scratch.write(
        "redis.sh",
        r#"
set -e
client=$1
socket=$PWD/socket
redis-server --port 0 --unixsocket "$socket" --save "" --dir "$PWD" --logfile "$PWD/log" --daemonize no >/dev/null 2>&1 &
server=$!
"$client" "$socket" ping
"$client" "$socket" write 0 60000 2500
redis-benchmark -s "$socket" -q -n 30000 -r 20000 -d 700 -c 8 -t set,get,lpush,lpop,hset >/dev/null 2>&1 &
load=$!
"$client" "$socket" check 0 60000 2500
"$client" "$socket" write 30000 40000 3000
wait $load
"$client" "$socket" save
"$client" "$socket" write 0 5000 100
"$client" "$socket" check 0 5000 100
"$client" "$socket" check 5000 30000 2500
"$client" "$socket" check 30000 40000 3000
"$client" "$socket" check 40000 60000 2500
test -s dump.rdb
"$client" "$socket" shutdown
wait $server
rm -f dump.rdb
"#,
    );
    let job = Job::new(["sh", &script, env!("CARGO_BIN_EXE_acc-redis")]).timeout(Duration::from_secs(900));
    judge("redis", &job, 180);
}

/// stress-ng checks its own memory in all its ways, at four times the limit.
#[test]
fn stress_ng_verifies() {
    need!("stress-ng");
    let seconds = job::amount(20, 60);
    let time = format!("{seconds}s");
    let words = ["--vm", "2", "--vm-bytes", "256M", "--vm-method", "all", "--verify", "--timeout", &time];
    let job = Job::new(std::iter::once("stress-ng").chain(words)).timeout(Duration::from_secs(seconds + 240));
    let outcome = job.within(64 * MIB);
    job::report("stress-ng", &outcome);
    job::check_swapped(&outcome, 192 * MIB);
    let text = format!("{}{}", outcome.text(), outcome.stderr);
    assert!(text.contains("successful run completed"), "{}", outcome.describe());
    assert!(!text.contains("fail:") && !text.contains("error"), "{}", outcome.describe());
}

/// The path of sqlite3.c in the bundled source of the crate libsqlite3-sys.
fn sqlite_source() -> Result<PathBuf, String> {
    let manifest = programs::crate_directory().join("Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let packages = json["packages"].as_array().ok_or("no packages")?;
    let package =
        packages.iter().find(|package| package["name"] == "libsqlite3-sys").ok_or("no libsqlite3-sys")?;
    let manifest = Path::new(package["manifest_path"].as_str().ok_or("no path")?);
    let source = manifest.parent().ok_or("no parent")?.join("sqlite3/sqlite3.c");
    source.is_file().then_some(source).ok_or_else(|| "sqlite3.c is not in the crate".to_owned())
}

#[test]
fn gcc_compiles_sqlite() {
    need!("gcc", "sha256sum");
    let source = match sqlite_source() {
        Ok(source) => source,
        Err(error) => skip!("the source of SQLite cannot be had: {error}"),
    };
    // -O2 takes a third more memory, and six times as long.
    let level = job::amount(0, 2);
    let line = format!("gcc -O{level} -c {} -o out.o && sha256sum < out.o", source.display());
    judge("gcc sqlite3.c", &Job::new(["sh", "-c", &line]).timeout(Duration::from_secs(1200)), 120);
}
