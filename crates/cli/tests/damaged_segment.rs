//! A member that writes wrong numbers into the group's segment. CMD is this test program itself,
//! which plays the role that `DAMAGE` names; every process has the real agent.

mod supervisor_support;

use std::{
    process::{Command, Stdio},
    sync::atomic::Ordering::{Relaxed, Release},
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
    let Member { segment, socket: _connection, .. } = Member::join();
    let header = &segment.header;
    for (round, wrong) in [0, 1, 63, 64, 1000, i32::MAX as u32, u32::MAX].into_iter().enumerate() {
        use std::io::Write;
        for member in segment.live_members() {
            member.set_group(wrong);
        }
        for word in [&header.page_cluster, &header.orders_always, &header.orders_madvise] {
            word.store(wrong, Relaxed);
        }
        header.census_walks.store(wrong, Relaxed);
        header.devices_changed.fetch_add(1, Release);
        if wrong == u32::MAX {
            header.members_high.store(wrong, Release);
        }
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
