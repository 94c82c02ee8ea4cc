//! Programs of this machine, natively and through the gate: their output must not differ by a byte.
#![cfg(target_arch = "x86_64")]

mod common;

use common::same_through_the_gate;
use folioswap_test_support::skipping;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory of the test's own, emptied.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gate-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

fn is_installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|path| path.join(program).exists()));
    if !found {
        skipping::note(&format!("{program} is not installed"));
    }
    found
}

/// Runs a script of `sh` in a fresh directory each time.
fn check(name: &str, needs: &[&str], script: &str) {
    if !needs.iter().all(|program| is_installed(program)) {
        return;
    }
    if !common::is_dispatched() {
        return;
    }
    same_through_the_gate(&common::QUIET_WAYS, || {
        let directory = scratch(name);
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).current_dir(directory).env("LC_ALL", "C");
        command
    });
    let _ = std::fs::remove_dir_all(scratch(name));
}

#[test]
fn python() {
    check(
        "python",
        &["python3"],
        r#"python3 -c '
import hashlib, os, subprocess, threading, signal, tempfile
def work(n, out):
    h = hashlib.sha256()
    for i in range(200): h.update(bytes([n, i & 255]) * 997)
    out[n] = h.hexdigest()
out = {}
threads = [threading.Thread(target=work, args=(n, out)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(out.items()))
ticks = []
signal.signal(signal.SIGALRM, lambda *a: ticks.append(1)); signal.setitimer(signal.ITIMER_REAL, .001, .001)
with tempfile.TemporaryFile() as f:
    for i in range(2000): f.write(str(i).encode())
    f.seek(0); print(hashlib.md5(f.read()).hexdigest())
signal.setitimer(signal.ITIMER_REAL, 0)
for i in range(5): print(subprocess.run(["sh", "-c", f"echo {i}; exit {i}"], capture_output=True))
p = os.fork()
if p == 0: os._exit(len(out))
print(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))
'"#,
    );
}

#[test]
fn perl_and_sort() {
    check(
        "perl",
        &["perl", "sort"],
        r#"perl -e '
my $x = 7; for (1..60000) { $x = ($x * 1103515245 + 12345) % 2147483648; print "$x\n" } ' > numbers
sort -S 1M --parallel=2 -n numbers | sha256sum; sort -u numbers | wc -l
perl -e 'open(F, "-|", "ls"); print while <F>; $SIG{ALRM} = sub { print "alarm\n"; exit 3 }; alarm 1; sleep 9'; echo $?"#,
    );
}

#[test]
fn bash_find_and_tar() {
    check(
        "tar",
        &["bash", "find", "tar"],
        r#"bash -c '
for i in {1..30}; do mkdir -p d$((i % 5)); (echo $i; ls) > d$((i % 5))/f$i; done
find . -type f | sort | wc -l; tar --sort=name --mtime=@0 --owner=0 --group=0 -cf - d0 d1 | sha256sum
tar cf - . | (mkdir ../o$$; cd ../o$$; tar xf -; find . | sort | sha256sum; cd ..; rm -rf o$$)
trap "echo caught" USR1; kill -USR1 $$; coproc cat; echo hello >&${COPROC[1]}; read -u ${COPROC[0]} line; echo $line
kill $COPROC_PID; wait 2>/dev/null; echo {a..e} | xargs -n1 -P3 sh -c "exit 0"; echo done'"#,
    );
}

#[test]
fn gcc_and_make() {
    check(
        "gcc",
        &["gcc", "make"],
        r#"for i in 1 2 3; do echo "int f$i(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * $i; return s; }" > f$i.c; done
printf 'all: f1.o f2.o f3.o\n\tcat f1.o f2.o f3.o | sha256sum\n%%.o: %%.c\n\t@gcc -O2 -c $< -o $@\n' > Makefile; make -s -j2"#,
    );
}

#[test]
fn sqlite() {
    check(
        "sqlite",
        &["sqlite3"],
        r#"sqlite3 a.db "pragma journal_mode=wal; create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) insert into t select i, hex(i * 7919) from n; create index x on t(b); select count(*), sum(a), max(b) from t; vacuum;"; sqlite3 a.db .dump | sha256sum"#,
    );
}

#[test]
fn node() {
    check(
        "node",
        &["node"],
        r#"node -e '
const a = []; for (let i = 0; i < 100000; i++) a.push({ i, s: String(i) });
console.log(a.length, JSON.stringify(a).length);
require("child_process").execFile("echo", ["child"], (e, out) => {
  console.log(out);
  require("fs").readFile("/proc/self/comm", "utf8", (e, t) => console.log(t.length > 0));
});'"#,
    );
}

#[test]
fn java() {
    check("java", &["java"], "java -Xshare:auto -Xmx64m -version 2>&1 | grep -v Picked");
}

#[test]
fn git() {
    check(
        "git",
        &["git"],
        r#"export GIT_AUTHOR_DATE=@0 GIT_COMMITTER_DATE=@0 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a HOME=.
git init -q a 2>/dev/null; cd a; for i in 1 2 3 4 5; do echo $i > f$i; git add .; git commit -qm $i; done; git gc -q; cd ..
git clone -q a b 2>&1; cd b; git log --format=%H; git fsck 2>&1; ls"#,
    );
}

#[test]
fn redis() {
    check(
        "redis",
        &["redis-server", "redis-cli"],
        r#"redis-server --port 0 --unixsocket "$PWD/s" --save '' --daemonize no > log & p=$!
i=0; while [ ! -S s ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i + 1)); done
j=0; while [ $j -lt 300 ]; do echo "SET k$j v$j"; echo "INCR n"; j=$((j + 1)); done | redis-cli -s s | tail -1
redis-cli -s s dbsize; redis-cli -s s shutdown nosave; wait $p; echo $?"#,
    );
}
