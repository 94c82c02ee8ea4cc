//! Builds the agent (a workspace of its own) and leaves its path to `src/agent.rs`, which embeds it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the agent is made of, below `crates/`: a change rebuilds it.
const SOURCES: &[&str] = &["agent", "pager", "core", "slots", "devices", "group", "trace"];

/// How the zstd library is compiled for the agent. Without compressors of levels that are not used, for the agent's file counts as memory;
/// without texts of errors; without hooks for tracing, which are weak symbols that something in the program could define, and the pager
/// would call; without checks that some distributions switch on, which ask for more of libc than its functions that copy and fill memory.
/// Nobody else's flags: the agent lives in foreign programs, and what it asks of them must not depend on who builds it.
const ZSTD_FLAGS: &str = "-DZSTD_TRACE=0 -DZSTD_STRIP_ERROR_STRINGS=1 \
    -DZSTD_EXCLUDE_GREEDY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_LAZY2_BLOCK_COMPRESSOR \
    -DZSTD_EXCLUDE_BTLAZY2_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTOPT_BLOCK_COMPRESSOR -DZSTD_EXCLUDE_BTULTRA_BLOCK_COMPRESSOR \
    -U_FORTIFY_SOURCE -fno-stack-protector -fno-lto";

fn main() {
    let target = env::var("TARGET").unwrap_or_default();
    // Elsewhere `src/lib.rs` stops the build with a message that says what is supported.
    if !(target.starts_with("x86_64") && target.contains("linux")) {
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
    cargo.args(["build", "--release", "--manifest-path"]).arg(&manifest).arg("--target-dir").arg(&target_dir);
    // The memfd that holds it at run time counts as memory.
    cargo.args(["--config", "profile.release.strip=\"debuginfo\""]);
    // What this build was told must not leak into that one: it has its own profile, features and panic strategy.
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let kept = matches!(text, "CARGO_HOME" | "CARGO_NET_OFFLINE");
        // A zstd library of the system's could be another version, which anybody in the program could replace.
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
    println!("cargo::rerun-if-env-changed=CC");
    cargo.env("CFLAGS", ZSTD_FLAGS);
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "the agent (crates/agent) does not build: see its errors above");
    fs::copy(target_dir.join("release/libfolioswap_agent.so"), &agent)
        .expect("the agent's build leaves libfolioswap_agent.so");
}
