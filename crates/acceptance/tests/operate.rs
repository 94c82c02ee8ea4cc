//! Running groups and mounts are looked at and changed by `ps`, `stats`, `set`, `freeze` and `thaw`
//! while their programs verify their own data.

use folioswap_acceptance::job::{self, Engine, Job, Running};
use folioswap_acceptance::mount::{self, Mount};
use folioswap_acceptance::programs::{ForEverybody, refused, run_folioswap};
use folioswap_acceptance::waiting::wait_until;
use folioswap_acceptance::{MIB, skip};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const TOUCH: &str = env!("CARGO_BIN_EXE_acc-touch");

macro_rules! only_folioswap {
    () => {
        if !job::judging_folioswap() {
            skip!("only for folioswap");
        }
    };
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a program within this limit, in a group of this name.
fn start(name: &str, memory: u64, words: &[&str]) -> Running {
    let job = Job::new(words).option("--name").option(name).timeout(Duration::from_secs(300));
    let running = job.start(Engine::Folioswap { memory: Some(memory), scope: "total" });
    wait_until("the group is there", || run_folioswap(&["stats", name]).status.success());
    running
}

fn stats(target: &str) -> Value {
    let text = done(&run_folioswap(&["stats", target, "--json"]));
    serde_json::from_str(&text).expect("JSON")
}

fn bytes(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value:#}"))
}

/// Several processes fill, touch and verify memory while the limit goes up and down by half.
#[test]
fn a_limit_that_changes_a_hundred_times_loses_nothing_and_is_kept() {
    only_folioswap!();
    let phases = ["random"; 40].join(",");
    let phases = format!("fill,{phases},verify");
    let words = [
        TOUCH,
        "--timing",
        "--size",
        "40M",
        "--kind",
        "mixed",
        "--phases",
        &phases,
        "--processes",
        "2",
        "--touches",
        "30000",
    ];
    let mut running = start("acc-limits", 96 * MIB, &words);
    wait_until("both have filled their memory", || {
        assert!(!running.poll(), "it has ended: {}", running.errors());
        running.errors().matches("\"phase\":\"fill\"").count() == 2
    });
    let (mut longest, mut changes) = (Duration::ZERO, 0);
    for turn in 0..100 {
        assert!(!running.poll(), "it has ended after {turn} changes: {}", running.errors());
        let limit = if turn % 2 == 0 { 48 * MIB } else { 96 * MIB };
        let begun = Instant::now();
        done(&run_folioswap(&["set", "acc-limits", "--memory", &limit.to_string()]));
        let seen = stats("acc-limits");
        longest = longest.max(begun.elapsed());
        changes += 1;
        assert_eq!(bytes(&seen, "limit_bytes"), limit);
        // The promised bound of a limit: 5 % and 16 MiB.
        let most = limit + limit / 20 + 16 * MIB;
        assert!(bytes(&seen, "charge_bytes") <= most, "{seen:#}");
    }
    eprintln!("{changes} changes, the longest took {} ms", longest.as_millis());
    done(&run_folioswap(&["set", "acc-limits", "--memory", "96M"]));
    let outcome = running.finish();
    job::report("changing limits", &outcome);
    outcome.check_validated();
    outcome.check_clean();
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
    assert_eq!(outcome.figure("pages_poisoned"), Some(0.0));
    assert!(outcome.figure("pswpout") > Some(10_000.0), "{}", outcome.describe());
    assert!(longest < Duration::from_secs(5), "a limit is kept soon, not after {longest:?}");
}

/// The processes of a tree, folioswap's own excepted: front, supervisor and pagers.
fn tree(running: &Running) -> Vec<(u32, char)> {
    let stat = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut words = text[text.rfind(')')? + 1..].split_whitespace();
        words.next()?.chars().next()
    };
    let supervisor = bytes(&stats(&running.pid.to_string()), "pid") as u32;
    let all = running.processes().into_iter().map(|pid| pid as u32);
    let is_pager = |pid: u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("pager-"))
    };
    let programs = all.filter(|&pid| pid != supervisor && pid != running.pid as u32 && !is_pager(pid));
    programs.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

