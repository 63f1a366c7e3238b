#!/usr/bin/env bash
# Makes .venv, or an environment beside it, hold exactly what a lock in requirements/ pins.
#
#   tools/setup.sh run     what a node needs            requirements/run.lock
#   tools/setup.sh dev     that and every tool          requirements/dev.lock
#   tools/setup.sh proto   the code generator, apart    requirements/proto.lock
#   tools/setup.sh oldest  the oldest of everything     requirements/oldest.lock
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

# The lock, and what of pyproject.toml an editable installation depends on.
digest() {
    {
        cat "requirements/$1.lock"
        [ "$1" = proto ] || sed -n '/^\[build-system\]/,/^\[tool\.pytest/p' pyproject.toml
    } | git hash-object --stdin
}

command -v git >/dev/null 2>&1 || fail "git was not found" "install git"

profile="${1:?usage: tools/setup.sh run|dev|proto|oldest}"
lock="requirements/$profile.lock"
[ -f "$lock" ] || fail "there is no $lock" "profiles are run, dev, proto and oldest"

case "$profile" in
    run | dev) venv=.venv ;;
    *) venv=".venv-$profile" ;;
esac

is_installed() {
    [ -f "$venv/.installed-$1" ] && [ "$(cat "$venv/.installed-$1")" = "$(digest "$1")" ]
}

# What dev installs contains what run installs.
if is_installed "$profile" || { [ "$profile" = run ] && is_installed dev; }; then
    exit 0
fi

started=$SECONDS
# An environment without pip was interrupted while it was made.
if ! [ -x "$venv/bin/python" ] || ! [ -x "$venv/bin/pip" ]; then
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
if [ "$profile" = dev ] && ! command -v java >/dev/null 2>&1 && [ -z "${JAVA_HOME:-}" ]; then
    echo "tidelog: no Java here: installing one for the Spark tests into $venv ..." >&2
    "${pip[@]}" install --require-hashes -r requirements/java.lock ||
        echo "tidelog: the Spark tests need Java 17 or newer" >&2
fi
rm -f "$venv"/.installed-*
digest "$profile" >"$venv/.installed-$profile"
echo "tidelog: $venv is ready after $((SECONDS - started)) s" >&2
