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
    let directory = crate_directory().join("c");
    let source = directory.join(format!("{name}.c"));
    made_of(&[&source, &directory.join("check.h")], "acceptance-c", &format!("{name}{suffix}"), |fresh| {
        let mut command = Command::new(compiler);
        command
            .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-D_GNU_SOURCE", "-o"])
            .args([fresh, &source])
            .args(flags);
        command
    })
}

/// The program of this name in a directory beside the tests. Where it is not newer than its
/// sources, a command makes it in the place that it is told.
fn made_of(sources: &[&Path], place: &str, name: &str, command: impl Fn(&Path) -> Command) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let place = output_directory().join(place);
    fs::create_dir_all(&place).expect("output directory");
    let program = place.join(name);
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if let Some(made) = changed(&program)
        && sources.iter().all(|source| changed(source).is_some_and(|source| made > source))
    {
        return program;
    }
    let fresh = place.join(format!("{name}.{}", std::process::id()));
    let output = command(&fresh).output().expect("the compiler can be run");
    assert!(
        output.status.success(),
        "{}: {}, {}",
        sources[0].display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&fresh, &program).expect("rename");
    program
}

/// How a Rust program is linked with musl.
#[derive(Clone, Copy, Debug)]
pub enum Musl {
    /// In itself, wherever it is put.
    StaticPie,
    /// In itself, at the place that it wants.
    Static,
    /// With musl's own linker at run time.
    Dynamic,
}

impl Musl {
    /// All of them.
    pub const ALL: [Musl; 3] = [Musl::StaticPie, Musl::Static, Musl::Dynamic];
    /// Rust's name of the target.
    pub const TARGET: &str = "x86_64-unknown-linux-musl";

    /// Rust's standard library for it, if it is installed.
    pub fn library() -> Option<PathBuf> {
        let output =
            Command::new("rustc").args(["--print", "target-libdir", "--target", Self::TARGET]).output();
        let directory = PathBuf::from(String::from_utf8(output.ok()?.stdout).ok()?.trim());
        directory.join("self-contained").is_dir().then_some(directory)
    }
}

/// Compiles `rust/NAME.rs` for musl and returns the program.
///
/// # Panics
/// When Rust's standard library for musl is missing, or the compiler reports an error.
pub fn rust_program(name: &str, linked: Musl) -> PathBuf {
    let library = Musl::library().expect("Rust's standard library for musl");
    let source = crate_directory().join("rust").join(format!("{name}.rs"));
    made_of(&[&source], "acceptance-rust", &format!("{name}-{linked:?}").to_lowercase(), |fresh| {
        let mut command = Command::new("rustc");
        command.args(["--edition", "2024", "-O", "-g", "-D", "warnings", "--target", Musl::TARGET, "-o"]);
        command.args([fresh, &source]);
        match linked {
            Musl::StaticPie => {}
            Musl::Static => drop(command.args(["-C", "relocation-model=static"])),
            Musl::Dynamic => {
                // The system's libgcc_s wants glibc. The unwinder of static programs does not.
                let place = fresh.parent().expect("a directory");
                let unwinder = library.join("self-contained/libunwind.a");
                fs::copy(unwinder, place.join("libgcc_s.a")).expect("copied");
                command.args(["-C", "target-feature=-crt-static", "-C", "linker=musl-gcc"]);
                command.args(["-C", "link-self-contained=no", "-L"]).arg(place);
            }
        }
        command
    })
}

/// Compiles `go/NAME.go` and returns the program, which others may execute; `cgo` is the value of
/// CGO_ENABLED.
///
/// # Panics
/// When Go is missing or reports an error.
pub fn go_program(name: &str, suffix: &str, cgo: &str) -> PathBuf {
    let mut go = Command::new("go");
    go.arg("build");
    if cgo == "1" {
        // What needs no C is static even then.
        go.arg("-ldflags=-linkmode=external");
    }
    let source = crate_directory().join("go").join(format!("{name}.go"));
    go_made(go, &format!("{name}{suffix}"), source.as_os_str(), cgo)
}

/// Compiles the tests of a package of Go's standard library, as a static program, which others
/// may execute. Returns it with the directory that it runs in.
///
/// # Panics
/// When Go is missing or reports an error.
pub fn go_tests(package: &str) -> (PathBuf, PathBuf) {
    let output = Command::new("go").args(["env", "GOROOT"]).output().expect("go can be run");
    let root = String::from_utf8(output.stdout).expect("text");
    let directory = Path::new(root.trim()).join("src").join(package);
    let mut go = Command::new("go");
    go.args(["test", "-c"]).current_dir(&directory);
    let name = format!("{}.test", package.replace('/', "-"));
    (go_made(go, &name, package.as_ref(), "0"), directory)
}

/// Has Go make a program of this name from its source.
fn go_made(mut go: Command, name: &str, source: &OsStr, cgo: &str) -> PathBuf {
    let place = output_directory().join("acceptance-go");
    std::fs::create_dir_all(&place).expect("output directory");
    let program = place.join(name);
    go.arg("-o").arg(&program).arg(source).env("CGO_ENABLED", cgo).env("GOCACHE", place.join("cache"));
    let output = go.output().expect("go can be run");
    assert!(output.status.success(), "go {name}: {}", String::from_utf8_lossy(&output.stderr));
    program
}