#[test]
fn a_frozen_group_stands_still_and_goes_on_where_it_was() {
    only_folioswap!();
    let phases = ["random"; 40].join(",");
    let phases = format!("fill,{phases},verify");
    let words = [
        TOUCH,
        "--timing",
        "--size",
        "32M",
        "--kind",
        "mixed",
        "--phases",
        &phases,
        "--processes",
        "3",
        "--touches",
        "20000",
    ];
    let mut running = start("acc-frozen", 64 * MIB, &words);
    wait_until("all have filled their memory", || {
        assert!(!running.poll(), "it has ended: {}", running.errors());
        running.errors().matches("\"phase\":\"fill\"").count() == 3
    });
    for _ in 0..5 {
        assert!(!running.poll(), "it has ended: {}", running.errors());
        done(&run_folioswap(&["freeze", "acc-frozen"]));
        // A second one changes nothing.
        done(&run_folioswap(&["freeze", "acc-frozen"]));
        wait_until("every process is stopped", || {
            let tree = tree(&running);
            tree.len() >= 3 && tree.iter().all(|&(_, state)| state == 'T')
        });
        let (before, said) = (stats("acc-frozen"), running.errors());
        assert_eq!(before["state"], "frozen");
        let output = run_folioswap(&["set", "acc-frozen", "--memory", "16M"]);
        refused(&output, 125, &["frozen", "folioswap thaw"]);
        // A higher limit needs nothing to leave.
        done(&run_folioswap(&["set", "acc-frozen", "--memory", "64M"]));
        let after = stats("acc-frozen");
        assert_eq!(before["counters"]["pgmajfault"], after["counters"]["pgmajfault"]);
        assert_eq!(said, running.errors(), "nothing goes on");
        done(&run_folioswap(&["thaw", "acc-frozen"]));
        assert_eq!(stats("acc-frozen")["state"], "running");
        let faults = |seen: &Value| seen["counters"]["pgmajfault"].as_u64();
        wait_until("it goes on", || faults(&stats("acc-frozen")) > faults(&after));
    }
    let outcome = running.finish();
    job::report("freeze and thaw", &outcome);
    outcome.check_validated();
    outcome.check_clean();
    assert_eq!(outcome.code, Some(0), "{}", outcome.describe());
}

/// A limit that the group cannot come within is not left behind, and ends nothing.
#[test]
fn a_limit_that_is_too_low_is_taken_back() {
    only_folioswap!();
    // Locked memory cannot leave.
    let script = "import ctypes, mmap, time\n\
                  m = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                  libc = ctypes.CDLL(None)\n\
                  a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
                  assert libc.mlock(ctypes.c_void_p(a), ctypes.c_size_t(64 << 20)) == 0\n\
                  print('locked', flush=True)\n\
                  time.sleep(600)\n";
    let mut running = start("acc-locked", 128 * MIB, &["python3", "-c", script]);
    running.wait_for_output("locked");
    let output = run_folioswap(&["set", "acc-locked", "--memory", "32M"]);
    refused(&output, 125, &["does not come below", "--memory", "the old limit holds"]);
    assert_eq!(bytes(&stats("acc-locked"), "limit_bytes"), 128 * MIB);
    assert!(!running.poll(), "nothing has ended: {}", running.errors());
    running.signal(libc::SIGTERM);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(128 + libc::SIGTERM), "{}", outcome.describe());
}

