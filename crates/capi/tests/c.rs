//! The header is generated from the sources. A program in C and one in C++ build against the
//! installed library and run, and so do two copies of the library in one process.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// `FOLIOSWAP_HEADER=write` rewrites the header.
#[test]
fn the_header_is_not_stale() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(here(), config).unwrap().write(&mut made);
    let path = here().join("include/folioswap.h");
    if std::env::var_os("FOLIOSWAP_HEADER").is_some_and(|wish| wish == "write") {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read(&path).unwrap_or_default();
    assert!(
        committed == made,
        "crates/capi/include/folioswap.h is stale: FOLIOSWAP_HEADER=write cargo test -p folioswap-capi --test c header"
    );
}

/// A directory that is removed with its test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn is_there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        folioswap_test_support::skipping::note(&format!("no {program} for the C API"));
    }
    there
}

/// Installs the library that was built for this test, below `root`.
fn install(root: &Path) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut make = Command::new("make");
    make.arg("-s")
        .arg("-C")
        .arg(here())
        .args(["install", "PREFIX=/usr"])
        .arg(format!("DESTDIR={}", root.display()));
    // Cargo's variables about the package of a test must not reach a cargo below it: build scripts
    // that look at them (ring's looks at OUT_DIR) would run again, and every crate that depends on
    // theirs would be built again.
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "OUT_DIR"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|start| name.starts_with(start))) {
            make.env_remove(name);
        }
    }
    run(make.env("CARGO_TARGET_DIR", target));
}

#[test]
fn a_program_in_c_and_one_in_cpp_build_against_what_is_installed_and_run() {
    if !is_there("make") || !is_there("gcc") {
        return;
    }
    let root = Scratch(std::env::temp_dir().join(format!("folioswap-capi-{}", std::process::id())));
    install(&root.0);
    let (include, lib) = (root.0.join("usr/include"), root.0.join("usr/lib"));
    for file in ["lib/libfolioswap.so.0", "lib/libfolioswap.a", "share/man/man3/folioswap.3"] {
        assert!(root.0.join("usr").join(file).exists(), "{file}");
    }
    let pc = std::fs::read_to_string(lib.join("pkgconfig/folioswap.pc")).unwrap();
    assert!(pc.contains("libdir=/usr/lib\n") && !pc.contains('@'), "{pc}");
    let version = format!("set(PACKAGE_VERSION \"{}\")", env!("CARGO_PKG_VERSION"));
    let cmake = |name: &str| std::fs::read_to_string(lib.join("cmake/folioswap").join(name)).unwrap();
    assert!(cmake("folioswap-config-version.cmake").contains(&version));
    let config = cmake("folioswap-config.cmake");
    assert!(config.contains("/../../../include\"") && !config.contains('@'), "{config}");
    let libs = pc.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    let shared = vec!["-lfolioswap"];
    let archive: Vec<_> = ["-l:libfolioswap.a"].into_iter().chain(libs.split_whitespace()).collect();
    let builds: [(&str, &[&str], &[&str]); 4] = [
        ("gcc", &["-std=c99", "-pedantic"], &shared),
        ("gcc", &["-std=c99", "-pedantic"], &archive),
        ("g++", &["-xc++", "-std=c++11"], &shared),
        ("gcc", &["-std=c99", "-fsanitize=address,undefined", "-fno-sanitize-recover"], &shared),
    ];
    for (number, (compiler, options, libraries)) in builds.into_iter().enumerate() {
        if !is_there(compiler) {
            continue;
        }
        for (name, said) in [("sort", "sorted\n"), ("objects", "kept\n")] {
            let program = root.0.join(format!("{name}-{number}"));
            let mut compile = Command::new(compiler);
            compile
                .args(["-O1", "-Wall", "-Wextra", "-Werror"])
                .args(options)
                .arg(here().join("examples").join(name).with_extension("c"));
            compile.args([
                "-xnone".into(),
                format!("-I{}", include.display()),
                format!("-L{}", lib.display()),
            ]);
            run(compile.args(libraries).arg("-o").arg(&program));
            let output = run(Command::new(&program).env("LD_LIBRARY_PATH", &lib));
            assert_eq!(output, said, "{name}.c, {compiler} {options:?}");
        }
    }
}

