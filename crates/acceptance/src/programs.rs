//! Finds and makes the programs that the tests run.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// Looks a program up in `$PATH`. A name with a slash is taken as a path.
pub fn which(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).exists().then(|| name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(name)).find(|file| file.is_file())
}

/// Cargo's output directory of this profile, for example `target/release`.
pub fn output_directory() -> PathBuf {
    let me = std::env::current_exe().expect("own path");
    let mut directory = me.parent().expect("a directory").to_path_buf();
    if directory.file_name().is_some_and(|name| name == "deps") {
        directory.pop();
    }
    directory
}

/// The command under test: `$FOLIOSWAP_BIN`, or the binary that `cargo build -p folioswap-cli` put
/// beside the tests.
///
/// # Panics
/// When the binary is missing: tests of a command that was not built must not pass.
pub fn folioswap() -> PathBuf {
    let path =
        std::env::var_os("FOLIOSWAP_BIN").map_or_else(|| output_directory().join("folioswap"), PathBuf::from);
    assert!(
        path.is_file(),
        "{} does not exist: build it with `cargo build -p folioswap-cli` (same profile), or set FOLIOSWAP_BIN",
        path.display()
    );
    path
}

/// Runs `folioswap` with these arguments to its end.
pub fn run_folioswap<S: AsRef<OsStr>>(words: &[S]) -> Output {
    Command::new(folioswap()).args(words).output().expect("folioswap can be run")
}

/// Asserts that a command ended with this status and one message that contains each of the words,
/// in any case.
#[track_caller]
pub fn refused(output: &Output, status: i32, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert!(!text.trim().is_empty(), "no message");
    assert!(!text.contains("panicked") && !text.contains("RUST_BACKTRACE"), "{text}");
    let lower = text.to_lowercase();
    for word in words {
        assert!(lower.contains(&word.to_lowercase()), "{word:?} is missing in: {text}");
    }
}

/// A copy of folioswap that every user may execute, removed on drop. The tree itself may lie where
/// others may not look.
pub struct ForEverybody(PathBuf);

impl ForEverybody {
    /// Makes the copy; `name` tells the tests of a process apart.
    ///
    /// # Panics
    /// When there is no room for it.
    pub fn new(name: &str) -> Self {
        let copy = ForEverybody(format!("/var/tmp/folioswap-acc-{name}-{}.copy", std::process::id()).into());
        fs::copy(folioswap(), &copy.0).expect("copied");
        fs::set_permissions(&copy.0, fs::Permissions::from_mode(0o755)).expect("chmod");
        copy
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ForEverybody {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// The directory of this crate.
pub fn crate_directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles `c/NAME.c` with the system's C compiler and returns the program. `flags` are added to
/// the command line; `suffix` tells programs apart that are compiled with different flags.
///
/// # Panics
/// When the compiler is missing or reports an error. Rust itself needs the compiler for linking.
pub fn c_program(name: &str, suffix: &str, flags: &[&str]) -> PathBuf {
    c_program_by("cc", name, suffix, flags)
}

/// The same by another C compiler.
///
/// # Panics
/// As [`c_program`].
pub fn c_program_by(compiler: &str, name: &str, suffix: &str, flags: &[&str]) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let source = crate_directory().join("c").join(format!("{name}.c"));
    let place = output_directory().join("acceptance-c");
    std::fs::create_dir_all(&place).expect("output directory");
    let program = place.join(format!("{name}{suffix}"));
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified());
    let shared = crate_directory().join("c/check.h");
    if let (Ok(made), Ok(source), Ok(shared)) = (changed(&program), changed(&source), changed(&shared))
        && made > source.max(shared)
    {
        return program;
    }
    let fresh = place.join(format!("{name}{suffix}.{}", std::process::id()));
    let output = Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-D_GNU_SOURCE", "-o"])
        .args([fresh.as_os_str(), source.as_os_str()])
        .args(flags)
        .output()
        .expect("the compiler can be run");
    assert!(
        output.status.success(),
        "{compiler} {name}.c: {}, {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&fresh, &program).expect("rename");
    program
}

/// Compiles `go/NAME.go` and returns the program, which others may execute; `cgo` is the value of
/// CGO_ENABLED.
///
/// # Panics
/// When Go is missing or reports an error.
pub fn go_program(name: &str, suffix: &str, cgo: &str) -> PathBuf {
    let place = output_directory().join("acceptance-go");
    std::fs::create_dir_all(&place).expect("output directory");
    let program = place.join(format!("{name}{suffix}"));
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program);
    if cgo == "1" {
        // What needs no C is static even then.
        go.arg("-ldflags=-linkmode=external");
    }
    let source = crate_directory().join("go").join(format!("{name}.go"));
    let output = go.arg(source).env("CGO_ENABLED", cgo).env("GOCACHE", place.join("cache")).output();
    let output = output.expect("go can be run");
    assert!(output.status.success(), "go {name}.go: {}", String::from_utf8_lossy(&output.stderr));
    program
}
