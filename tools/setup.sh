#!/usr/bin/env bash
# Makes .venv (or .venv-proto) hold exactly what a lock in requirements/ pins.
#
#   tools/setup.sh run     what a node needs            requirements/run.lock
#   tools/setup.sh dev     that and every tool          requirements/dev.lock
#   tools/setup.sh proto   the code generator, apart    requirements/proto.lock
#
# A stamp in the environment holds the digest of what was installed; with an equal one the script
# ends within milliseconds. Packages come from wherever pip is configured to find them.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "tidelog: $1" >&2
    echo "hint: $2" >&2
    exit 1
}

is_new_enough() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local name
    for name in ${TIDELOG_PYTHON:-} python3.11 python3 python3.12 python3.13 python3.14 python; do
        if is_new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    fail "Python 3.11 or newer was not found" "install it, or name it: TIDELOG_PYTHON=/path/to/python3"
}

digest() {
    cat "$@" | git hash-object --stdin
}

command -v git >/dev/null 2>&1 || fail "git was not found" "install git"

profile="${1:?usage: tools/setup.sh run|dev|proto}"
lock="requirements/$profile.lock"
[ -f "$lock" ] || fail "there is no $lock" "profiles are run, dev and proto"

case "$profile" in
    proto) venv=.venv-proto inputs=("$lock") ;;
    *) venv=.venv inputs=("$lock" pyproject.toml) ;;
esac

wanted="$(digest "${inputs[@]}")"
# What dev installs contains what run installs, so a current dev stamp serves both.
for stamp in "$venv/.installed-$profile" "$venv/.installed-dev"; do
    if [ "$stamp" = "$venv/.installed-dev" ] && [ "$profile" = run ]; then
        wanted="$(digest requirements/dev.lock pyproject.toml)"
    fi
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        exit 0
    fi
done
wanted="$(digest "${inputs[@]}")"

started=$SECONDS
if ! [ -x "$venv/bin/python" ]; then
    python="$(find_python)"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module" "install it (Debian, Ubuntu: apt install python3-venv)"
    "$python" -m venv "$venv"
fi

echo "tidelog: installing $lock into $venv ..." >&2
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet --no-input)
"${pip[@]}" install --require-hashes -r "$lock" ||
    fail "pip could not install $lock" "pip's message is above; is a package registry reachable?"
if [ "$profile" != proto ]; then
    "${pip[@]}" install --no-deps --no-build-isolation --editable . ||
        fail "pip could not install the project itself" "pip's message is above"
fi
rm -f "$venv"/.installed-*
echo "$wanted" >"$venv/.installed-$profile"
echo "tidelog: $venv is ready after $((SECONDS - started)) s" >&2
