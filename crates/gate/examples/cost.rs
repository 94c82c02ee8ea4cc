//! What the gate costs: processor time of a call in each state, and of whole programs, natively
//! and through the gate in turn; medians of nine with their range.
//!
//! `cargo build --profile agent -p folioswap-gate-alone`, then
//! `cargo run --release -p folioswap-gate --example cost [OBJECT]`.
#[cfg(target_arch = "x86_64")]
mod measure {
    use std::arch::asm;
    use std::process::{Command, Stdio};

    const ROUNDS: usize = 9;
    const CALLS: u64 = 1_000_000;
    const TRAPPED_CALLS: u64 = 100_000;
    const GETPPID: u64 = 110;
    const GETRUSAGE: u64 = 98;
    const CHILDREN: u64 = -1i64 as u64;

    fn syscall(number: u64, a: u64, b: u64) -> u64 {
        let answer;
        // SAFETY: getppid has no arguments; getrusage writes into the buffer below.
        unsafe {
            asm!("syscall", "add r8, 0", inlateout("rax") number => answer, in("rdi") a, in("rsi") b,
                lateout("rcx") _, lateout("r11") _, out("r8") _);
        }
        answer
    }

    /// Nanoseconds of processor time of this process, or of its children that have ended.
    fn used_ns(whose: u64) -> f64 {
        let mut usage = [0i64; 18];
        syscall(GETRUSAGE, whose, usage.as_mut_ptr() as u64);
        (usage[0] + usage[2]) as f64 * 1e9 + (usage[1] + usage[3]) as f64 * 1e3
    }

    /// In the child: prints nanoseconds a call.
    pub fn call(calls: u64) {
        for _ in 0..100 {
            syscall(GETPPID, 0, 0);
        }
        let before = used_ns(0);
        for _ in 0..calls {
            syscall(GETPPID, 0, 0);
        }
        println!("{}", (used_ns(0) - before) / calls as f64);
    }

    struct Way {
        name: &'static str,
        options: Option<&'static str>,
    }

    const WAYS: [Way; 5] = [
        Way { name: "native", options: None },
        Way { name: "rewritten", options: Some("") },
        Way { name: "rewritten, holding", options: Some("hold") },
        Way { name: "trapped", options: Some("no-rewriting") },
        Way { name: "at once", options: Some("at-once") },
    ];

    fn through(way: &Way, object: &str, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(options) = way.options {
            command
                .env("LD_PRELOAD", object)
                .env("FOLIOSWAP_GATE", options)
                .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        }
        command
    }

    fn show(name: &str, unit: &str, mut values: Vec<f64>) {
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        println!("  {name:<20} {:>9.1} {unit} ({least:.1} to {most:.1})", values[values.len() / 2]);
    }

    pub fn all(object: &str) {
        let own = std::env::current_exe().expect("a path");
        let own = own.to_str().expect("UTF-8");
        println!("getppid");
        let mut values: Vec<Vec<f64>> = WAYS.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (way, values) in WAYS.iter().zip(&mut values) {
                let calls = if way.name == "trapped" { TRAPPED_CALLS } else { CALLS };
                let output =
                    through(way, object, own).args(["call", &calls.to_string()]).output().expect("it runs");
                values.push(String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number"));
            }
        }
        for (way, values) in WAYS.iter().zip(values) {
            show(way.name, "ns", values);
        }
        for (name, script) in [
            ("find /usr/share", "find /usr/share > /dev/null"),
            ("tar of /usr/share/doc", "tar cf - /usr/share/doc 2> /dev/null | cat > /dev/null"),
            ("dd bs=512, 400 000 calls", "dd if=/dev/zero of=/dev/null bs=512 count=200000 2> /dev/null"),
            ("gcc -O1, one file", "echo 'int main(void) { return 0; }' | gcc -O1 -x c -c -o /dev/null -"),
            ("200 exec", "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i + 1)); done"),
        ] {
            println!("{name}");
            let mut values: Vec<Vec<f64>> = WAYS.iter().map(|_| Vec::new()).collect();
            for _ in 0..ROUNDS {
                for (way, values) in WAYS.iter().zip(&mut values) {
                    let before = used_ns(CHILDREN);
                    let status = through(way, object, "/bin/sh")
                        .args(["-c", script])
                        .stdin(Stdio::null())
                        .status()
                        .expect("it runs");
                    assert!(status.success(), "{name}");
                    values.push((used_ns(CHILDREN) - before) / 1e6);
                }
            }
            for (way, values) in WAYS.iter().zip(values) {
                show(way.name, "ms", values);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("call") => measure::call(arguments[2].parse().expect("a number")),
        object => measure::all(object.unwrap_or("target/agent/libfolioswap_gate_alone.so")),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {}
