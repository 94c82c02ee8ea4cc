//! Real work on a mount of folioswap whose contents are four times its memory limit, beside the
//! same work on the kernel's tmpfs: the results are the same to the byte.
//!
//! The suites `fsx` and `pjdfstest` run where they are installed: `scripts/tmpfs-suites.sh`
//! installs and runs them.

use folioswap_acceptance::{MIB, mount, mount::Mount, need, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A limit of 32 MiB; each job below leaves four times as much behind.
const LIMIT: [&str; 4] = ["--memory", "32M", "--size", "2G"];

macro_rules! needs_fuse {
    () => {
        if let Some(reason) = mount::missing() {
            skip!("{reason}");
        }
    };
}

/// A tmpfs of the kernel, to compare with.
struct Kernel(PathBuf);

impl Kernel {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/var/tmp/folioswap-acc-kernel-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("mkdir");
        let kernel = Kernel(path);
        run(Path::new("/"), &format!("mount -t tmpfs -o size=2G folioswap-acc {}", kernel.0.display()));
        kernel
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
        drop(fs::remove_dir(&self.0));
    }
}

/// Runs a shell script in a directory and returns its output.
#[track_caller]
fn run(directory: &Path, script: &str) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(directory)
        .env("LC_ALL", "C")
        .env("HOME", directory)
        .stdin(Stdio::null())
        .output()
        .expect("bash");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {}\n{out}\n{error}", output.status);
    out.into_owned()
}

/// Runs the same script on both, and compares the outputs.
#[track_caller]
fn same(name: &str, huge: &str, script: &str) {
    let kernel = Kernel::new(name);
    let expected = run(&kernel.0, script);
    assert!(!expected.trim().is_empty(), "it prints nothing to compare");
    drop(kernel);
    let mount = Mount::new(name, &[&LIMIT[..], &["--huge", huge]].concat());
    let found = run(mount.path(), script);
    let figures = mount.figures();
    println!("{name}, huge={huge}: {figures:?}");
    assert_eq!(found, expected, "huge={huge}");
    let contents = figures["content"];
    assert!(contents >= 4 * 32 * MIB, "only {contents} bytes of contents");
}

/// Prints every file's name, mode, size and contents.
const SUM: &str =
    "find . -type f -printf '%p %m %s\\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum";

#[test]
fn a_project_is_unpacked_and_built() {
    needs_fuse!();
    need!("gcc", "make", "tar");
    // A project of 24 files and some data, packed outside the mount.
    let place = PathBuf::from(format!("/var/tmp/folioswap-acc-project-{}", std::process::id()));
    fs::create_dir_all(&place).expect("mkdir");
    run(
        &place,
        r#"
        mkdir p; cd p
        for i in $(seq 24); do
            { echo '#include <stdio.h>'; for j in $(seq 60); do echo "int f${i}_$j(int x) { for (int k = 0; k < x; k++) x ^= k * $j + $i; return x; }"; done; } > f$i.c
        done
        { for i in $(seq 24); do echo "int f${i}_7(int);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;'
          for i in $(seq 24); do echo "s += f${i}_7($i);"; done; echo 'printf("%d\n", s); return 0; }'; } > main.c
        printf 'program: main.o %s\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -O1 -c -o $@ $<\n' "$(seq -s ' ' -f 'f%g.o' 24)" > Makefile
        for i in $(seq 23); do seq $((i * 1000)) $((i * 1000 + 850000)) > data$i; done
        cd ..; tar czf p.tar.gz p; rm -r p"#,
    );
    let script = format!("tar xzf {}/p.tar.gz; cd p; make -s -j4; ./program; {SUM}", place.display());
    same("build", "never", &script);
    drop(fs::remove_dir_all(&place));
}

#[test]
fn a_database_keeps_its_rows() {
    needs_fuse!();
    need!("sqlite3");
    same(
        "sqlite",
        "always",
        r#"
        sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(k INTEGER PRIMARY KEY, h TEXT, v TEXT);' > /dev/null
        for part in 0 1; do
            sqlite3 -cmd '.timeout 60000' db "BEGIN; WITH RECURSIVE n(i) AS (SELECT $part*50000+1 UNION ALL SELECT i+1 FROM n WHERE i<$part*50000+50000)
                INSERT INTO t SELECT i, hex(i*2654435761), printf('%01200d', i*7919) FROM n; COMMIT;" &
        done; wait
        sqlite3 db 'CREATE INDEX th ON t(h);' &
        sqlite3 -cmd '.timeout 60000' db 'SELECT count(*), sum(length(v)) FROM t;' > /dev/null; wait
        sqlite3 -cmd '.timeout 60000' db 'UPDATE t SET v = v || k WHERE k % 3 = 0; DELETE FROM t WHERE k % 7 = 0; PRAGMA wal_checkpoint(TRUNCATE);' > /dev/null
        sqlite3 db 'PRAGMA integrity_check; SELECT count(*), sum(k), sum(length(v)), max(h) FROM t;'
        sqlite3 db 'SELECT * FROM t ORDER BY h;' | sha256sum"#,
    );
}

