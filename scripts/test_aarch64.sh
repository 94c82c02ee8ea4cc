#!/usr/bin/env bash
# Builds folioswap for aarch64 with Debian's cross compiler, and tests it in an emulated machine
# with Debian 13's arm64 kernel.
#
#   scripts/test_aarch64.sh          builds, makes the machine and tests (20 to 60 minutes: every
#                                    instruction is emulated)
#   scripts/test_aarch64.sh build    only builds
#   scripts/test_aarch64.sh symbols  only says what the agent would ask of a program, and what is
#                                    wrong with that
#   KEEP=DIR                         where Debian's user land and the machine's files are kept
#                                    (/var/tmp/folioswap-aarch64)
#
# It takes gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-system-arm, mmdebstrap, cpio, kmod,
# mkfs.ext4 and rustup's target aarch64-unknown-linux-gnu; as root it installs what is missing,
# unless FOLIOSWAP_NO_APT is set. 6 GB of memory and 3 GB of disk.
#
# What this does not show: how fast it is; the order in which a processor's memory accesses are seen
# (the emulator runs on x86_64, which orders more of them); tagged memory; page sizes other than 4
# KiB; mounts (the machine has the modules of its disk, and not that of FUSE); NBD. The last line is
# the sum: N passed, N failed.
set -euo pipefail
cd "$(dirname "$0")/.."
keep=$(realpath -m "${KEEP:-/var/tmp/folioswap-aarch64}")
triple=aarch64-unknown-linux-gnu
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/$triple/release
# The tests of these crates, as far as they need nothing but the machine.
crates=(slots policy space pager group)
say() { printf '\n=== [%4d s] %s\n' "$SECONDS" "$*"; }
fail() { echo "test_aarch64.sh: $*" >&2; exit 1; }
. scripts/toolchain.sh