#[test]
fn groups_and_mounts_are_listed_together() {
    only_folioswap!();
    let mut running = start("acc-listed", 64 * MIB, &["sh", "-c", "echo here; exec sleep 600"]);
    running.wait_for_output("here");
    let mount =
        mount::missing().is_none().then(|| Mount::new("listed", &["--memory", "64M", "--size", "1G"]));
    wait_until("its process is a member", || bytes(&stats("acc-listed"), "charge_bytes") > 0);
    let text = done(&run_folioswap(&["ps"]));
    let line = text.lines().find(|line| line.starts_with("acc-listed")).expect("a line");
    for word in ["64.0M", "running", "sh -c"] {
        assert!(line.contains(word), "{word} in {text}");
    }
    let all: Value = serde_json::from_str(&done(&run_folioswap(&["ps", "--json"]))).expect("JSON");
    let groups = all["groups"].as_array().expect("groups");
    let group = groups.iter().find(|group| group["name"] == "acc-listed").expect("the group");
    assert_eq!(bytes(group, "limit_bytes"), 64 * MIB);
    // A process of it, its front and its supervisor mean the same group.
    for pid in [running.pid.to_string(), bytes(group, "pid").to_string()] {
        assert_eq!(stats(&pid)["name"], "acc-listed");
    }
    let again = run_folioswap(&["run", "--name", "acc-listed", "--memory", "64M", "--", "true"]);
    refused(&again, 125, &["acc-listed", "runs already", "choose another"]);
    if let Some(mount) = &mount {
        let directory = mount.path().display().to_string();
        assert!(text.lines().any(|line| line.starts_with(&directory)), "{text}");
        fs::write(mount.path().join("file"), vec![7; 8 << 20]).expect("written");
        let seen = stats(&directory);
        assert_eq!((bytes(&seen, "limit_bytes"), bytes(&seen, "size_bytes")), (64 * MIB, 1 << 30));
        assert_eq!(bytes(&seen, "content_bytes"), 8 * MIB);
    }
    running.signal(libc::SIGKILL);
}

/// Files of pseudo-random bytes, twice the limit and more, while limit and size go up and down.
#[test]
fn a_mount_changes_its_limits_while_it_is_written_and_read() {
    only_folioswap!();
    if let Some(why) = mount::missing() {
        skip!("{why}");
    }
    let mount = Mount::new("changed", &["--memory", "128M", "--size", "512M", "--huge", "always"]);
    let directory = mount.path().display().to_string();
    let contents = |number: u64| {
        let mut state = number + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of the bytes are zero, so that it compresses.
            if state >> 63 == 0 { 0 } else { (state >> 33) as u8 }
        };
        (0..16 * MIB).map(|_| next()).collect::<Vec<u8>>()
    };
    let mut longest = Duration::ZERO;
    for turn in 0..16 {
        fs::write(mount.path().join(turn.to_string()), contents(turn)).expect("written");
        let limit = if turn % 2 == 0 { "64M" } else { "128M" };
        let begun = Instant::now();
        done(&run_folioswap(&["set", &directory, "--memory", limit]));
        longest = longest.max(begun.elapsed());
        let seen = stats(&directory);
        let figures = &seen["figures"];
        assert!(bytes(figures, "memory_used") <= bytes(figures, "memory_limit"), "{seen:#}");
        assert_eq!(bytes(&seen, "limit_bytes"), if turn % 2 == 0 { 64 * MIB } else { 128 * MIB });
    }
    for turn in 0..16 {
        let read = fs::read(mount.path().join(turn.to_string())).expect("read");
        assert!(read == contents(turn), "file {turn} is as it was written");
    }
    eprintln!("the longest change took {} ms", longest.as_millis());
    // 256 MiB are there.
    refused(&run_folioswap(&["set", &directory, "--size", "100M"]), 125, &["256.0 MiB of contents"]);
    done(&run_folioswap(&["set", &directory, "--size", "260M"]));
    assert!(fs::write(mount.path().join("more"), vec![7; 16 << 20]).is_err(), "there is no room for it");
    done(&run_folioswap(&["set", &directory, "--size", "1G"]));
    fs::write(mount.path().join("more"), vec![7; 16 << 20]).expect("there is room again");
}

