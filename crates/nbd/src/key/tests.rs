use super::*;
use std::fs;

/// The contents of a core dump of this process: all mappings that are not excluded.
fn dumped_ranges() -> Vec<(usize, usize)> {
    let maps = fs::read_to_string("/proc/self/smaps").expect("it");
    let mut ranges = Vec::new();
    let mut range = (0, 0);
    for line in maps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag| flags.split_whitespace().any(|found| found == flag);
            if !has("dd") && !has("io") && has("rd") {
                ranges.push(range);
            }
        } else if let Some((start, rest)) = line.split_once('-')
            && let (Ok(start), Some(end)) = (
                usize::from_str_radix(start, 16),
                rest.split_once(' ').and_then(|(end, _)| usize::from_str_radix(end, 16).ok()),
            )
        {
            range = (start, end);
        }
    }
    ranges
}

fn times_in_dump(needle: &[u8; 32]) -> usize {
    use std::os::unix::fs::FileExt;
    let memory = fs::File::open("/proc/self/mem").expect("it");
    let mut buffer = vec![0_u8; 1 << 20];
    let own = buffer.as_ptr().addr()..buffer.as_ptr().addr() + buffer.capacity();
    let mut found = 0;
    for (start, end) in dumped_ranges() {
        let mut at = start;
        while at < end {
            let count = (end - at).min(buffer.len());
            if let Ok(read) = memory.read_at(&mut buffer[..count], at as u64) {
                let hits = buffer[..read].windows(32).enumerate().filter(|(_, window)| {
                    // Written like this, the pattern itself stands in the needle alone, inverted
                    // bit by bit.
                    window.iter().zip(needle).all(|(byte, inverted)| *byte == !*inverted)
                });
                found += hits.filter(|(offset, _)| !own.contains(&(at + offset))).count();
            }
            at += count;
        }
    }
    found
}

#[test]
fn no_core_dump_holds_the_key() {
    for cipher in [&AES_256_GCM, &CHACHA20_POLY1305] {
        let mut inverted = [0_u8; 32];
        let bytes = Locked::<[u8; 32]>::new(|place| {
            // SAFETY: the memory is zeroed, has room for 32 bytes, and is ours alone.
            fill(unsafe { &mut *place.as_ptr() })
        })
        .expect("locked memory");
        for (inverted, byte) in inverted.iter_mut().zip(bytes.iter()) {
            *inverted = !*byte;
        }
        let key = Locked::new(|place| {
            expand(cipher, &bytes, place);
            scrub();
            Ok(())
        })
        .expect("locked memory");
        drop(bytes);
        assert_eq!(times_in_dump(&inverted), 0, "the key's bytes, and AES' first round key");
        // The search finds a pattern that is there.
        let seen: Vec<u8> = inverted.iter().map(|byte| !byte).collect();
        assert!(times_in_dump(&inverted) >= 1);
        std::hint::black_box((&seen, &key));
    }
}

/// The kernel merges neighbouring mappings, and locked mappings of other tests may lie next to this
/// one, so the test runs in a process of its own.
#[test]
fn it_is_locked_and_not_inherited() {
    const ALONE: &str = "FOLIOSWAP_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = std::thread::current().name().expect("a test has a name").to_owned();
        let mut again = std::process::Command::new(std::env::current_exe().expect("it"));
        let output =
            again.args(["--exact", &name]).env(ALONE, "1").output().expect("the test once more, alone");
        assert!(
            output.status.success() && output.stdout.windows(9).any(|word| word == b"1 passed;"),
            "{output:?}"
        );
        return;
    }
    let key = random_key(best_cipher()).expect("locked memory");
    let address = std::ptr::from_ref::<LessSafeKey>(&key).addr();
    let smaps = fs::read_to_string("/proc/self/smaps").expect("it");
    let start = format!("{address:x}-");
    let of_it = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let flags = of_it.skip(1).find(|line| line.starts_with("VmFlags")).expect("flags");
    for flag in ["lo", "dd", "dc"] {
        assert!(flags.split_whitespace().any(|found| found == flag), "{flag} in {flags}");
    }
    drop(key);
    assert!(!fs::read_to_string("/proc/self/smaps").expect("it").contains(&start));
}
