use super::*;

fn options() -> Options {
    Options {
        size: 1 << 20,
        processes: 1,
        step: 8,
        random: false,
        sync_rw: true,
        sync_free: true,
        init_time: true,
        check: true,
    }
}

/// The bytes of a page are those of usemem: `p[i] = i` for every word, or for every step's first.
#[test]
fn a_page_holds_the_indices_of_its_words() {
    let shared = Rendezvous::new(1).unwrap();
    for (step, random) in [(8, false), (4096, false), (64, true)] {
        let options = Options { step, random, ..options() };
        let mut memory = Mapping::new(options.size as usize);
        let start = memory.as_mut_ptr().cast::<u64>();
        let mut written = 0;
        accesses(&options, 0, |index| {
            written += 1;
            // SAFETY: the word lies within the mapping.
            unsafe { start.add(index).write_volatile(word(index)) };
        });
        assert_eq!(written, options.size as usize / step);
        check(&options, 0, &memory).unwrap();
        memory[8 * 512] ^= 0xff;
        assert!(check(&options, 0, &memory).unwrap_err().contains("not its index"), "{step}");
        work(&options, 0, &shared).unwrap();
        shared.words[..MEETINGS].iter().for_each(|came| came.store(0, Ordering::Release));
    }
    assert!(shared.microseconds(0, 1).load(Ordering::Acquire) > 0);
}

#[test]
fn hardly_a_page_is_same_filled() {
    assert_eq!(same_filled(8), 0.0);
    assert_eq!(same_filled(4096), 1.0 / 4096.0);
    assert!(same_filled(8192) > 0.5);
}

#[test]
fn random_places_repeat_with_the_process_and_reach_everything() {
    let options = Options { random: true, size: 4096 * 8, ..options() };
    let of = |process| {
        let mut all = Vec::new();
        accesses(&options, process, |index| all.push(index));
        all
    };
    assert_eq!(of(0), of(0));
    assert_ne!(of(0), of(1));
    let reached: std::collections::BTreeSet<_> = of(0).into_iter().map(|index| index / 512).collect();
    assert_eq!(reached.len(), 8);
}
