#!/bin/sh
# Installs dibs into a virtual environment of its own, and puts its command on the path of all users.
set -eu

package=${PACKAGE:-}
where=${DIBS_PREFIX:-/usr/local}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

for wheel in "$here"/*.whl; do
    [ -n "$package" ] || [ ! -e "$wheel" ] || package=$wheel
done
[ -n "$package" ] || {
    echo "dibs is on no package index yet: put its wheel beside this script, or set the option package" >&2
    exit 1
}

python=$(command -v python3 || true)
if [ -z "$python" ] || ! "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "dibs: installing Python"
        apt-get update -qq
        apt-get install -qq --no-install-recommends python3 python3-venv >/dev/null
        python=$(command -v python3)
    fi
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "dibs needs Python 3.11 or newer: add the feature ghcr.io/devcontainers/features/python before this one" >&2
    exit 1
}

echo "dibs: installing $package"
"$python" -m venv "$where/lib/dibs"
"$where/lib/dibs/bin/python" -m pip install --quiet --disable-pip-version-check "$package"
mkdir -p "$where/bin"
ln -sf "$where/lib/dibs/bin/dibs" "$where/bin/dibs"
ln -sf "$where/lib/dibs/bin/agent-dibs" "$where/bin/agent-dibs"
"$where/bin/dibs" --version
