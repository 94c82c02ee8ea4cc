#!/usr/bin/env bash
# Installs what scripts/release.sh has made where nothing else is, uses it, and takes it away again.
#
#   scripts/test_release.sh                  all of the below, with the packages in dist/ (root; some 10 minutes and 2.5 GB)
#   scripts/test_release.sh debian 12|13     in a bare Debian made by debootstrap, without Rust: deb, archive, C, wheel
#   scripts/test_release.sh image            the image with podman, as root and with the least privilege that works
#   scripts/test_release.sh short            packs what `cargo build --release --workspace` has left, and installs it below a scratch
#                                            directory; the files of contrib are checked by their validators (a minute)
#   DIST=DIR                                 where the packages are, instead of dist/
#   TREES=DIR                                where the user lands of Debian are kept (/var/tmp/folioswap-trees)
#
# The last line is the sum: N passed, N failed, N skipped. Nothing stays mounted or running; the trees stay for the next time.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
dist=$(realpath -m "${DIST:-dist}")
trees=$(realpath -m "${TREES:-/var/tmp/folioswap-trees}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
passed=0 failed=0 skipped=0
failures=()
work=$(mktemp -d /var/tmp/folioswap-acc-release-XXXXXX)
image=
clean() {
    [ -z "$image" ] || podman rmi -f "$image" >/dev/null 2>&1
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

say() { printf '\n=== [%4d s] %s\n' "$SECONDS" "$*"; }
skip() {
    echo "SKIP: $*"
    [ -z "${FOLIOSWAP_SKIP_FILE:-}" ] || echo "SKIP scripts/test_release.sh: $*" >>"$FOLIOSWAP_SKIP_FILE"
    skipped=$((skipped + 1))
}
check() { # NAME COMMAND...
    local name=$1 start=$EPOCHREALTIME status=0
    shift
    "$@" >"$work/said" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok      %6.2f s  %s\n' "$(took "$start")" "$name"
    else
        failed=$((failed + 1))
        failures+=("$name")
        tail -n 30 "$work/said"
        printf 'FAILED  %6.2f s  %s (status %d)\n' "$(took "$start")" "$name" $status
    fi
    return $status
}
took() { awk "BEGIN { print $EPOCHREALTIME - $1 }"; }
sum() {
    say "done"
    [ ${#failures[@]} -eq 0 ] || printf '  failed: %s\n' "${failures[@]}"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
one() { # PATTERN: the one file of that name
    local found
    mapfile -t found < <(compgen -G "$dist/$1")
    [ ${#found[@]} -eq 1 ] && [ -e "${found[0]}" ] || return 1
    echo "${found[0]}"
}

# --- In this tree --------------------------------------------------------------------------------------------------

# Packs the binaries of `cargo build --release`, and installs the packages below scratch directories.
short() {
    local built scratch=$work/scratch prefix=$work/prefix
    built=$(realpath -m "${CARGO_TARGET_DIR:-target}/release")
    # Where nothing but a release was made, its binaries are there.
    [ -x "$built/folioswap" ] || built=$(realpath -m "${CARGO_TARGET_DIR:-target}/ship/dist")
    [ -x "$built/folioswap" ] || { check "binaries to pack: run cargo build --release --workspace first" false; return; }
    dist=$work/dist
    say "packing what is in $built"
    check "the packages are made" env DIST="$dist" FOLIOSWAP_BUILT="$built" bash scripts/release.sh deb archive c || return
    check "SHA256SUMS" sh -c 'cd "$1" && sha256sum --check --quiet SHA256SUMS' sh "$dist"
    mkdir "$scratch"
    check "the deb is below 4 MB" sh -c '[ "$(stat -c %s "$1")" -lt 4000000 ]' sh "$dist/folioswap_${version}_amd64.deb"
    check "the deb unpacks" dpkg-deb -x "$dist/folioswap_${version}_amd64.deb" "$scratch"
    check "its version" sh -c '"$1/usr/bin/folioswap" --version | grep -x "folioswap $2"' sh "$scratch" "$version"
    check "its control file names the glibc that it needs" sh -c 'dpkg-deb -f "$1" Depends | grep -E "libc6 \(>= 2\.[0-9]+\)"' sh "$dist/folioswap_${version}_amd64.deb"
    check "no path of this machine is in the files" sh -c '! grep -rIl -e "$1" "$2"' sh "$PWD" "$scratch"
    check "a man page for each command" sh -c 'for page in "" -run -mount -umount -doctor -swapon -swapoff -mkswap -bench -lab; do
        gzip -dc "$1/usr/share/man/man1/folioswap$page.1.gz" | grep -q "^.TH" || exit; done' sh "$scratch"
    check "bash reads its completions" bash -n "$scratch/usr/share/bash-completion/completions/folioswap"
    if "$scratch/usr/bin/folioswap" doctor >/dev/null; then
        check "its demonstration" "$scratch/usr/bin/folioswap" run -m 64M -- "$scratch/usr/libexec/folioswap/four-times" 160
    else
        skip "folioswap run does not work here (folioswap doctor)"
    fi
    mkdir "$prefix"
    tar -C "$work" -xzf "$dist/folioswap-$version-x86_64-linux-gnu.tar.gz"
    tar -C "$work" -xzf "$dist/folioswap-c-$version-x86_64-linux-gnu.tar.gz"
    mkdir -p "$prefix/share/kept"
    check "install.sh" sh "$work/folioswap-$version-x86_64-linux-gnu/install.sh" --prefix "$prefix"
    check "install.sh of the library" sh "$work/folioswap-c-$version-x86_64-linux-gnu/install.sh" --prefix "$prefix"
    check "the command that it installed" "$prefix/bin/folioswap" --version
    check "its unit names its prefix" grep -q "^ExecStart=$prefix/bin/folioswap run" "$prefix/lib/systemd/system/folioswap-run@.service"
    check "install.sh refuses a prefix that is not absolute" sh -c '! sh "$1" --prefix here' sh "$work/folioswap-$version-x86_64-linux-gnu/install.sh"
    write_tests
    if command -v pkg-config >/dev/null && command -v cc >/dev/null; then
        check "pkg-config finds the library where it was installed" sh -c 'export PKG_CONFIG_PATH=$1/lib/pkgconfig
            cc -std=c99 -O1 "$2" $(pkg-config --cflags --libs folioswap) "-Wl,-rpath,$1/lib" -o "$3/sort"' sh "$prefix" crates/capi/examples/sort.c "$work"
    else
        skip "pkg-config is not there for the library's package"
    fi
    if command -v cmake >/dev/null; then
        check "CMake finds it" sh -c 'cmake -S "$1/tests/cmake" -B "$1/b" -DCMAKE_PREFIX_PATH="$2" -DEXAMPLES="$3" && cmake --build "$1/b"' \
            sh "$work" "$prefix" "$PWD/crates/capi/examples"
    else
        skip "cmake is not there for the library's package"
    fi
    check "a node's profiles" sh -c 'DESTDIR=$1/node PROFILES=$2/share/folioswap sh contrib/node/setup.sh &&
        cmp contrib/seccomp/folioswap-flat.json "$1/node/var/lib/kubelet/seccomp/folioswap.json"' sh "$work" "$prefix"
    check "the library's uninstall" sh "$prefix/share/folioswap-c/install.sh" --uninstall --prefix "$prefix"
    check "the uninstall" sh "$prefix/share/folioswap/install.sh" --uninstall --prefix "$prefix"
    check "they leave what others made, and nothing else" sh -c '[ "$(cd "$1" && find . | sort | xargs)" = ". ./share ./share/kept" ]' sh "$prefix"
    check "an uninstall where nothing is installed is refused" sh -c '! sh "$1" --uninstall --prefix "$2"' sh \
        "$work/folioswap-$version-x86_64-linux-gnu/install.sh" "$prefix"
    contrib
}
# The files that others' programs read, by those programs' own checks, or by their grammar.
contrib() {
    say "contrib and workflows"
    check "the seccomp profiles refuse by default, and permit userfaultfd" python3 - <<'PYTHON'
import json
for name in ("folioswap.json", "folioswap-flat.json"):
    with open(f"contrib/seccomp/{name}", encoding="utf-8") as file:
        profile = json.load(file)
    rules = [rule for rule in profile["syscalls"] if "userfaultfd" in rule["names"]]
    assert [rule["action"] for rule in rules] == ["SCMP_ACT_ALLOW"] and not rules[0].get("includes"), (name, rules)
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO", name
    if name == "folioswap-flat.json":
        assert not any(rule.get("includes") or rule.get("excludes") for rule in profile["syscalls"])
        calls = [call for rule in profile["syscalls"] if not rule.get("args") for call in rule["names"]]
        assert len(calls) == len(set(calls)), sorted({call for call in calls if calls.count(call) > 1})
PYTHON
    if (cd /usr/share/containers && sha256sum --check --status) <contrib/seccomp/base.sha256 2>/dev/null; then
        check "they permit one call more than the profile that they were made from" python3 - <<'PYTHON'
import json, sys
sys.path.insert(0, "contrib/seccomp")
import make
def permitted(profile):
    found = set()
    for rule in profile["syscalls"]:
        if rule["action"] == "SCMP_ACT_ALLOW":
            given = json.dumps([rule.get("args") or [], rule.get("includes") or {}, rule.get("excludes") or {}], sort_keys=True)
            found |= {(name, given) for name in rule["names"]}
    return found
def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
base = read("/usr/share/containers/seccomp.json")
for name, theirs in (("folioswap.json", base), ("folioswap-flat.json", make.flat(base))):
    more = permitted(read(f"contrib/seccomp/{name}")) - permitted(theirs)
    assert {call for call, _ in more} == {"userfaultfd"}, (name, more)
PYTHON
    else
        skip "the default profile that the seccomp profiles were made from is not there (Debian 12, golang-github-containers-common)"
    fi
    mapfile -t scripts < <(git ls-files 'contrib/*.sh' 'packaging/*' 'scripts/*.sh' 'bench/*.sh' | xargs grep -lE '^#!(/bin/sh|/usr/bin/env bash)|^# shellcheck')
    check "the grammar of every script" bash -c 'for script; do bash -n "$script" || exit; done' bash "${scripts[@]}"
    if command -v shellcheck >/dev/null; then
        check "shellcheck" shellcheck -S warning contrib/*/*.sh contrib/devcontainer/src/folioswap/install.sh packaging/install.sh \
            packaging/deb/postinst packaging/deb/postrm scripts/release.sh
    else
        skip "shellcheck is not there for the scripts (apt-get install shellcheck)"
    fi
    if command -v systemd-analyze >/dev/null; then
        mkdir "$work/units"
        for unit in run mount; do
            sed "s|/usr/bin/folioswap|/bin/true|" "contrib/systemd/folioswap-$unit@.service" >"$work/units/folioswap-$unit@a.service"
        done
        check "systemd-analyze verify" systemd-analyze verify --man=no "$work"/units/*.service
    else
        skip "systemd-analyze is not there for the units"
    fi
    validators
    if command -v actionlint >/dev/null; then
        check "actionlint" actionlint
    else
        skip "actionlint is not there for the workflows (go install github.com/rhysd/actionlint/cmd/actionlint@latest)"
    fi
    if "$python" -c 'import kubernetes_validate' 2>/dev/null; then
        check "kubernetes-validate" "$python" -m kubernetes_validate --strict contrib/kubernetes/*.yaml
    else
        skip "kubernetes-validate is not there for the manifests (pip install kubernetes-validate)"
    fi
}

# Gets the validators that no distribution has, where they can be had, into the scratch directory.
validators() {
    python=python3
    [ -z "${FOLIOSWAP_NO_APT:-}" ] || return
    if ! command -v actionlint >/dev/null && command -v go >/dev/null; then
        GOBIN=$work/bin timeout 120 go install github.com/rhysd/actionlint/cmd/actionlint@latest >/dev/null 2>&1
        PATH=$work/bin:$PATH
    fi
    if ! python3 -c 'import kubernetes_validate' 2>/dev/null && python3 -m venv "$work/python" >/dev/null 2>&1; then
        timeout 120 "$work/python/bin/python" -m pip install -q kubernetes-validate >/dev/null 2>&1
        python=$work/python/bin/python
    fi
}

# --- The image ---------------------------------------------------------------------------------------------------------

image() {
    local archive=$dist/folioswap-$version.oci.tar need=200 memory=128m here=$PWD
    [ "$(id -u)" -eq 0 ] || { skip "the image: its containers are started by root"; return; }
    command -v podman >/dev/null || { skip "the image: podman is not there (apt-get install podman crun)"; return; }
    [ -e "$archive" ] || { check "the image in $dist: run scripts/release.sh first" false; return; }
    say "the image"
    check "podman loads it" podman load -q -i "$archive" || return
    image=$(podman images -q --filter "reference=*folioswap:$version" | head -n 1)
    # Where the kernel kills a container, conmon leaves a file `oom` in the current directory.
    run() { (cd "$work" && podman run --rm --network none --ulimit "nofile=$(ulimit -n)" --ulimit nproc=4096 "$@"); }
    status_is() { local wanted=$1 status=0; shift; "$@" || status=$?; [ $status -eq "$wanted" ] || { echo "status $status instead of $wanted"; return 1; }; }
    local root=(--cap-add SYS_PTRACE --device /dev/userfaultfd) least=(--cap-drop ALL --cap-add SYS_PTRACE --user 1000 --read-only
        --security-opt no-new-privileges)
    names_it() { status_is 1 run "$@" doctor >"$work/doctor" && cat "$work/doctor" && grep -q -e "$missing" "$work/doctor"; }
    local missing='podman run --cap-add SYS_PTRACE --device /dev/userfaultfd'
    check "without a permission doctor names what is missing" names_it "$image"
    missing='podman run --device /dev/userfaultfd'
    check "with the capability it names the rest only" names_it --cap-add SYS_PTRACE "$image"
    missing='podman run --security-opt seccomp='
    check "an ordinary user with capability and device is told of the profile" names_it --user 1000 "${root[@]}" "$image"
    check "$need MiB within $memory, alone: the kernel kills it (137)" status_is 137 run --memory $memory --memory-swap $memory --entrypoint /usr/bin/four-times "$image" $need
    check "the same with folioswap in front" run --memory $memory --memory-swap $memory "${root[@]}" "$image" run -- /usr/bin/four-times $need
    check "doctor as root" run "${root[@]}" "$image" doctor
    for profile in folioswap folioswap-flat; do
        check "the least privilege, $profile.json: doctor" run "${least[@]}" --security-opt "seccomp=$here/contrib/seccomp/$profile.json" "$image" doctor
        check "the least privilege, $profile.json: $need MiB within $memory" run --memory $memory --memory-swap $memory "${least[@]}" \
            --security-opt "seccomp=$here/contrib/seccomp/$profile.json" "$image" run -- /usr/bin/four-times $need
    done
    check "without the profile the same is refused (125)" status_is 125 run --memory $memory "${least[@]}" "$image" run -- /usr/bin/four-times $need
}

# --- Bare Debian ------------------------------------------------------------------------------------------------------

# Runs a command in a tree, whose changes go to $upper. All mounts are in a namespace of their own and end with it.
enter() { # COMMAND...
    unshare --mount --pid --fork --kill-child --propagation private bash -c '
        lower=$1 upper=$2 dist=$3 tests=$4
        shift 4
        root=$upper/root
        mkdir -p "$upper"/{root,data,work}
        mount -t overlay folioswap-tree -o "lowerdir=$lower,upperdir=$upper/data,workdir=$upper/work" "$root" || exit 99
        mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys" && mount --rbind /dev "$root/dev" || exit 99
        mkdir -p "$root/dist" "$root/tests"
        mount --bind -o ro "$dist" "$root/dist" && mount --bind -o ro "$tests" "$root/tests" || exit 99
        cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
        exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
    ' enter "$lower" "$upper" "$dist" "$work/tests" "$@"
}
# Everything that is there, but for the books of apt and dpkg, caches, and the copies that groupadd(8) leaves of its files.
listing() {
    enter sh -c 'find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /dist -o -path /tests -o -path /tmp \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log -o -path /root \) -prune -o -print |
        grep -v -e "^/etc/resolv.conf$" -e "^/etc/.*-$" -e "/ldconfig/" -e "__pycache__" | sort; getent group folioswap' 2>/dev/null
}
leaves_nothing() {
    listing >"$work/after"
    diff "$work/before" "$work/after"
}
bare() { # 12|13: makes the tree of that Debian unless it is there
    local suite
    case $1 in 12) suite=bookworm ;; 13) suite=trixie ;; *) echo "Debian 12 or 13, not $1"; return 2 ;; esac
    [ ! -e "$trees/$1.ready" ] || return 0
    mkdir -p "$trees"
    rm -rf "${trees:?}/$1"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$trees/$1" http://deb.debian.org/debian && touch "$trees/$1.ready"
}
# A second layer with what the wheel and the C package are used with. It is installed before anything of ours.
tools() { # 12|13
    [ ! -e "$trees/$1-tools.ready" ] || return 0
    rm -rf "${trees:?}/$1-tools"
    mkdir -p "$trees/$1-tools"
    lower=$trees/$1 upper=$trees/$1-tools
    enter sh -c 'apt-get update -q && apt-get install -qy --no-install-recommends python3-venv python3-numpy gcc g++ libc6-dev pkg-config cmake make &&
        apt-get clean' && touch "$trees/$1-tools.ready"
}
fresh() { # LOWER: an empty layer on these trees
    rm -rf "$work/layer"
    mkdir "$work/layer"
    lower=$1 upper=$work/layer
}

deb_in() {
    local start=$EPOCHREALTIME
    fresh "$trees/$1"
    check "Debian $1: there is no Rust and no C compiler" enter sh -c '! command -v cargo && ! command -v rustc && ! command -v cc'
    listing >"$work/before"
    start=$EPOCHREALTIME
    check "Debian $1: apt-get install ./folioswap_${version}_amd64.deb" \
        enter apt-get install -qy --no-install-recommends "/dist/folioswap_${version}_amd64.deb" || return
    check "Debian $1: a program of the user land, 100 MiB within 64" enter folioswap run -m 64M -- perl -e \
        'my $x = join("", map chr, 0 .. 255) x (400 << 10); for (my $at = 0; $at < length $x; $at += 4099) { die $at unless ord(substr $x, $at, 1) == $at % 256 }'
    printf '        %6.2f s  from apt-get install to the end of that program\n' "$(took "$start")"
    check "Debian $1: the demonstration: four times its limit" enter folioswap run -m 64M -- /usr/libexec/folioswap/four-times 256
    check "Debian $1: --version" enter sh -c "folioswap --version | grep -x 'folioswap $version'"
    check "Debian $1: doctor" enter folioswap doctor
    check "Debian $1: doctor for an ordinary user names what mends it" enter sh -c \
        '! setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all folioswap doctor >/tmp/said && grep SYS_PTRACE /tmp/said'
    check "Debian $1: a tmpfs that swaps" enter sh -c 'folioswap mount /mnt --memory 64M --size 256M && head -c 150M /dev/urandom >/tmp/x &&
        cp /tmp/x /mnt/x && cmp /tmp/x /mnt/x; status=$?; folioswap umount /mnt || exit; rm /tmp/x; exit $status'
    if enter sh -c 'command -v mount.folioswap' >/dev/null; then
        check "Debian $1: mount(8) mounts it" enter sh -c 'mount -t folioswap folioswap /mnt -o memory=64M,size=128M && echo kept >/mnt/x &&
            grep -x kept /mnt/x; status=$?; umount /mnt || exit; exit $status'
    else
        skip "Debian $1: this folioswap does not know the name mount.folioswap"
    fi
    check "Debian $1: a read-only /var/tmp: compressed RAM alone, and one line" enter sh -c 'mount -t tmpfs -o ro none /var/tmp &&
        folioswap run -m 128M -- /usr/libexec/folioswap/four-times 192 2>/tmp/said >&2; status=$?; cat /tmp/said; umount /var/tmp
        [ $status -eq 0 ] && [ "$(grep -c "there is no swap file" /tmp/said)" -eq 1 ]; status=$?; rm /tmp/said; exit $status'
    check "Debian $1: pages and completions are there" enter sh -c 'test -s /usr/share/bash-completion/completions/folioswap &&
        test -e /usr/share/folioswap/seccomp.json && getent group folioswap'
    check "Debian $1: apt-get purge" enter apt-get purge -qy folioswap
    check "Debian $1: the deb leaves nothing" leaves_nothing
}
archive_in() {
    fresh "$trees/$1"
    enter true
    listing >"$work/before"
    check "Debian $1: the archive's install.sh" enter sh -c "cd /tmp && tar -xzf /dist/folioswap-$version-x86_64-linux-gnu.tar.gz &&
        cd folioswap-$version-x86_64-linux-gnu && ./install.sh" || return
    check "Debian $1: doctor of the archive" enter folioswap doctor
    check "Debian $1: a managed program of the archive" enter folioswap run -m 64M -- /usr/local/libexec/folioswap/four-times 256
    check "Debian $1: its units name its own prefix" enter grep -q '^ExecStart=/usr/local/bin/folioswap' /usr/local/lib/systemd/system/folioswap-run@.service
    check "Debian $1: installed once more over itself" enter sh -c "cd /tmp/folioswap-$version-x86_64-linux-gnu && ./install.sh && folioswap --version"
    check "Debian $1: its uninstall" enter sh /usr/local/share/folioswap/install.sh --uninstall
    check "Debian $1: the archive leaves nothing" leaves_nothing
    check "Debian $1: the development container's feature" enter sh -c "FOLIOSWAP_ARCHIVE=/dist/folioswap-$version-x86_64-linux-gnu.tar.gz \
        sh /tests/contrib/devcontainer/src/folioswap/install.sh && folioswap doctor && sh /usr/local/share/folioswap/install.sh --uninstall"
}
c_in() {
    fresh "$trees/$1-tools/data:$trees/$1"
    enter true
    listing >"$work/before"
    check "Debian $1: apt-get install ./libfolioswap-dev_${version}_amd64.deb" \
        enter apt-get install -qy --no-install-recommends "/dist/libfolioswap-dev_${version}_amd64.deb" || return
    check "Debian $1: the C example, by pkg-config" enter sh -c 'cd /tmp &&
        cc -std=c99 -O1 /usr/share/doc/libfolioswap-dev/examples/sort.c $(pkg-config --cflags --libs folioswap) -o sort && ./sort | grep -x sorted'
    check "Debian $1: the C example, the archive of the library" enter sh -c 'cd /tmp && cc -std=c99 -O1 /usr/share/doc/libfolioswap-dev/examples/objects.c \
        -l:libfolioswap.a $(pkg-config --static --libs-only-l folioswap | sed s/-lfolioswap//) -o objects && ./objects | grep -x kept'
    check "Debian $1: the C++ example, by CMake" enter sh -c 'cmake -S /tests/cmake -B /tmp/b -DEXAMPLES=/usr/share/doc/libfolioswap-dev/examples >/dev/null &&
        cmake --build /tmp/b && /tmp/b/raii | grep -x values'
    check "Debian $1: apt-get purge of the library" enter apt-get purge -qy libfolioswap-dev
    check "Debian $1: the library's deb leaves nothing" leaves_nothing
    check "Debian $1: the library's archive, in a prefix of its own" enter sh -c "cd /tmp && tar -xzf /dist/folioswap-c-$version-x86_64-linux-gnu.tar.gz &&
        folioswap-c-$version-x86_64-linux-gnu/install.sh --prefix /opt/folioswap" || return
    check "Debian $1: the C example against it" enter sh -c 'cd /tmp && export PKG_CONFIG_PATH=/opt/folioswap/lib/pkgconfig &&
        cc -std=c99 -O1 /opt/folioswap/share/doc/folioswap-c/examples/sort.c $(pkg-config --cflags --libs folioswap) \
        -Wl,-rpath,$(pkg-config --variable=libdir folioswap) -o sort && ./sort | grep -x sorted'
    check "Debian $1: the C++ example against it, by CMake" enter sh -c 'rm -rf /tmp/b; cmake -S /tests/cmake -B /tmp/b -DCMAKE_PREFIX_PATH=/opt/folioswap \
        -DEXAMPLES=/opt/folioswap/share/doc/folioswap-c/examples >/dev/null && cmake --build /tmp/b && /tmp/b/raii | grep -x values'
    check "Debian $1: its uninstall" enter sh /opt/folioswap/share/folioswap-c/install.sh --uninstall --prefix /opt/folioswap
    check "Debian $1: the library's archive leaves nothing" leaves_nothing
}
wheel_in() {
    local wheel
    wheel=$(one 'folioswap-*-cp311-abi3-*.whl') || { check "one wheel in $dist" false; return; }
    fresh "$trees/$1-tools/data:$trees/$1"
    check "Debian $1: the wheel, in an environment" enter sh -c "python3 -m venv --system-site-packages /opt/v &&
        /opt/v/bin/pip --disable-pip-version-check install -q --no-index --no-deps /dist/$(basename "$wheel")" || return
    check "Debian $1: a Python array larger than its limit" enter /opt/v/bin/python /tests/array.py
    check "Debian $1: the same for an ordinary user" enter setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all /opt/v/bin/python /tests/array.py
    check "Debian $1: pip uninstall leaves nothing" enter sh -c "/opt/v/bin/pip uninstall -qy folioswap && ! find /opt/v -iname '*folioswap*' | grep ."
}
debian() { # 12|13
    [ "$(id -u)" -eq 0 ] || { skip "Debian $1: only root can enter a tree"; return; }
    command -v debootstrap >/dev/null || { skip "Debian $1: debootstrap is not there (apt-get install debootstrap)"; return; }
    [ -e "$dist/SHA256SUMS" ] || { check "the packages in $dist: run scripts/release.sh first" false; return; }
    write_tests
    say "Debian $1"
    check "Debian $1: a bare tree" bare "$1" || return
    deb_in "$1"
    archive_in "$1"
    check "Debian $1: Python, compilers and CMake" tools "$1" || return
    c_in "$1"
    wheel_in "$1"
}
write_tests() { # the programs that use what is installed, and the files of contrib
    mkdir -p "$work/tests/cmake"
    cp -r contrib "$work/tests/"
    cat >"$work/tests/array.py" <<'PYTHON'
"""An array of 96 MiB within 32 MiB: it is sorted, and resident memory stays within the limit."""
import sys

import folioswap
import numpy

limit = folioswap.limit("32M", user_faults_only="allow")
array = folioswap.empty(12 << 20, dtype="float64")
generator = numpy.random.default_rng(7)
for at in range(0, array.size, 1 << 20):
    array[at:at + (1 << 20)] = generator.random(1 << 20)
total = array.sum()
array[:] = array[::-1].copy()
assert abs(array.sum() - total) < 1e-3 * abs(total)
assert array[-1] == numpy.random.default_rng(7).random(1)[0]
assert folioswap.is_managed(array) and folioswap.stats()["pswpout"] > 0
assert folioswap.resident_bytes(array) <= 32 << 20, folioswap.resident_bytes(array)
print("system calls too:", limit.serves_system_calls, file=sys.stderr)
PYTHON
    cat >"$work/tests/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(uses_folioswap CXX)
find_package(folioswap 0.2 REQUIRED)
set(CMAKE_CXX_STANDARD 11)
add_executable(raii ${EXAMPLES}/raii.cpp)
target_link_libraries(raii PRIVATE folioswap::folioswap)
CMAKE
}

main() {
    # crun refuses the hybrid set-up of cgroups. In a mount namespace of its own the second hierarchy can be out of sight.
    case ${1:-all} in
        all | image)
            if [ "$(id -u)" -eq 0 ] && [ -d /sys/fs/cgroup/unified ] && [ -z "${FOLIOSWAP_UNSHARED:-}" ]; then
                rm -rf "$work"
                FOLIOSWAP_UNSHARED=1 exec unshare --mount bash -c 'umount /sys/fs/cgroup/unified && exec bash "$0" "$@"' "$0" "$@"
            fi ;;
    esac
    case ${1:-all} in
        all) debian 12; debian 13; image; short ;;
        debian) debian "${2:-}" ;;
        image) image ;;
        short) short ;;
        *) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    sum
    exit
}
main "$@"
