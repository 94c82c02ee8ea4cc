#!/usr/bin/env bash
# Makes a virtual environment in DIRECTORY unless it exists, builds the package from this checkout,
# and installs it there together with the packages that the tests need. Prints the environment's
# python.
#
#   python/build.sh DIRECTORY [PACKAGE...]      PACKAGE: further ones, such as pandas
set -euo pipefail
directory=$(realpath -m "$1")
shift
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
python=
for candidate in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || { echo "no Python 3.11 or later with venv and ensurepip (apt-get install python3-venv)" >&2; exit 77; }
[ -x "$directory/bin/python" ] || "$python" -m venv "$directory"
"$directory/bin/python" -m pip --disable-pip-version-check install -q 'maturin>=1.9.4,<2' numpy pytest "$@" >&2 ||
    { echo "pip cannot install what the tests need" >&2; exit 77; }
# Without these the tests of notebooks and of Arrow skip themselves, and say so.
"$directory/bin/python" -m pip --disable-pip-version-check install -q nbclient ipykernel pyarrow pandas >&2 ||
    echo "pip cannot install nbclient, ipykernel, pyarrow and pandas" >&2
# maturin builds the wheel as pip would, but keeps the build directory.
VIRTUAL_ENV=$directory "$directory/bin/maturin" build --quiet --release --locked --interpreter "$directory/bin/python" \
    --out "$directory/wheels" >&2
"$directory/bin/python" -m pip --disable-pip-version-check install -q --no-deps --force-reinstall "$directory"/wheels/folioswap-*.whl >&2
echo "$directory/bin/python"
