#!/usr/bin/env bash
# Makes everything that is released, from a clean tree, in dist/: the command as deb, archive and OCI image; the library for C and
# C++ as deb and archive; the Python wheel; the bill of materials; SHA256SUMS.
#
#   scripts/release.sh                        builds and packs everything (10 to 15 minutes on two idle processors)
#   scripts/release.sh twice                  also builds a second time, in another directory (the wheel in this one), and says what
#                                             differs
#   scripts/release.sh deb|archive|c|wheel|image|sbom ...      only these
#   FOLIOSWAP_BUILT=DIR scripts/release.sh deb ...   packs the binaries of DIR, stripped, from any tree, for tests
#   DIST=DIR                                  instead of dist/
#
# It takes cargo, gcc, git, make and dpkg-deb; maturin for the wheel, buildah for the image, cargo-cyclonedx for the bill of
# materials. Whatever is asked for by name must succeed; without names a missing maturin, buildah or cargo-cyclonedx is an error
# too. The oldest glibc that the packages run with is that of the machine that builds them: build on Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."
top=$PWD

known=(deb archive c wheel image sbom)
kinds=() twice=
for word; do
    case $word in
        twice) twice=1 ;;
        deb | archive | c | wheel | image | sbom) kinds+=("$word") ;;
        *) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
