//! Hooks, positions from a list, and an evictor that holds are kept from: in a process of one
//! thread that arms the gate in itself, so this test has a `main` of its own.

#[cfg(target_arch = "x86_64")]
mod armed {
    use folioswap_gate::hazard::{Announcer, Pages};
    use folioswap_gate::hooks::{self, Incident, Managed, Run};
    use folioswap_gate::rewrite::{self, State};
    use folioswap_gate::{dispatch, figures, pins};
    use std::arch::asm;
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

    static BEFORE: AtomicU32 = AtomicU32::new(0);
    static PARENT: AtomicU32 = AtomicU32::new(0);
    static CHILD: AtomicU32 = AtomicU32::new(0);
    static THREADS: AtomicU32 = AtomicU32::new(0);
    static EXECS: AtomicU32 = AtomicU32::new(0);
    static FAILED: AtomicU32 = AtomicU32::new(0);
    static MAPPINGS: AtomicU32 = AtomicU32::new(0);
    static REPORTS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
    static MANAGED_PAGE: AtomicU64 = AtomicU64::new(0);

    extern "C" fn before() {
        BEFORE.fetch_add(1, SeqCst);
    }
    extern "C" fn parent(answer: i64) {
        assert!(answer > 0);
        PARENT.fetch_add(1, SeqCst);
    }
    extern "C" fn child() {
        CHILD.fetch_add(1, SeqCst);
    }
    extern "C" fn thread() {
        THREADS.fetch_add(1, SeqCst);
    }
    extern "C" fn exec(call: &[u64; 7]) -> u64 {
        EXECS.fetch_add(1, SeqCst);
        call[0] + 1
    }
    extern "C" fn failed(answer: u64) {
        // That of the hook before, for execve.
        FAILED.fetch_add(u32::from(answer == 60), SeqCst);
    }
    extern "C" fn report(incident: Incident, _number: u64) {
        REPORTS[incident as usize].fetch_add(1, SeqCst);
    }
    fn managed(page: u64) -> Run {
        let managed = if page == MANAGED_PAGE.load(SeqCst) { Managed::Writable } else { Managed::No };
        Run { managed, end: page + 1 }
    }
    unsafe extern "C" fn mapping(number: u64, arguments: &[u64; 6]) -> u64 {
        MAPPINGS.fetch_add(1, SeqCst);
        // SAFETY: the program's own call.
        match unsafe { hooks::make_call(number as u32, *arguments) } {
            Ok(answer) => answer,
            Err(error) => (error.0 as u64).wrapping_neg(),
        }
    }

    fn syscall(number: u64, [a, b, c, d, e, f]: [u64; 6]) -> i64 {
        let answer;
        // SAFETY: the calls below lead into memory of the test's.
        unsafe {
            asm!("syscall", inlateout("rax") number as i64 => answer, in("rdi") a, in("rsi") b, in("rdx") c,
                in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _);
        }
        answer
    }

    /// A page with the code `syscall; add rax, 1; ret`.
    fn code() -> u64 {
        code_at(0, 1)
    }

    /// The same with another number, in place of what is mapped at an address.
    fn code_at(wanted: u64, number: u8) -> u64 {
        code_of(wanted, &[0x0f, 0x05, 0x48, 0x83, 0xc0, number, 0xc3])
    }

    fn code_of(wanted: u64, bytes: &[u8]) -> u64 {
        let fixed = if wanted == 0 { 0 } else { 0x10 };
        let page = syscall(9, [wanted & !4095, 4096, 3, 0x22 | fixed, u64::MAX, 0]) as u64;
        // SAFETY: the page was mapped just now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (page + 64) as *mut u8, bytes.len()) };
        assert_eq!(syscall(10, [page, 4096, 5, 0, 0, 0]), 0);
        page + 64
    }

    fn run(code: u64) -> i64 {
        let answer;
        // SAFETY: the code makes the call and returns.
        unsafe {
            asm!("call {}", in(reg) code, inlateout("rax") 110i64 => answer, lateout("rcx") _, lateout("r11") _);
        }
        answer
    }

