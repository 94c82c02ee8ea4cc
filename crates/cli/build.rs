//! Builds the agent by its own profile and leaves its path to `src/agent.rs`, which embeds it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The crates that the agent is made of, below `crates/`: a change of one rebuilds the agent.
const SOURCES: &[&str] =
    &["agent", "gate", "pager", "policy", "space", "slots", "devices", "nbd", "group", "trace"];

/// The C flags of the zstd library in the agent. They leave out:
/// - compressors of unused levels and texts of errors, because the agent's file counts as memory;
/// - hooks for tracing, which are weak symbols: the program could define them, and the pager would
///   call them;
/// - checks that some distributions switch on, which need more of libc than its functions that copy
///   and fill memory.
///
/// No other flags are added: the agent lives in foreign programs, so its needs must not depend on
/// the machine that builds it.
const ZSTD_FLAGS: &str = "-DZSTD_TRACE=0 -DZSTD_STRIP_ERROR_STRINGS=1 \
    -DZSTD_EXCLUDE_GREEDY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY2_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_BTLAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTOPT_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTULTRA_BLOCK_COMPRESSOR \
    -U_FORTIFY_SOURCE -fno-stack-protector -fno-lto";

fn main() {
    let target = env::var("TARGET").unwrap_or_default();
    // On other targets `src/lib.rs` stops the build with a message on the supported ones.
    let is_known = ["x86_64-", "aarch64-"].iter().any(|processor| target.starts_with(processor));
    if !(is_known && target.contains("linux")) {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let crates = Path::new("..");
    for name in SOURCES {
        for below in ["src", "Cargo.toml", "Cargo.lock", "build.rs"] {
            let path = crates.join(name).join(below);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let agent = out.join("libfolioswap_agent.so");
    println!("cargo::rustc-env=FOLIOSWAP_AGENT_FILE={}", agent.display());
    let manifest = crates.join("agent/Cargo.toml");
    if !manifest.exists() {
        println!("cargo::rerun-if-changed={}", crates.join("agent").display());
        println!(
            "cargo::warning=crates/agent is absent: `folioswap run` is built without an agent and will refuse to run"
        );
        fs::write(&agent, b"").expect("OUT_DIR is writable");
        return;
    }
    let target_dir = out.join("agent");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--profile", "agent", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target_dir);
    // The agent is for the processor that the command is for, whoever builds it.
    let mut built = target_dir.clone();
    let host = env::var("HOST").unwrap_or_default();
    let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
    if target != host {
        cargo.args(["--target", &target]);
        built.push(&target);
    }
    // The settings of this build must not leak into that of the agent, which has its own profile,
    // features and panic strategy.
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        // How cargo reaches its registry holds for this build too, and who links for a processor.
        let kept = text == "CARGO_HOME"
            || ["CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR"].iter().any(|start| text.starts_with(start))
            || target != host && text == linker;
        // A zstd library of the system could be another version, and the program could replace it.
        let leaks = ["CARGO", "DEP_", "RUSTC_", "ZSTD_SYS_", "CFLAGS", "HOST_CFLAGS", "TARGET_CFLAGS"]
            .iter()
            .any(|start| text.starts_with(start));
        let exact = matches!(
            text,
            "RUSTFLAGS"
                | "RUSTDOCFLAGS"
                | "TARGET"
                | "HOST"
                | "OUT_DIR"
                | "NUM_JOBS"
                | "OPT_LEVEL"
                | "DEBUG"
                | "PROFILE"
        );
        if (leaks || exact) && !kept {
            cargo.env_remove(&name);
        }
    }
    // A build that hides its own paths, so that two builds are equal, hides those of the agent too.
    let hidden = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let hidden: Vec<_> =
        hidden.split('\x1f').filter(|flag| flag.starts_with("--remap-path-prefix=")).collect();
    if !hidden.is_empty() {
        cargo.env("CARGO_ENCODED_RUSTFLAGS", hidden.join("\x1f"));
    }
    println!("cargo::rerun-if-env-changed=CC");
    cargo.env("CFLAGS", ZSTD_FLAGS);
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "the agent (crates/agent) does not build: see its errors above");
    fs::copy(built.join("agent/libfolioswap_agent.so"), &agent)
        .expect("the agent's build leaves libfolioswap_agent.so");
}
