#!/bin/sh
# Installs what is in this archive, and takes it away again.
#
#   ./install.sh [--prefix DIR] [--destdir DIR]              installs below DIR (/usr/local)
#   ./install.sh --uninstall [--prefix DIR] [--destdir DIR]  takes away what was installed there, and nothing else
#
# The list of installed files is PREFIX/share/@NAME@/installed, and a copy of this script lies beside it.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=/usr/local destdir='' action=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=${2:?--prefix wants a directory}; shift 2 ;;
        --prefix=*) prefix=${1#*=}; shift ;;
        --destdir) destdir=${2:?--destdir wants a directory}; shift 2 ;;
        --destdir=*) destdir=${1#*=}; shift ;;
        --uninstall) action=uninstall; shift ;;
        *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
done
case $prefix in
    /*) prefix=${prefix%/} ;;
    *) echo "install.sh: --prefix $prefix: give an absolute path, e.g. \$HOME/.local" >&2; exit 2 ;;
esac
root=$destdir$prefix
list=$root/share/@NAME@/installed

uninstall() {
    [ -f "$list" ] || { echo "install.sh: $list is not there: @NAME@ is not installed below $root" >&2; return 1; }
    copy=$(cat "$list")
    printf '%s\n' "$copy" | while IFS= read -r entry; do
        case $entry in
            */) ;;
            *) rm -f "$root/$entry" ;;
        esac
    done
    # Directories that were made, deepest first. One that others use by now stays.
    printf '%s\n' "$copy" | grep '/$' | sort -r | while IFS= read -r entry; do
        rmdir "$root/${entry%/}" 2>/dev/null || true
    done
    rmdir "$root" 2>/dev/null || true
}

if [ "$action" = uninstall ]; then
    uninstall
    if [ -z "$destdir" ] && [ "$(id -u)" -eq 0 ]; then ldconfig 2>/dev/null || true; fi
    exit 0
fi
[ -d "$here/files" ] || { echo "install.sh: $here/files is not there: run the script of the unpacked archive" >&2; exit 1; }
if ! mkdir -p "$root" 2>/dev/null || [ ! -w "$root" ]; then
    echo "install.sh: $root cannot be written: run it as root, or with --prefix \$HOME/.local" >&2
    exit 1
fi
[ ! -f "$list" ] || uninstall
mkdir -p "$root"

fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
(cd "$here/files" && find . -mindepth 1 -type d | sort | sed 's|^\./||') | while IFS= read -r directory; do
    [ -d "$root/$directory" ] || { mkdir "$root/$directory"; echo "$directory/" >>"$fresh"; }
done
(cd "$here/files" && find . ! -type d | sort | sed 's|^\./||') | while IFS= read -r file; do
    rm -f "$root/$file"
    cp -P "$here/files/$file" "$root/$file"
    echo "$file" >>"$fresh"
done
# Paths that these files name.
for file in lib/systemd/system/folioswap-run@.service lib/systemd/system/folioswap-mount@.service; do
    [ ! -f "$root/$file" ] || sed -i "s|/usr/bin/|$prefix/bin/|g" "$root/$file"
done
cp "$0" "$root/share/@NAME@/install.sh"
echo "share/@NAME@/install.sh" >>"$fresh"
echo "share/@NAME@/installed" >>"$fresh"
cp "$fresh" "$list"
chmod 644 "$list"
if [ -z "$destdir" ] && [ "$(id -u)" -eq 0 ]; then ldconfig 2>/dev/null || true; fi
echo "installed below $root; away again: sh $root/share/@NAME@/install.sh --uninstall --prefix $prefix"
case $prefix in
    /usr | /usr/local) ;;
    *) echo "its commands are found when $prefix/bin is in PATH" ;;
esac
