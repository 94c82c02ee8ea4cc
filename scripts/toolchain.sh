# shellcheck shell=bash
# Sourced by scripts/demo.sh and scripts/test.sh: finds a Rust toolchain that is new enough, and a linker for it. What is missing
# is installed with apt by root, unless FOLIOSWAP_NO_APT is set. The working directory is the tree's root.

may_install() { [ -z "${FOLIOSWAP_NO_APT:-}" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

at_least() { # VERSION WANTED
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

apt_install() { # PACKAGE...
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"; } >/dev/null
}

# Sees to cargo and cc, or says what to do and returns 1. Debian's package cargo-web is a newer cargo than its `cargo`: 1.96 in
# Debian 12 (from its security updates) and 13. It installs /usr/bin/cargo, and conflicts with `cargo` and `rustup`.
need_toolchain() {
    local wanted version
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
        export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    fi
    if ! command -v cargo >/dev/null; then
        if ! may_install; then
            echo "cargo is not there. Install Rust $wanted or later: as root 'apt-get install cargo-web' on Debian 12 and 13," \
                "or https://rustup.rs" >&2
            return 1
        fi
        echo "installing cargo-web, Debian's newest Rust (0.8 GB)"
        if ! apt_install cargo-web ca-certificates; then
            echo "apt-get could not install cargo-web: are Debian's security updates among its sources?" >&2
            return 1
        fi
        hash -r
    fi
    if ! version=$(cargo --version | cut -d ' ' -f 2) || [ -z "$version" ]; then
        echo "cargo does not run: $(cargo --version 2>&1 | tail -n 1)" >&2
        return 1
    fi
    if ! at_least "$version" "$wanted"; then
        echo "cargo $version is older than $wanted, which Cargo.toml asks for." \
            "$(if command -v rustup >/dev/null; then echo "Newer: rustup update stable"; else
                echo "Newer: as root 'apt-get install cargo-web', with Debian's security updates among apt's sources"; fi)" >&2
        return 1
    fi
    if ! command -v cc >/dev/null; then
        if ! may_install; then
            echo "Rust needs a C compiler as its linker: as root 'apt-get install gcc libc6-dev'" >&2
            return 1
        fi
        echo "installing gcc and libc6-dev: Rust needs them to link"
        apt_install gcc libc6-dev || return
    fi
    [ -e "${CARGO_TARGET_DIR:-target}/release/folioswap" ] || echo "the first build takes three to seven minutes on two idle processors," \
        "and 0.6 GB below ${CARGO_TARGET_DIR:-target}"
}
