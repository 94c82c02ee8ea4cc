use super::*;
use std::io::Write;

#[test]
fn status_is_read() {
    let text = "Name:\tmy (odd) prog\nState:\tS (sleeping)\nRssAnon:\t     256 kB\nRssFile:\t 1 kB\nRssShmem:\t       4 kB\n";
    let expected = Status { name: "my (odd) prog".into(), state: 'S', anonymous: 256 << 10, shared: 4 << 10 };
    assert_eq!(parse_status(text), Some(expected));
    assert!(status(std::process::id()).expect("alive").anonymous > 0);
}

#[test]
fn what_a_name_would_tell_a_terminal_is_shown_and_not_done() {
    assert_eq!(printable("\u{1b}[31mX\u{7}\u{9b}\u{7f}"), "\\x1b[31mX\\x07\\x9b\\x7f");
    assert_eq!(printable("my (odd) prog \u{e4}\u{fffd}"), "my (odd) prog \u{e4}\u{fffd}");
    let text = "Name:\t\u{1b}[2J\nState:\tR (running)\n";
    assert_eq!(parse_status(text).expect("parsed").name, "\\x1b[2J");
}

#[test]
fn the_memory_of_a_process_is_read() {
    let text = "Name:\tx\nVmPeak:\t  3000 kB\nVmSize:\t 2000 kB\nRssAnon:\t 256 kB\nRssShmem:\t 4 kB\n";
    let expected = Memory { peak: 3000 << 10, anonymous: 256 << 10, shared: 4 << 10 };
    assert_eq!(parse_memory(text), Some(expected));
    assert_eq!(parse_memory("Name:\tx\nState:\tZ (zombie)\n"), None);
    let own = memory(std::process::id()).expect("alive");
    assert!(own.peak >= own.anonymous && own.anonymous > 0, "{own:?}");
}

/// A process whose first thread has ended shows no memory under that thread's number.
#[test]
fn the_memory_of_a_process_is_found_with_any_of_its_threads() {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child uses what glibc makes safe after a fork; the system call ends its first
    // thread and no other.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut told = writer.try_clone().expect("duplicated");
        std::thread::spawn(move || {
            told.write_all(&[0]).expect("told");
            std::thread::sleep(Duration::from_secs(60));
        });
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    drop(writer);
    reader.read_exact(&mut [0]).expect("the other thread runs");
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while state_and_parent(child as u32).is_some_and(|(state, _)| state != 'Z') {
        assert!(std::time::Instant::now() < until, "the first thread ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(parse_memory(&text_of(child as u32, "status").expect("there")), None);
    assert!(memory(child as u32).is_some_and(|memory| memory.peak > 0));
    // SAFETY: ends and waits for the child made above.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert_eq!(memory(child as u32), None);
}

#[test]
fn the_owner_of_a_thread_is_read() {
    let text = "Name:\tUid:\t7\nTgid:\t12\nPid:\t13\nUid:\t1000\t0\t0\t0\n";
    assert_eq!(parse_identity(text), Some(Identity { process: 12, user: 1000 }));
    let me = std::process::id();
    let thread = std::thread::spawn(|| identity(rustix::thread::gettid().as_raw_pid() as u32));
    assert_eq!(thread.join().expect("joined").expect("alive").process, me);
}

/// A process whose name is no text descends from its parents, and takes memory, all the same.
#[test]
fn a_name_that_is_no_text_hides_nothing() {
    let script = "printf '\\377x' > /proc/$$/comm; echo; read line";
    let mut child = std::process::Command::new("sh")
        .args(["-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sh");
    let mut line = [0];
    child.stdout.take().expect("piped").read_exact(&mut line).expect("it has its name");
    let found = status(child.id()).expect("alive");
    assert_eq!((found.name.as_str(), found.anonymous > 0), ("\u{fffd}x", true));
    assert!(descends_from(child.id(), std::process::id()));
    child.kill().expect("killed");
    child.wait().expect("waited");
}

#[test]
fn both_walks_find_a_grandchild() {
    let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().expect("sh");
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while descendants(child.id()).is_empty() {
        assert!(std::time::Instant::now() < until, "sleep runs");
        std::thread::sleep(Duration::from_millis(5));
    }
    let me = std::process::id();
    for found in [descendants(me), descendants_by_parent(me)] {
        assert!(found.contains(&child.id()));
        let grandchild =
            found.iter().find(|&&pid| state_and_parent(pid).is_some_and(|(_, p)| p == child.id()));
        assert!(descends_from(*grandchild.expect("sleep runs"), me));
    }
    for pid in descendants(child.id()) {
        kill_process(Pid::from_raw(pid as i32).expect("not 0"), Signal::KILL).expect("killed");
    }
    child.wait().expect("waited");
    assert!(!descends_from(1, me));
}

#[test]
fn a_parent_that_ends_during_the_walk_makes_no_stranger() {
    // 1 is the ancestor, 9 descends from it by 5, and 5 ends after each of the first looks at 9,
    // and is waited for.
    for ends in 0..4 {
        let mut looks = 0;
        let parent_of = |pid| match pid {
            9 => {
                looks += 1;
                Some(if looks <= ends { 5 } else { 1 })
            }
            _ => None,
        };
        assert!(descends_by(9, 1, parent_of), "it ended {ends} times");
    }
}

#[test]
fn who_is_gone_or_has_other_ancestors_is_a_stranger() {
    assert!(!descends_by(9, 1, |_| None));
    assert!(!descends_by(9, 1, |pid| (pid == 9).then_some(0)));
    assert!(!descends_by(9, 1, |pid| Some(if pid == 9 { 5 } else { 0 })));
    // A /proc that is never coherent ends the walk too.
    assert!(!descends_by(9, 1, |pid| (pid == 9).then_some(5)));
}

#[test]
fn processor_time_is_read_behind_any_name() {
    let stat = "7 (a) b 1) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0 100 0 0";
    assert_eq!(parse_processor_time(stat), Some(420_000_000));
    assert_eq!(parse_processor_time("7 (a) S 1"), None);
    assert!(processor_time(std::process::id()).is_some());
}
