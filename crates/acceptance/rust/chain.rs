//! The same as `c/chain.c`, with threads and a command in place of a forked child.

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

fn value(index: usize, version: usize) -> u64 {
    (index as u64 * 1_000_003 + version as u64).wrapping_mul(2_654_435_761)
}

fn check(memory: &[u64], version: usize) {
    let part = memory.len().div_ceil(4);
    thread::scope(|scope| {
        for (number, words) in memory.chunks(part).enumerate() {
            scope.spawn(move || {
                for (index, word) in words.iter().enumerate() {
                    assert_eq!(*word, value(number * part + index, version));
                }
            });
        }
    });
}

fn main() {
    let words: Vec<OsString> = env::args_os().collect();
    let mebibytes: usize = words[1].to_str().and_then(|text| text.parse().ok()).expect("MiB");
    let version = words.len();
    let memory: Vec<u64> = (0..(mebibytes << 20) / 8).map(|index| value(index, version)).collect();
    let texts: HashMap<u64, String> = (0..50_000).map(|number| (number, number.to_string())).collect();
    check(&memory, version);
    for (number, text) in &texts {
        assert_eq!(number.to_string(), *text);
    }
    let output = Command::new("/bin/echo").arg("words").output().expect("echo");
    assert_eq!(output.stdout, b"words\n");
    check(&memory, version);
    if words.len() == 2 {
        println!("ok chain");
        return;
    }
    // Neither of these is there, or may be executed: the program goes on.
    assert_eq!(Command::new("/nowhere/nothing").exec().kind(), ErrorKind::NotFound);
    assert_eq!(Command::new("/etc").exec().kind(), ErrorKind::PermissionDenied);
    check(&memory, version);
    let error = Command::new(&words[2]).arg(&words[1]).args(&words[3..]).exec();
    panic!("{}: {error}", words[2].display());
}