/// Two processes go through as much memory as each other, more than there is; the heavier one keeps
/// more of it, by what `stats` says of both, and what it starts is as heavy.
#[test]
fn the_heavier_process_keeps_more() {
    only_folioswap!();
    let go = format!("/var/tmp/folioswap-acc-weights-{}", std::process::id());
    let touch = format!(
        "import os,random\nb=bytearray(random.Random(1).randbytes(1<<20)*60)\nc=1\nwhile True:\n b[random.randrange(len(b))]=1\n if c==1 and os.path.exists(\"{go}\"): c=os.fork()"
    );
    let script = format!("python3 -c '{touch}' & python3 -c '{touch}' & wait");
    let running = start("acc-weights", 80 * MIB, &["sh", "-c", &script]);
    let pythons = || {
        let seen = stats("acc-weights");
        let mut members = seen["members"].as_array().cloned().unwrap_or_default();
        members.retain(|member| member["name"].as_str().is_some_and(|name| name.starts_with("python")));
        members.sort_by_key(|member| member["pid"].as_u64());
        members
    };
    wait_until("both are near the limit and swap", || {
        let both = pythons();
        both.len() == 2 && both.iter().all(|member| bytes(member, "pages_in") > 1000)
    });
    let pids: Vec<u64> = pythons().iter().map(|member| bytes(member, "pid")).collect();
    for (heavy, light) in [(0, 1), (1, 0)] {
        for (number, weight) in [(heavy, 800), (light, 100)] {
            let weight = format!("{}={weight}", pids[number]);
            done(&run_folioswap(&["set", "acc-weights", "--weight", &weight]));
        }
        wait_until("the heavier has half as much again", || {
            let both = pythons();
            assert_eq!(bytes(&both[heavy], "weight"), 800);
            assert_eq!(both.len(), 2);
            bytes(&both[heavy], "resident_bytes") > bytes(&both[light], "resident_bytes") * 3 / 2
        });
    }
    // Each forks a child now: the second is the heavier one of the two that were weighed.
    fs::write(&go, "").expect("written");
    wait_until("children are as heavy as their parents", || {
        let weights: Vec<u64> = pythons().iter().map(|member| bytes(member, "weight")).collect();
        weights.iter().filter(|&&weight| weight == 800).count() == 2
    });
    fs::remove_file(&go).expect("removed");
    let none = run_folioswap(&["set", "acc-weights", "--weight", "1=200"]);
    refused(&none, 125, &["no managed process 1"]);
    for wrong in ["0", "0=100", "7=0", "7=10001"] {
        refused(&run_folioswap(&["set", "acc-weights", "--weight", wrong]), 125, &["--weight"]);
    }
    running.signal(libc::SIGKILL);
}

/// A process of the group cannot lift its own limit, nor can another user.
#[test]
fn only_root_and_the_owner_change_a_group_and_only_from_outside() {
    only_folioswap!();
    let folioswap = folioswap_acceptance::programs::folioswap().display().to_string();
    let script = format!(
        "echo here; read go; {folioswap} set acc-inside --memory 1G && exit 3; {folioswap} freeze acc-inside && exit 4; exit 7"
    );
    let go = format!("/var/tmp/folioswap-acc-inside-{}", std::process::id());
    let script = script.replace("read go", &format!("until test -e {go}; do sleep 0.05; done"));
    let mut running = start("acc-inside", 64 * MIB, &["sh", "-c", &script]);
    running.wait_for_output("here");
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        use std::os::unix::process::CommandExt;
        let copy = ForEverybody::new("inside");
        let mut command = std::process::Command::new(copy.path());
        let output = command.args(["set", "acc-inside", "--memory", "1G"]).uid(65_534).gid(65_534).output();
        refused(&output.expect("run"), 125, &["no folioswap group named acc-inside"]);
    }
    fs::write(&go, "").expect("written");
    let outcome = running.finish();
    drop(fs::remove_file(&go));
    assert_eq!(outcome.code, Some(7), "{}", outcome.describe());
    assert_eq!(outcome.stderr.matches("no process of the group itself").count(), 2, "{}", outcome.stderr);
}

/// Checks what the OpenMetrics format asks of a text: each sample belongs to the family before it,
/// has a value that is a number, and the text ends.
#[track_caller]
fn check_metrics(text: &str, group: &str) {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let (mut family, mut types, mut samples) = (String::new(), 0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["#", "HELP", name, ..] => family = (*name).to_owned(),
            ["#", "TYPE", name, "gauge" | "counter"] => {
                assert_eq!(*name, family, "{line}");
                types += 1;
            }
            ["#", "UNIT", name, unit] => assert!(*name == family && name.ends_with(unit), "{line}"),
            ["#", "EOF"] => {}
            _ => {
                let (name, value) =
                    (line.split(['{', ' ']).next().unwrap_or_default(), words[words.len() - 1]);
                assert!(name == family || name == format!("{family}_total"), "{line} in {family}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                samples += 1;
            }
        }
    }
    assert!(types > 30 && samples >= 30, "{types} families, {samples} samples");
    let limit = format!("folioswap_group_limit_bytes{{group=\"{group}\"");
    let line =
        text.lines().find(|line| line.starts_with(&limit)).unwrap_or_else(|| panic!("no {limit} in {text}"));
    assert_eq!(line.split(' ').next_back().and_then(|value| value.parse().ok()), Some((64 * MIB) as f64));
}

