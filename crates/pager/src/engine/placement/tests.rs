use super::*;

/// The test's own process; its clock is not asked.
const OWN: FollowedProgram = FollowedProgram { number: 0, shown: Shown::Own };

#[test]
fn own_cpu_is_found() {
    let mut one: Mask = [0; MASK_WORDS];
    let mut before: Mask = [0; MASK_WORDS];
    sys::affinity(&mut before);
    let cpu = sys::current_cpu();
    one[cpu as usize / 64] = 1 << (cpu % 64);
    sys::set_affinity(&one).unwrap();
    let mut looks = Looks::of(OWN);
    assert_eq!([0; 2].map(|_| looks.cpu_of(sys::gettid())), [Some(cpu); 2]);
    sys::set_affinity(&before).unwrap();
    assert_eq!(looks.cpu_of(u32::MAX), None);
}

/// The thread is followed, and wants the other CPU awake, between two looks too, as long as its
/// faults come one after the other and no other thread runs.
#[test]
fn who_faults_again_at_once_is_followed_and_wants_the_other_cpu_awake() {
    std::thread::spawn(|| {
        let (mut placement, told) = (HandlerPlacement::new(OWN), AtomicU32::new(NO_CPU));
        assert!(placement.places.only(sys::current_cpu()));
        let (thread, mut now) = (sys::gettid(), 1 << 40);
        // Other tests run in this process: this test sets itself which other threads run.
        placement.company = None;
        assert_eq!(placement.follow(thread, &told, now), None, "the first fault");
        let cpu = told.load(Relaxed);
        assert_eq!(cpu, sys::current_cpu());
        let mut is_wanted = |placement: &mut HandlerPlacement, after_ns| {
            placement.note_served(now);
            now += after_ns;
            placement.follow(thread, &told, now).map(|wanted| assert_eq!(wanted, cpu)).is_some()
        };
        assert!(!is_wanted(&mut placement, 1), "others may run");
        placement.company = Some(Company::none_for(thread));
        assert!(is_wanted(&mut placement, AGAIN_NS - 1));
        assert!(!is_wanted(&mut placement, AGAIN_NS), "it ran for long");
        assert!(is_wanted(&mut placement, 1));
    })
    .join()
    .unwrap();
}

/// A thread that is elsewhere at each look is given up for a while, unless it is alone and will be
/// kept where it is.
#[test]
fn who_goes_astray_is_left_to_the_scheduler_but_not_who_runs_alone() {
    std::thread::spawn(|| {
        let told = AtomicU32::new(NO_CPU);
        let cpu = sys::current_cpu();
        for company in [None, Some(Company::default()), Some(Company::none_for(7))] {
            let mut placement = HandlerPlacement::new(OWN);
            for _ in 1..ASTRAY_LOOKS {
                placement.bound_to = NO_CPU - 1;
                placement.go_along(cpu, 7, &told);
                assert_eq!((told.load(Relaxed), placement.look_after_ns), (cpu, LOOK_SOON_NS));
            }
            placement.bound_to = NO_CPU - 1;
            placement.company = company;
            let is_alone = placement.is_alone(7);
            placement.go_along(cpu, 7, &told);
            assert_eq!(told.load(Relaxed), if is_alone { cpu } else { NO_CPU });
            assert_eq!(placement.look_after_ns, if is_alone { LOOK_LATE_NS } else { ASTRAY_NS });
        }
    })
    .join()
    .unwrap();
}

/// One thread after the other, each looked at while it runs and after it has ended.
#[test]
fn threads_that_end_are_not_found_any_more() {
    let mut looks = Looks::of(OWN);
    for _ in 0..3 {
        let (told, tells) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let running = std::thread::spawn(move || {
            told.send(sys::gettid()).unwrap();
            let _ = ended.recv();
        });
        let thread = tells.recv().unwrap();
        assert!(looks.cpu_of(thread).is_some());
        drop(end);
        running.join().unwrap();
        // The thread is joined before it has quite ended.
        while looks.open_file(thread, b"stat").is_some() {
            std::thread::yield_now();
        }
        assert_eq!(looks.cpu_of(thread), None);
        assert!(looks.cpu_of(sys::gettid()).is_some());
    }
}