need_tools() {
    local wanted=()
    command -v aarch64-linux-gnu-gcc >/dev/null || wanted+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
    command -v qemu-system-aarch64 >/dev/null || wanted+=(qemu-system-arm)
    command -v mmdebstrap >/dev/null || wanted+=(mmdebstrap)
    command -v cpio >/dev/null || wanted+=(cpio)
    command -v depmod >/dev/null || [ -x /sbin/depmod ] || wanted+=(kmod)
    command -v mkfs.ext4 >/dev/null || [ -x /sbin/mkfs.ext4 ] || wanted+=(e2fsprogs)
    if [ ${#wanted[@]} -gt 0 ]; then
        may_install || fail "missing: ${wanted[*]} (as root it installs them)"
        apt_install "${wanted[@]}" || fail "apt-get could not install ${wanted[*]}"
    fi
    need_toolchain
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
        command -v rustup >/dev/null || fail "this Rust has no $triple: rustup's has (rustup target add $triple)"
        rustup target add "$triple" || fail "rustup could not add $triple"
    fi
}

build() {
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    # What is not measured here is not worth the time that optimising it takes.
    local plain=(--config 'profile.release.package.folioswap-lab.opt-level=0' --config 'profile.release.package.folioswap-bench.opt-level=1'
        --config 'profile.release.package.folioswap-cli.opt-level=0')
    cargo build "${plain[@]}" --release --locked --target "$triple" -p folioswap-cli -p folioswap-demo -p folioswap-capi
    cargo build "${plain[@]}" --release --locked --target "$triple" -p folioswap-acceptance --bin acc-touch
    cargo test "${plain[@]}" --release --locked --target "$triple" --no-run --lib "${crates[@]/#/-pfolioswap-}" --message-format=json |
        grep '"profile":{[^}]*"test":true' | grep -o '"executable":"[^"]*"' | cut -d '"' -f 4 >"$target/$triple/tests"
    cargo test "${plain[@]}" --release --locked --target "$triple" --no-run -p folioswap --lib --test sigbus --message-format=json |
        grep '"profile":{[^}]*"test":true' | grep -o '"executable":"[^"]*"' | cut -d '"' -f 4 >>"$target/$triple/tests"
    cargo test "${plain[@]}" --release --locked --target "$triple" --no-run -p folioswap-cli --test agent_symbols --message-format=json |
        grep '"profile":{[^}]*"test":true' | grep -o '"executable":"[^"]*"' | cut -d '"' -f 4 >>"$target/$triple/tests"
}

# The agent asks for the functions of the C library that it means, and for no others that a program
# could have in their place. getauxval is called once, while the agent is loaded, to choose between
# two kinds of atomic instructions.
symbols() {
    local agent header asked given strange taken
    agent=$(find "$out"/build/folioswap-cli-*/out -maxdepth 1 -name libfolioswap_agent.so -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
    [ -n "$agent" ] || fail "no agent was built"
    header=$(aarch64-linux-gnu-readelf -h "$agent") || fail "readelf could not read $agent"
    [[ $header == *AArch64* ]] || fail "the agent is for another processor"
    # Each list is complete before it is looked at: a tool that fails must not look like an agent
    # without symbols.
    asked=$(aarch64-linux-gnu-nm -D --undefined-only "$agent") || fail "nm could not read $agent"
    given=$(aarch64-linux-gnu-nm -D --defined-only "$agent") || fail "nm could not read $agent"
    asked=$(awk '$1 == "U" { sub("@.*", "", $2); print $2 }' <<<"$asked")
    grep -qx dlsym <<<"$asked" || fail "the list of what the agent asks for is not complete: it has no dlsym"
    strange=$(grep -vxE \
        '__environ|__errno_location|dlerror|dlsym|environ|free|getauxval|malloc|pthread_attr_getstacksize' <<<"$asked" || true)
    [ -z "$strange" ] || fail "the agent asks for ${strange//$'\n'/ }"
    taken=$(grep -E ' (mem|str|rust_)' <<<"$given" || true)
    [ -z "$taken" ] || fail "the program would get these of the agent's: $taken"
    echo "the agent asks for nothing that it should not"
}

user_land() { # Debian 13's packages for arm64, unpacked; none of their scripts can run here
    [ ! -e "$keep/tree-with-modules.ready" ] || return 0
    rm -rf "$keep/tree"
    mkdir -p "$keep/tree"
    mmdebstrap --quiet --variant=extract --architectures=arm64 --aptopt='APT::Install-Recommends "false"' \
        --include=base-files,dash,bash,coreutils,grep,mawk,diffutils,mount,util-linux,libc-bin,libgcc-s1,python3-minimal,kmod,linux-image-arm64 \
        trixie "$keep/tree.tar" http://deb.debian.org/debian
    tar -C "$keep/tree" -xf "$keep/tree.tar" --exclude='./usr/share/doc' --exclude='./usr/share/man' \
        --exclude='./usr/share/locale' --exclude='./dev/*'
    rm "$keep/tree.tar"
    mv "$keep"/tree/boot/vmlinuz-* "$keep/vmlinuz"
    modules
    rm -rf "$keep/tree/boot" "$keep/tree/usr/lib/modules"
    # What the scripts of the packages would have made.
    printf 'root:x:0:0:root:/root:/bin/sh\n' >"$keep/tree/etc/passwd"
    touch "$keep/tree-with-modules.ready"
}

# The modules for a disk with ext4, in the order in which they are loaded.
modules() {
    local kernel module number=10
    kernel=$(basename "$keep"/tree/usr/lib/modules/*)
    PATH=$PATH:/sbin depmod -b "$keep/tree" "$kernel"
    rm -rf "$keep/modules"
    mkdir "$keep/modules"
    for module in virtio_pci virtio_blk ext4; do
        PATH=$PATH:/sbin modprobe -d "$keep/tree" -S "$kernel" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$keep/modules/list"
    while read -r module; do
        case $module in
            *.xz) xz -dc "$module" >"$keep/modules/$number-$(basename "$module" .xz)" ;;
            *) cp "$module" "$keep/modules/$number-$(basename "$module")" ;;
        esac
        number=$((number + 1))
    done <"$keep/modules/list"
    rm "$keep/modules/list"
}

machine() { # the user land with what was built, as the first files of the machine
    local own=$keep/tree/folioswap binary name
    rm -rf "$own"
    mkdir -p "$own/tests"
    cp -r "$keep/modules" "$own/modules"
    rm -f "$keep/disk"
    truncate -s 2G "$keep/disk"
    PATH=$PATH:/sbin mkfs.ext4 -q "$keep/disk"
    for name in folioswap four-times acc-touch; do
        aarch64-linux-gnu-strip -o "$own/$name" "$out/$name"
    done
    for name in forms fork; do
        aarch64-linux-gnu-gcc -O2 -pthread -D_GNU_SOURCE -o "$own/$name" "crates/acceptance/c/$name.c"
    done
    # For this machine's own processor, which the emulated one refuses.
    printf 'int main(void) { return 0; }\n' | cc -x c - -o "$own/foreign"
    aarch64-linux-gnu-strip -o "$keep/tree/usr/lib/aarch64-linux-gnu/libfolioswap.so.0" "$out/libfolioswap_capi.so"
    aarch64-linux-gnu-gcc -std=c99 -O1 -Icrates/capi/include crates/capi/examples/sort.c -o "$own/sort-example" \
        "$keep/tree/usr/lib/aarch64-linux-gnu/libfolioswap.so.0"
    while read -r binary; do
        name=$(basename "${binary%-*}")
        [ ! -e "$own/tests/$name" ] || name=$(basename "$binary")
        aarch64-linux-gnu-strip -o "$own/tests/$name" "$binary"
    done <"$target/$triple/tests"
    install -m 755 scripts/aarch64/guest.sh "$own/guest.sh"
    ln -sf folioswap/guest.sh "$keep/tree/init"
    (cd "$keep/tree" && find . -print0 | cpio --quiet --null --create --format=newc --owner=0:0) >"$keep/initrd"
}

boot() {
    # Without a clean end within the time the emulator is ended.
    timeout -k 10 "${SECONDS_MAX:-5400}" qemu-system-aarch64 -M virt,gic-version=3 -cpu neoverse-n1 -smp 2 -m 6144 -nographic \
        -no-reboot -nic none -drive "file=$keep/disk,if=virtio,format=raw,cache=unsafe" -kernel "$keep/vmlinuz" -initrd "$keep/initrd" \
        -append 'console=ttyAMA0 quiet panic=-1 rdinit=/init' </dev/null | sed -u 's/\r$//' | tee "$keep/console"
}

need_tools
case ${1:-} in
    '') ;;
    build) build; exit ;;
    symbols) symbols; exit ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
say "building for $triple"
build
say "what the agent asks of a program"
symbols
say "Debian 13's user land for arm64"
mkdir -p "$keep"
user_land
say "the machine"
machine
boot || fail "the machine did not end by itself: see $keep/console"
sum=$(grep -aE '^[0-9]+ passed, [0-9]+ failed$' "$keep/console" | tail -n 1)
[ -n "$sum" ] || fail "the machine ended without a sum: see $keep/console"
say "done"
echo "$sum"
[ "${sum#*, }" = "0 failed" ]