#[test]
fn metrics_are_served_and_written() {
    only_folioswap!();
    let mut running = start("acc-metrics", 64 * MIB, &["sh", "-c", "echo here; exec sleep 600"]);
    running.wait_for_output("here");
    check_metrics(&done(&run_folioswap(&["metrics", "-"])), "acc-metrics");
    let folioswap = folioswap_acceptance::programs::folioswap();
    // Port 0 is one that is free; which, it says.
    let mut exporter = Command::new(&folioswap)
        .args(["metrics", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut said = String::new();
    BufReader::new(exporter.stderr.take().expect("a pipe")).read_line(&mut said).expect("said");
    let address = said
        .trim()
        .rsplit_once("http://")
        .and_then(|(_, rest)| rest.strip_suffix("/metrics"))
        .expect("an address");
    let ask = |request: &str| {
        let mut client = TcpStream::connect(address).expect("connected");
        client.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    };
    // Whoever connects and says nothing holds the others up for 2 s at most.
    let _silent = TcpStream::connect(address).expect("connected");
    let (head, body) = ask("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("application/openmetrics-text"), "{head}");
    check_metrics(&body, "acc-metrics");
    assert!(ask("GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405"));
    assert!(ask("\r\n\r\n").0.starts_with("HTTP/1.1 405"));
    // The address is taken.
    refused(&run_folioswap(&["metrics", address]), 125, &[address, "give a free one"]);
    drop(exporter.kill());
    drop(exporter.wait());
    let file = std::env::temp_dir().join(format!("folioswap-acc-{}.prom", std::process::id()));
    let mut writer = Command::new(&folioswap)
        .arg("metrics")
        .arg(&file)
        .args(["--interval", "1"])
        .spawn()
        .expect("started");
    wait_until("the file is there", || file.exists());
    check_metrics(&fs::read_to_string(&file).expect("readable"), "acc-metrics");
    let first = fs::metadata(&file).and_then(|data| data.modified()).expect("a time");
    wait_until("it is written anew", || {
        fs::metadata(&file).and_then(|data| data.modified()).is_ok_and(|time| time > first)
    });
    drop(writer.kill());
    drop(writer.wait());
    drop(fs::remove_file(&file));
    refused(&run_folioswap(&["metrics", "/nowhere/at/all.prom"]), 125, &["/nowhere/at/all.prom"]);
    refused(&run_folioswap(&["metrics", "a.prom", "--interval", "0"]), 125, &["1..=3600"]);
    running.signal(libc::SIGKILL);
}

/// A program that waits for its memory most of the time is seen to do so, and one that does not is
/// not.
#[test]
fn pressure_is_what_a_program_waits() {
    only_folioswap!();
    let mut idle = start("acc-idle", 64 * MIB, &["sh", "-c", "echo here; exec sleep 600"]);
    idle.wait_for_output("here");
    let of = |target: &str| stats(target)["pressure"].clone();
    assert_eq!(of("acc-idle")["some"]["avg10"], 0.0);
    idle.signal(libc::SIGKILL);
    drop(idle);
    let phases = ["random"; 2000].join(",");
    let phases = format!("fill,{phases}");
    let words = [TOUCH, "--size", "96M", "--kind", "mixed", "--phases", &phases, "--touches", "20000"];
    let mut running = start("acc-pressed", 48 * MIB, &words);
    wait_until("it waits", || {
        assert!(!running.poll(), "it has ended: {}", running.errors());
        of("acc-pressed")["some"]["avg10"].as_f64() > Some(10.0)
    });
    let seen = of("acc-pressed");
    let average = |state: &str, window: &str| seen[state][window].as_f64().expect("a number");
    // Averages over longer times rise more slowly; of a program of one thread all is full.
    assert!(average("some", "avg10") > average("some", "avg60"), "{seen:#}");
    assert!(average("some", "avg60") > average("some", "avg300"), "{seen:#}");
    assert!(average("full", "avg10") > average("some", "avg10") / 2.0, "{seen:#}");
    assert!(
        average("some", "avg10") <= 100.0 && average("full", "avg10") <= average("some", "avg10"),
        "{seen:#}"
    );
    assert!(bytes(&seen["some"], "total_us") >= bytes(&seen["full"], "total_us"), "{seen:#}");
    assert!(done(&run_folioswap(&["stats", "acc-pressed"])).contains("avg300="));
    running.signal(libc::SIGKILL);
}

/// Each wrong input has a message that says what to do, and changes nothing.
#[test]
fn wrong_inputs_are_refused() {
    only_folioswap!();
    let mut running = start("acc-wrong", 64 * MIB, &["sh", "-c", "echo here; exec sleep 600"]);
    running.wait_for_output("here");
    let pid = running.pid.to_string();
    let own = std::process::id().to_string();
    let cases: &[(&[&str], &[&str])] = &[
        (&["set"], &["TARGET"]),
        (&["set", "acc-wrong"], &["--memory", "--size"]),
        (&["set", "acc-wrong", "--memory"], &["--memory"]),
        (&["set", "acc-wrong", "--memory", "much"], &["not a size", "512M"]),
        (&["set", "acc-wrong", "--memory", "4K"], &["too small", "8M"]),
        (&["set", "acc-wrong", "--memory", "0"], &["too small"]),
        (&["set", "acc-wrong", "--memory", "-1"], &["-1"]),
        (&["set", "acc-wrong", "--memory", "9000000T"], &["a thousand times this machine's RAM"]),
        (&["set", "acc-wrong", "--size", "1G"], &["a group has no size", "swapon"]),
        (&["set", "acc-wrong", "--size", "1G", "--memory", "32M"], &["a group has no size"]),
        (&["set", "acc-nobody", "--memory", "32M"], &["acc-nobody", "acc-wrong", "folioswap ps"]),
        (&["set", "", "--memory", "32M"], &["folioswap ps"]),
        (&["set", &own, "--memory", "32M"], &["belongs to no running folioswap group"]),
        (&["set", "4194304", "--memory", "32M"], &["no process 4194304"]),
        (&["set", "/var/tmp", "--memory", "32M"], &["/var/tmp is not a folioswap mount"]),
        (&["set", "/nowhere/at/all", "--memory", "32M"], &["not a folioswap mount"]),
        (&["freeze"], &["TARGET"]),
        (&["freeze", "acc-nobody"], &["no folioswap group named acc-nobody"]),
        (&["freeze", "/var/tmp"], &["not a folioswap mount"]),
        (&["thaw", "acc-nobody"], &["no folioswap group named acc-nobody"]),
        (&["stats", "acc-nobody"], &["no folioswap group named acc-nobody"]),
        (&["stats", "."], &["not a folioswap mount"]),
        (&["stats", "acc-wrong", "--yaml"], &["--yaml"]),
        (&["ps", "acc-wrong"], &["acc-wrong"]),
        (&["run", "--name", "4711", "-m", "64M", "--", "true"], &["taken for a process id", "job4711"]),
        (&["run", "--name", "a b", "-m", "64M", "--", "true"], &["letters, digits"]),
        (&["run", "--name", "", "-m", "64M", "--", "true"], &["letters, digits"]),
        (&["run", "--name", "acc-wrong", "-m", "64M", "--", "true"], &["runs already"]),
        (&["top"], &["needs a terminal", "folioswap ps"]),
        (&["top", "--delay", "0"], &["0.1 to 3600"]),
        (&["top", "--delay", "soon"], &["0.1 to 3600"]),
    ];
    for (words, said) in cases {
        let output = run_folioswap(words);
        eprintln!(
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default()
        );
        refused(&output, 125, said);
        assert_eq!(bytes(&stats(&pid), "limit_bytes"), 64 * MIB, "{words:?}");
    }
    running.signal(libc::SIGKILL);
}
