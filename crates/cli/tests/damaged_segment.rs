//! A member that writes wrong numbers into the group's segment. CMD is this test program itself,
//! which plays the role that `DAMAGE` names; every process has the real agent.

mod supervisor_support;

use folioswap_group::segment::{Header, Segment};
use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use supervisor_support::{Run, members::Member};

/// Memory of each of the two processes; one and a half times the limit of 64 MiB together.
const BYTES: usize = 48 << 20;

/// Changes each page, and checks that the rest of it is as it was left.
fn walk(memory: &mut [u64], round: u64) {
    for (number, page) in memory.chunks_mut(512).enumerate() {
        let seed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (index, word) in page.iter_mut().enumerate() {
            let value = |round: u64| seed.rotate_left(index as u32) ^ round;
            assert!(round == 0 || *word == value(round - 1), "page {number}, word {index}");
            *word = value(round);
        }
    }
}

/// Plays the role of `DAMAGE`; in an ordinary test run it does nothing.
#[test]
fn damaging_member() {
    let Ok(role) = std::env::var("DAMAGE") else { return };
    if role == "lift" {
        return lift_limit();
    }
    let mut memory = vec![0_u64; BYTES / size_of::<u64>()];
    if role == "victim" {
        // As long as its parent damages the segment.
        let input = std::io::stdin();
        let mut round = 0;
        let mut line = String::new();
        while input.read_line(&mut line).expect("read") > 0 {
            walk(&mut memory, round);
            round += 1;
        }
        return;
    }
    let me = std::env::current_exe().expect("known");
    let mut victim = Command::new(me);
    victim.args(["damaging_member", "--exact", "--nocapture"]).env("DAMAGE", "victim").stdin(Stdio::piped());
    let mut victim = victim.stdout(Stdio::null()).spawn().expect("started");
    let mut lines = victim.stdin.take().expect("piped");
    // Says hello once more, beside the agent of this process.
    let Member { group, socket: _connection, id, .. } = Member::join();
    let (header, own) = (&group.segment.header, &group.segment.members[id as usize]);
    for (round, wrong) in [0, 1, 63, 64, 1000, i32::MAX as u32, u32::MAX].into_iter().enumerate() {
        use std::io::Write;
        let both = u64::from(wrong) << 32 | u64::from(wrong);
        for member in group.live_members().filter(|member| !std::ptr::eq(*member, own)) {
            member.active.store(wrong, Relaxed);
            for word in [&member.reclaim_request_bytes, &member.evictable_bytes] {
                word.store(both, Relaxed);
            }
        }
        header.faulting.store(both, Relaxed);
        header.vigil_sleeps.store(wrong, Relaxed);
        header.charge_sank.fetch_add(wrong, Relaxed);
        // Both move their pages in and out meanwhile. A victim that has ended takes no line.
        lines.write_all(b"go\n").expect("the victim lives");
        walk(&mut memory, round as u64);
    }
    drop(lines);
    assert!(victim.wait().expect("waited").success());
}

#[test]
fn wrong_numbers_in_the_segment_end_no_member() {
    let me = std::env::current_exe().expect("known");
    let cmd = [me.to_str().expect("text"), "damaging_member", "--exact", "--nocapture"];
    let mut run = Run::managed(&[], &cmd);
    run.command.env("DAMAGE", "all");
    let (status, out, err) = run.output();
    assert_eq!(status, 0, "{out}{err}");
    assert!(!err.contains("internal error") && !err.contains("panicked"), "{err}");
    let stats = run.stats();
    assert_eq!(stats["end"], "exited", "{stats}");
    assert!(stats["counters"]["pswpout"].as_u64().is_some_and(|pages| pages > 0), "{stats}");
    run.assert_all_gone();
}

/// Words of the segment that belong to no member: what a group has decided stood there once.
fn words_of_nobody(segment: &Segment) -> impl Iterator<Item = &AtomicU64> {
    const WORDS: usize = size_of::<Header>() / size_of::<AtomicU64>();
    let words = std::ptr::from_ref(&segment.header).cast::<AtomicU64>();
    // SAFETY: the header consists of atomics, and is aligned to 64 bytes.
    unsafe { std::slice::from_raw_parts(words, WORDS) }.iter()
}

/// Anonymous memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A thread uses three times the limit, while this one writes into all words that could be the
/// limit, one value after the other, and a third one looks how much is resident.
fn lift_limit() {
    // Says hello once more, beside the agent of this process.
    let Member { group, socket: _connection, .. } = Member::join();
    let limit = group.decisions.limit_bytes();
    for value in [1 << 40, u64::MAX, 1 << 32 | 1, 0] {
        let walker = std::thread::spawn(move || {
            let mut memory = vec![0_u64; 4 * BYTES / size_of::<u64>()];
            walk(&mut memory, 0);
            walk(&mut memory, 1);
        });
        let done = AtomicBool::new(false);
        let peak = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut peak = 0;
                while !done.load(Relaxed) {
                    peak = peak.max(resident());
                    std::thread::sleep(Duration::from_millis(2));
                }
                peak
            });
            while !walker.is_finished() {
                words_of_nobody(group.segment).for_each(|word| word.store(value, Relaxed));
                std::thread::sleep(Duration::from_millis(1));
            }
            done.store(true, Relaxed);
            watcher.join().expect("it could read")
        });
        walker.join().expect("it lost nothing");
        assert!(
            peak > limit / 2 && peak < limit / 4 * 5,
            "{peak} bytes at a limit of {limit}, by {value:#x}"
        );
    }
    assert_eq!(group.decisions.limit_bytes(), limit);
}

#[test]
fn no_word_of_the_segment_lifts_the_limit() {
    let me = std::env::current_exe().expect("known");
    let cmd = [me.to_str().expect("text"), "damaging_member", "--exact", "--nocapture"];
    let mut run = Run::managed(&[], &cmd);
    run.command.env("DAMAGE", "lift");
    let (status, out, err) = run.output();
    assert_eq!(status, 0, "{out}{err}");
    // It judges by what the kernel says of its memory: the peak in the statistics is a sum of words
    // of the segment, and what was written there shows in it.
    assert!(out.contains("1 passed"), "{out}");
    run.assert_all_gone();
}