/// The values of the C++ header free what they hold.
#[test]
fn a_program_with_the_cpp_header_builds_and_runs() {
    if !is_there("make") || !is_there("g++") {
        return;
    }
    let root = Scratch(std::env::temp_dir().join(format!("folioswap-capi-cpp-{}", std::process::id())));
    install(&root.0);
    let (include, lib) = (root.0.join("usr/include"), root.0.join("usr/lib"));
    for (standard, sanitize) in [("c++11", "-g"), ("c++20", "-fsanitize=address,undefined")] {
        let program = root.0.join(standard);
        let mut compile = Command::new("g++");
        compile
            .args(["-O1", "-Wall", "-Wextra", "-Werror", sanitize, &format!("-std={standard}")])
            .arg(here().join("examples/raii.cpp"))
            .args([format!("-I{}", include.display()), format!("-L{}", lib.display())]);
        run(compile.args(["-lfolioswap", "-o"]).arg(&program));
        assert_eq!(run(Command::new(&program).env("LD_LIBRARY_PATH", &lib)), "values\n", "{standard}");
    }
}

/// The case is a program two of whose plugins each bring the library along.
#[test]
fn two_copies_in_one_process_do_not_disturb_each_other() {
    if !is_there("make") || !is_there("gcc") {
        return;
    }
    let root = Scratch(std::env::temp_dir().join(format!("folioswap-capi-twice-{}", std::process::id())));
    install(&root.0);
    let (include, lib) = (root.0.join("usr/include"), root.0.join("usr/lib"));
    let copies = [lib.join("libfolioswap.so.0"), lib.join("libanother.so")];
    std::fs::copy(&copies[0], &copies[1]).unwrap();
    let program = root.0.join("twice");
    let mut compile = Command::new("gcc");
    compile.args(["-O1", "-Wall", "-Wextra", "-Werror"]).arg(here().join("tests/twice.c"));
    run(compile.arg(format!("-I{}", include.display())).args(["-ldl", "-lpthread", "-o"]).arg(&program));
    assert_eq!(run(Command::new(&program).args(&copies)), "both\n");
}

/// Builds a program of the tests against the installed library; returns a command that runs it as a
/// user without privilege. None: that cannot be done here.
fn by_ordinary_user(root: &Scratch, name: &str) -> Option<impl Fn() -> Command> {
    if !is_there("make") || !is_there("gcc") {
        return None;
    }
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        folioswap_test_support::skipping::note("only root can give up its privilege");
        return None;
    }
    install(&root.0);
    let (include, lib) = (root.0.join("usr/include"), root.0.join("usr/lib"));
    let program = root.0.join(name);
    let mut compile = Command::new("gcc");
    compile
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"])
        .arg(here().join("tests").join(name).with_extension("c"))
        .args([format!("-I{}", include.display()), format!("-L{}", lib.display())]);
    run(compile.args(["-lfolioswap", "-lpthread", "-o"]).arg(&program));
    Some(move || {
        let mut command = Command::new("timeout");
        command.arg("100").arg(&program).env("LD_LIBRARY_PATH", &lib).current_dir("/").uid(65534).gid(65534);
        command
    })
}

/// System calls work on a region for a user without privilege, and whatever leaves them.
#[test]
fn calls_of_an_ordinary_user_are_served() {
    let root = Scratch(std::env::temp_dir().join(format!("folioswap-capi-gate-{}", std::process::id())));
    let Some(program) = by_ordinary_user(&root, "gate") else { return };
    assert_eq!(run(&mut program()), "served\n");
}

/// Where a thread is cancelled in a call, its caller is found from each instruction of the gate.
#[test]
fn a_call_can_be_unwound_at_each_instruction() {
    let root = Scratch(std::env::temp_dir().join(format!("folioswap-capi-steps-{}", std::process::id())));
    let Some(program) = by_ordinary_user(&root, "stepping") else { return };
    assert_eq!(run(&mut program()), "stepped\n");
}

/// The C library's calls are changed whatever the other threads do at that moment.
#[test]
fn the_first_swap_may_be_made_at_any_moment() {
    let root = Scratch(std::env::temp_dir().join(format!("folioswap-capi-stand-{}", std::process::id())));
    let Some(program) = by_ordinary_user(&root, "standing") else { return };
    for case in ["below", "once", "many", "within", "leader", "kernel", "vfork", "blocks"] {
        assert_eq!(run(program().arg(case)), "stood\n", "{case}");
    }
}