    pub fn main() {
        // Where memory is managed there is no rseq, which the C library wants in each thread if it
        // has it in the first one.
        const TUNABLES: &str = "GLIBC_TUNABLES";
        if std::env::var_os(TUNABLES).is_none() {
            let itself = std::env::current_exe().expect("its path");
            let mut again = std::process::Command::new(itself);
            let status =
                again.args(std::env::args_os().skip(1)).env(TUNABLES, "glibc.pthread.rseq=0").status();
            std::process::exit(status.expect("it runs").code().unwrap_or(1));
        }
        hooks::BEFORE_FORK.set(before);
        hooks::FORK_PARENT.set(parent);
        hooks::FORK_CHILD.set(child);
        hooks::THREAD_CREATED.set(thread);
        hooks::BEFORE_EXEC.set(exec);
        hooks::EXEC_FAILED.set(failed);
        hooks::MAPPING.set(mapping);
        hooks::REPORT.set(report);
        hooks::MANAGED.set(managed);
        let page = syscall(9, [0, 4096, 3, 0x22, u64::MAX, 0]) as u64;
        MANAGED_PAGE.store(page >> 12, SeqCst);
        let own = syscall(110, [0; 6]);
        if let Err(error) = dispatch::arm() {
            folioswap_test_support::skipping::note(&format!("the gate cannot be armed: {error:?}"));
            return;
        }

        // A list of positions: rewritten before the first call, which then traps no more.
        let listed = code();
        // SAFETY: nothing executes the page yet.
        assert_eq!(unsafe { rewrite::rewrite_listed(listed + 2) }, State::Rewritten);
        let trapped = figures::TRAPPED.get();
        assert_eq!(run(listed), own + 1);
        // SAFETY: the page is mapped.
        assert_eq!(unsafe { *(listed as *const u8) }, 0xe9);
        assert_eq!(figures::TRAPPED.get(), trapped);
        // Bytes that are no system call are left alone.
        // SAFETY: as above.
        assert_eq!(unsafe { rewrite::rewrite_listed(listed + 7) }, State::Never);
        // A site that is learnt.
        let learnt = code();
        (0..5).for_each(|_| assert_eq!(run(learnt), own + 1));
        let mut seen = Vec::new();
        rewrite::for_each_learnt(|behind| seen.push(behind));
        assert!(seen.contains(&(listed + 2)) && seen.contains(&(learnt + 2)));

        // The same object where it was is rewritten again; another one is executed as it is.
        let rewritten = figures::REWRITTEN.get();
        assert_eq!(code_at(learnt, 1), learnt);
        (0..3).for_each(|_| assert_eq!(run(learnt), own + 1));
        assert_eq!(figures::REWRITTEN.get(), rewritten + 1);
        assert_eq!(code_at(learnt, 2), learnt);
        (0..5).for_each(|_| assert_eq!(run(learnt), own + 2));
        assert_eq!(code_at(listed, 3), listed);
        (0..5).for_each(|_| assert_eq!(run(listed), own + 3));
        // As many bytes as the jump overwrites, and no more: `inc rax`, and then `dec rax`.
        let short = code_of(0, &[0x0f, 0x05, 0x48, 0xff, 0xc0, 0xc3]);
        (0..5).for_each(|_| assert_eq!(run(short), own + 1));
        assert_eq!(code_of(short, &[0x0f, 0x05, 0x48, 0xff, 0xc8, 0xc3]), short);
        (0..5).for_each(|_| assert_eq!(run(short), own - 1));
        let learnt = code();
        (0..5).for_each(|_| assert_eq!(run(learnt), own + 1));

        // Forks, threads, execs, mappings.
        let status = std::process::Command::new("/bin/true").status().expect("it runs");
        assert!(status.success());
        let mut wait = 0i32;
        let process = syscall(57, [0; 6]);
        if process == 0 {
            let right = CHILD.load(SeqCst) == 1 && PARENT.load(SeqCst) == 0 && run(learnt) != own + 1;
            syscall(231, [if right { 7 } else { 8 }, 0, 0, 0, 0, 0]);
        }
        assert_eq!(syscall(61, [process as u64, &raw mut wait as u64, 0, 0, 0, 0]), process);
        assert_eq!(wait, 7 << 8);
        assert_eq!(BEFORE.load(SeqCst), PARENT.load(SeqCst));
        assert_eq!(CHILD.load(SeqCst), 0, "the child's memory is its own");
        let threads = THREADS.load(SeqCst);
        std::thread::spawn(|| assert!(syscall(39, [0; 6]) > 0)).join().expect("it ends");
        assert_eq!(THREADS.load(SeqCst), threads + 1);
        let (execs, fails) = (EXECS.load(SeqCst), FAILED.load(SeqCst));
        assert_eq!(syscall(59, [c"/none/such".as_ptr() as u64, 0, 0, 0, 0, 0]), -2);
        assert_eq!((EXECS.load(SeqCst), FAILED.load(SeqCst)), (execs + 1, fails + 1));
        let mappings = MAPPINGS.load(SeqCst);
        let mapped = syscall(9, [0, 4096, 3, 0x22, u64::MAX, 0]) as u64;
        assert_eq!(syscall(11, [mapped, 4096, 0, 0, 0, 0]), 0);
        assert_eq!(MAPPINGS.load(SeqCst), mappings + 2);

        // What is refused is said.
        assert_eq!(syscall(157, [59, 1, 0, 0, 0, 0]), -16);
        assert_eq!(REPORTS[Incident::OwnDispatch as usize].load(SeqCst), 1);
        assert_eq!(syscall(500, [page, 0, 0, 0, 0, 0]), -38);
        assert_eq!(REPORTS[Incident::UnknownNumber as usize].load(SeqCst), 1);

        holds(page);
        println!("hooks: passed");
    }

    /// A call that waits holds its buffer; an evictor takes the page before it and after it only.
    fn holds(page: u64) {
        let mut pipes = [0i32; 2];
        assert_eq!(syscall(22, [pipes.as_mut_ptr() as u64, 0, 0, 0, 0, 0]), 0);
        let taken = || {
            let page = Pages::around(page, 1).expect("a page");
            pins::HAZARDS.announce(Announcer::First, page);
            let mut taken = 1;
            pins::HAZARDS.for_held(page, |_| taken = 0);
            pins::HAZARDS.withdraw(Announcer::First);
            taken
        };
        assert_eq!(taken(), 1);
        let [reads, writes] = pipes;
        let reader =
            std::thread::spawn(move || assert_eq!(syscall(0, [reads as u64, page, 100, 0, 0, 0]), 3));
        let mut looks = 0;
        while taken() != 0 {
            looks += 1;
            assert!(looks < 10_000, "the reader holds its buffer");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        (0..1000).for_each(|_| assert_eq!(taken(), 0));
        assert_eq!(syscall(1, [writes as u64, c"abc".as_ptr() as u64, 3, 0, 0, 0]), 3);
        reader.join().expect("it ends");
        assert_eq!(taken(), 1);
    }
}

#[cfg(target_arch = "x86_64")]
fn main() {
    armed::main();
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {}