[ ${#kinds[@]} -gt 0 ] || kinds=("${known[@]}")
wants() { local kind; for kind in "${kinds[@]}"; do for wish; do [ "$kind" != "$wish" ] || return 0; done; done; return 1; }
say() { printf '\n=== [%4d s] %s\n' "$SECONDS" "$*"; }
fail() { echo "release.sh: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || fail "$1 is not there: $2"; }

[ "$(uname -m)" = x86_64 ] || fail "packages are made on x86_64 only"
need dpkg-deb "apt-get install dpkg"
need git "apt-get install git"
! wants wheel || need maturin "pip install 'maturin>=1.9.4,<2'"
! wants image || need buildah "apt-get install buildah"
! wants sbom || cargo cyclonedx --version >/dev/null 2>&1 || fail "cargo-cyclonedx is not there: cargo install --locked cargo-cyclonedx"
if [ -z "${FOLIOSWAP_BUILT:-}" ]; then
    [ -z "$(git status --porcelain)" ] || fail "the tree is not clean (git status); commit or stash first"
    . scripts/toolchain.sh
    need_toolchain
fi
need strip "apt-get install binutils"
! wants c || need make "apt-get install make"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
if command -v python3 >/dev/null; then
    python3 scripts/tidy.py --versions || fail "the versions differ"
else
    echo "note: python3 is not there to check that the version is the same wherever it is told"
fi
git describe --exact-match --match "v$version" HEAD >/dev/null 2>&1 || echo "note: HEAD is not the tag v$version"
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
dist=$(realpath -m "${DIST:-dist}")
mkdir -p "$dist"
work=$(mktemp -d /var/tmp/folioswap-release-XXXXXX)
second=
clean() {
    [ -z "$second" ] || git worktree remove --force "$second" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

# Builds with the profile `dist`. Neither the directory of the tree nor that of cargo is left in the files, so two builds are equal.
separator=$'\x1f'
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$top=/folioswap${separator}--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
export CARGO_ENCODED_RUSTFLAGS
built=${FOLIOSWAP_BUILT:-}
# A file with a path of this machine in it would differ on another.
without_paths() { # FILE...
    [ -n "${FOLIOSWAP_BUILT:-}" ] || ! grep -lF -e "$top/" -e "${CARGO_HOME:-$HOME/.cargo}/" "$@" || fail "a path of this machine is in what was built"
}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/ship")
build() { # PACKAGE...
    local packages=("${@/#/--package=}")
    [ -n "${FOLIOSWAP_BUILT:-}" ] || CARGO_TARGET_DIR=$target cargo build --profile dist --locked "${packages[@]}"
}
[ -n "$built" ] || built=$target/dist
stripped() { # FILE TO
    without_paths "$built/$1"
    strip --strip-unneeded -o "$2" "$built/$1"
    chmod 755 "$2"
}
glibc() { # FILE...: the newest version of glibc's symbols that they use
    objdump -T "$@" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}
dated() { # DIRECTORY: one time for all files, and the modes of packages
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# The files of the command, below a prefix. Packages lay them elsewhere as they need.
files_of_command() { # DIRECTORY
    local to=$1
    mkdir -p "$to"/{bin,sbin,libexec/folioswap,share/man/man1,share/folioswap,lib/systemd/system} \
        "$to"/share/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    stripped folioswap "$to/bin/folioswap"
    # A program that needs four times its limit, and checks its own data.
    stripped four-times "$to/libexec/folioswap/four-times"
    # mount(8) runs mount.TYPE for an entry of fstab. The command serves that name itself, once it knows it.
    if grep -qa 'mount\.folioswap' "$to/bin/folioswap"; then
        ln -s ../bin/folioswap "$to/sbin/mount.folioswap"
    else
        rmdir "$to/sbin"
    fi
    "$to/bin/folioswap" man "$to/share/man/man1"
    find "$to/share/man" -type f -exec gzip -9n {} +
    "$to/bin/folioswap" completions bash >"$to/share/bash-completion/completions/folioswap"
    "$to/bin/folioswap" completions zsh >"$to/share/zsh/site-functions/_folioswap"
    "$to/bin/folioswap" completions fish >"$to/share/fish/vendor_completions.d/folioswap.fish"
    install -m 644 contrib/seccomp/folioswap.json "$to/share/folioswap/seccomp.json"
    install -m 644 contrib/seccomp/folioswap-flat.json "$to/share/folioswap/seccomp-flat.json"
    install -m 644 contrib/systemd/*.service "$to/lib/systemd/system"
}
documents() { # DIRECTORY
    mkdir -p "$1"
    install -m 644 packaging/copyright LICENSE-MIT LICENSE-APACHE "$1"
    gzip -9nc CHANGELOG.md >"$1/changelog.gz"
}
deb() { # TREE TEMPLATE: packs it, with the files of DEBIAN that are there already
    local tree=$1 name
    name=$(sed -n 's/^Package: //p' "$2")
    mkdir -p "$tree/DEBIAN"
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum) >"$work/md5sums"
    mv "$work/md5sums" "$tree/DEBIAN/md5sums"
    sed -e "s/@VERSION@/$version/" -e "s/@GLIBC@/$3/" -e "s/@SIZE@/$(du -sk --apparent-size --exclude=DEBIAN "$tree" | cut -f 1)/" \
        "$2" >"$tree/DEBIAN/control"
    dated "$tree"
    dpkg-deb --root-owner-group -Zxz -z9 --build "$tree" "$dist/${name}_${version}_amd64.deb" >/dev/null
}
archive() { # DIRECTORY NAME: packs DIRECTORY/NAME
    dated "$1/$2"
    tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -c "$2" | gzip -9n >"$dist/$2.tar.gz"
}
installer() { # DIRECTORY NAME: the script that installs DIRECTORY/files
    sed "s/@NAME@/$2/g" packaging/install.sh >"$1/install.sh"
    chmod 755 "$1/install.sh"
    mkdir -p "$1/files/share/$2"
}

pack_deb() {
    local tree=$work/deb
    files_of_command "$tree/usr"
    # Debian's zsh looks there.
    mv "$tree/usr/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
    install -D -m 644 contrib/udev/60-folioswap.rules "$tree/usr/lib/udev/rules.d/60-folioswap.rules"
    install -D -m 644 contrib/systemd/folioswap-sysusers.conf "$tree/usr/lib/sysusers.d/folioswap.conf"
    documents "$tree/usr/share/doc/folioswap"
    mkdir "$tree/DEBIAN"
    install -m 755 packaging/deb/postinst packaging/deb/postrm "$tree/DEBIAN"
    deb "$tree" packaging/deb/control.in "$(glibc "$tree/usr/bin/folioswap")"
}
pack_archive() {
    local name=folioswap-$version-x86_64-linux-gnu
    files_of_command "$work/$name/files"
    install -D -m 644 contrib/udev/60-folioswap.rules "$work/$name/files/share/folioswap/60-folioswap.rules"
    documents "$work/$name/files/share/doc/folioswap"
    installer "$work/$name" folioswap
    archive "$work" "$name"
}
pack_c() {
    local tree=$work/c name=folioswap-c-$version-x86_64-linux-gnu libraries=$work/libraries
    mkdir "$libraries"
    stripped libfolioswap_capi.so "$libraries/libfolioswap_capi.so"
    strip --strip-debug -D -o "$libraries/libfolioswap_capi.a" "$built/libfolioswap_capi.a"
    local gnu=/usr/lib/x86_64-linux-gnu
    make -s -C crates/capi install BUILT="$libraries" PREFIX=/usr LIBDIR=$gnu DESTDIR="$tree"
    gzip -9n "$tree/usr/share/man/man3/folioswap.3"
    documents "$tree/usr/share/doc/libfolioswap-dev"
    mkdir -p "$tree/usr/share/doc/libfolioswap-dev/examples" "$tree/DEBIAN"
    install -m 644 crates/capi/examples/* "$tree/usr/share/doc/libfolioswap-dev/examples"
    install -m 644 packaging/deb/triggers-dev "$tree/DEBIAN/triggers"
    deb "$tree" packaging/deb/control-dev.in "$(glibc "$libraries/libfolioswap_capi.so")"

    make -s -C crates/capi install BUILT="$libraries" PREFIX=/usr/local DESTDIR="$work/c-local"
    mkdir "$work/$name"
    mv "$work/c-local/usr/local" "$work/$name/files"
    # What pkg-config says must hold below any prefix.
    sed -i -e "s|^prefix=.*|prefix=\${pcfiledir}/../..|" -e 's|^libdir=.*|libdir=${prefix}/lib|' -e 's|^includedir=.*|includedir=${prefix}/include|' \
        "$work/$name/files/lib/pkgconfig/folioswap.pc"
    documents "$work/$name/files/share/doc/folioswap-c"
    mkdir "$work/$name/files/share/doc/folioswap-c/examples"
    install -m 644 crates/capi/examples/* "$work/$name/files/share/doc/folioswap-c/examples"
    installer "$work/$name" folioswap-c
    archive "$work" "$name"
}
pack_wheel() {
    # The tag of the wheel (manylinux) follows from the symbols that the module uses; maturin refuses those that are too new.
    CARGO_TARGET_DIR=$target maturin build --profile dist --strip --locked --compatibility pypi --out "$dist"
    without_paths "$target/dist/lib_folioswap.so"
}
pack_image() {
    local tree=$work/image container library archive=$dist/folioswap-$version.oci.tar
    mkdir -p "$tree"/{usr/bin,usr/share/folioswap,tmp,var/tmp,etc,proc,sys,dev,mnt}
    stripped folioswap "$tree/usr/bin/folioswap"
    stripped four-times "$tree/usr/bin/four-times"
    install -m 644 contrib/seccomp/*.json "$tree/usr/share/folioswap/"
    printf 'root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n' >"$tree/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
    documents "$tree/usr/share/doc/folioswap"
    # The dynamic linker and the C library, where programs look for them.
    while read -r library; do install -D -m 755 "$(readlink -f "$library")" "$tree$library"; done \
        < <(ldd "$tree/usr/bin/folioswap" "$tree/usr/bin/four-times" | grep -oE '/lib[^ ]+' | sort -u)
    dated "$tree"
    chmod 1777 "$tree/tmp" "$tree/var/tmp"
    container=$(buildah from scratch)
    buildah copy -q "$container" "$tree" / >/dev/null
    buildah config --entrypoint '["/usr/bin/folioswap"]' --cmd doctor --env PATH=/usr/bin \
        --label org.opencontainers.image.title=folioswap --label "org.opencontainers.image.version=$version" \
        --label org.opencontainers.image.source=https://github.com/folioswap/folioswap \
        --label "org.opencontainers.image.licenses=MIT OR Apache-2.0" --created-by scripts/release.sh "$container"
    buildah commit -q --rm --disable-compression=false --timestamp "$SOURCE_DATE_EPOCH" "$container" "oci-archive:$work/image.tar:folioswap:$version" >/dev/null ||
        { buildah rm "$container" >/dev/null 2>&1 || true; fail "buildah could not make the image"; }
    rm -f "$archive"
    # The archive's own times and order are not part of the image.
    mkdir "$work/layout"
    tar -C "$work/layout" -xf "$work/image.tar"
    dated "$work/layout"
    tar -C "$work/layout" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -cf "$archive" .
}
pack_sbom() {
    # Every crate that is in the command, the libraries, the agent and the wheel, with version and licence.
    local manifest name
    for pair in crates/cli/Cargo.toml:folioswap crates/agent/Cargo.toml:folioswap-agent crates/capi/Cargo.toml:folioswap-c \
        python/Cargo.toml:folioswap-python; do
        manifest=${pair%%:*} name=${pair#*:}
        cargo cyclonedx --quiet --manifest-path "$manifest" --format json --target x86_64-unknown-linux-gnu --no-build-deps \
            --spec-version 1.5 --override-filename folioswap-sbom
        sed "s|file://$top|file:///folioswap|g" "$(dirname "$manifest")/folioswap-sbom.json" >"$dist/$name-$version.cdx.json"
    done
    # It leaves one beside every member of the workspace.
    git clean -fq -- '*folioswap-sbom.json'
}

if wants deb archive image; then
    say "building the command"
    build folioswap-cli folioswap-demo
fi
if wants c; then
    say "building the library for C"
    build folioswap-capi
fi
for kind in "${kinds[@]}"; do
    say "$kind"
    "pack_$kind"
done
(cd "$dist" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
say "in $dist:"
(cd "$dist" && find . -maxdepth 1 -type f -printf '%P %s\n' | sort | awk '{ printf "  %8.2f MB  %s\n", $2 / 1e6, $1 }')

if [ -n "$twice" ]; then
    say "building again, in another directory"
    second=$(mktemp -d /var/tmp/folioswap-release-second-XXXXXX)
    git worktree add --quiet --detach "$second" "$commit"
    elsewhere=() here=()
    # Cargo hashes the directories of crates that lie outside of their user's workspace, as those of the Python module do. So the
    # wheel is equal in the same directory only, and is built again there.
    for kind in "${kinds[@]}"; do if [ "$kind" = wheel ]; then here+=(wheel); else elsewhere+=("$kind"); fi; done
    again() { # DIRECTORY KIND...
        local directory=$1
        shift
        [ $# -eq 0 ] || (cd "$directory" && DIST=$work/second CARGO_TARGET_DIR=$second/target bash scripts/release.sh "$@" >"$work/second.log" 2>&1) ||
            { tail -n 30 "$work/second.log"; fail "the second build failed"; }
    }
    again "$second" "${elsewhere[@]}"
    again "$top" "${here[@]}"
    status=0
    while read -r sum name; do
        if [ "$sum" = "$(awk -v name="$name" '$2 == name { print $1 }' "$dist/SHA256SUMS")" ]; then
            echo "equal    $name"
        else
            echo "DIFFERS  $name"
            status=1
        fi
    done <"$work/second/SHA256SUMS"
    exit $status
fi