#[test]
fn a_repository_is_cloned_and_collected() {
    needs_fuse!();
    need!("git");
    same(
        "git",
        "never",
        r#"
        export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
        git config --global user.name n; git config --global user.email n@n; git config --global init.defaultBranch main; git config --global gc.auto 0
        git init -q one; cd one
        for commit in 1 2 3; do
            for i in $(seq 50); do seq $((commit * i)) $((commit * i + 120000)) > file$i; done
            git add -A; git commit -qm "$commit"
        done
        cd ..; git clone -q --no-local one two; git clone -q one three; cd two; git gc -q; git fsck --full 2>&1 | grep -v '^dangling' || true
        git log --format='%H %T'; git count-objects -v | grep -E 'in-pack|garbage'; git checkout -q HEAD~1; cd ..
        find two -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum"#,
    );
}

#[test]
fn copies_there_and_back_are_the_same() {
    needs_fuse!();
    need!("rsync");
    same(
        "rsync",
        "always",
        &format!(
            r#"
        mkdir a; for i in $(seq 10); do seq $((i * 7)) $((i * 7 + 700000)) > a/f$i; done
        mkdir -p a/deep/er; cp a/f1 a/deep/er; ln a/f2 a/hard; ln -s f3 a/soft; chmod 751 a/f4; touch -d '1999-12-31 23:59:59.123456789' a/f5; truncate -s 50M a/sparse
        rsync -aHS a/ b/; rsync -aHSc --delete b/ c/; diff -r --no-dereference a c; stat -c '%n %a %s %h %b' c/f4 c/hard c/sparse; stat -c %y c/f5
        cp -a c d; mv d e; rm -r c; {SUM}"#
        ),
    );
}

#[test]
fn fio_verifies() {
    needs_fuse!();
    need!("fio");
    for (huge, jobs) in [
        ("never", [("psync", "randwrite"), ("mmap", "randwrite")]),
        ("always", [("psync", "write"), ("mmap", "randwrite")]),
    ] {
        let mount = Mount::new(&format!("fio-{huge}"), &[&LIMIT[..], &["--huge", huge]].concat());
        for (engine, pattern) in jobs {
            let said = run(
                mount.path(),
                &format!(
                    "fio --name=v --filename=f-{engine}-{pattern} --size=64M --bsrange=4k-256k --rw={pattern} --ioengine={engine} --verify=crc32c --verify_fatal=1 \
                 --buffer_compress_percentage=50 --randseed=7 --numjobs=1 --thread --output-format=terse --terse-version=3"
                ),
            );
            assert!(said.lines().any(|line| line.split(';').nth(4) == Some("0")), "{said}");
        }
        assert!(mount.figures()["content"] >= 128 * MIB, "{:?}", mount.figures());
    }
}

/// The path of a program of the suites, where it is installed.
fn suite(name: &str) -> Option<PathBuf> {
    let place = std::env::var_os("FOLIOSWAP_TMPFS_SUITES").map(PathBuf::from)?;
    Some(place.join("bin").join(name)).filter(|path| path.is_file())
}

#[test]
fn the_file_system_exerciser_finds_nothing() {
    needs_fuse!();
    let Some(fsx) = suite("fsx") else { return println!("fsx is not installed: scripts/tmpfs-suites.sh") };
    let mount = Mount::new("fsx", &LIMIT);
    let settings = mount.path().with_extension("fsx.toml");
    fs::write(&settings, "flen = 20000000\nnomsyncafterwrite = true\n[opsize]\nmax = 200000\nalign = 1\n[weights]\nclose_open = 1\ninvalidate = 5\n\
        truncate = 10\nfsync = 2\nfdatasync = 2\nposix_fallocate = 5\npunch_hole = 5\ncopy_file_range = 5\nsendfile = 5\n").expect("write");
    let commands: Vec<_> = (1..=6)
        .map(|seed| {
            format!(
                "{} -f {} -N 3000 -S {seed} -P /var/tmp f{seed} & p{seed}=$!;",
                fsx.display(),
                settings.display()
            )
        })
        .collect();
    let waits: Vec<_> = (1..=6).map(|seed| format!("wait $p{seed};")).collect();
    let said = run(mount.path(), &format!("{} {}", commands.concat(), waits.concat()));
    drop(fs::remove_file(settings));
    assert_eq!(said.matches("A-OK").count(), 6, "{said}");
}

#[test]
fn the_posix_suite_says_the_same_as_on_tmpfs() {
    needs_fuse!();
    let Some(suite) = suite("pjdfstest") else {
        return println!("pjdfstest is not installed: scripts/tmpfs-suites.sh");
    };
    let (kernel, mount) = (Kernel::new("posix"), Mount::new("posix", &LIMIT));
    let settings = mount.path().with_extension("pjdfstest.toml");
    fs::write(&settings, "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n[settings]\nnaptime = 0.01\nallow_remount = false\n\
        [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"games\", \"games\"]]\n").expect("write");
    let results = [&kernel.0, mount.path()].map(|path| {
        let said = run(
            Path::new("/"),
            &format!("{} -c {} -p {} || true", suite.display(), settings.display(), path.display()),
        );
        let mut lines: Vec<_> = said
            .lines()
            .filter(|line| line.contains("::") || line.starts_with("Summary"))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    });
    drop(fs::remove_file(settings));
    assert!(results[1].iter().any(|line| line.contains("Summary: 0 failed")), "{:#?}", results[1]);
    assert_eq!(results[0], results[1]);
}
