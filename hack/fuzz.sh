#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Fuzzes everything that parses bytes from elsewhere: each FuzzX function in the module for FUZZTIME, JOBS of them at once with one worker each.
# Go's own output says how many inputs were tried. What it finds it puts below testdata/fuzz, where it is a test case from then on.
#
# Not parsed by the product, and so not fuzzed: META and the installer's output (the exit code counts, not the text).
set -euo pipefail

cd "$(dirname "$0")/.."

# targets prints "DIRECTORY NAME" of every fuzz function.
targets() {
	grep --recursive --extended-regexp --only-matching --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . |
		sed --regexp-extended 's|^(.*)/[^/]*:func (Fuzz.*)$|\1 \2|' | sort
}

list=$(targets)
if [[ -z $list ]]; then
	echo "no fuzz functions were found" >&2
	exit 1
fi
# By default go spends up to a minute on making one new input smaller, which would be all of the time that there is.
fuzz() {
	local output status=0
	output=$("${GO:-go}" test -p 1 -run '^$' -fuzz "^$2\$" -fuzztime "${FUZZTIME:-20s}" -fuzzminimizetime 100x -parallel 1 "$1" 2>&1) || status=1
	printf '== %s %s\n%s\n' "$1" "$2" "$output"
	return "$status"
}
export -f fuzz
xargs --max-procs="${JOBS:-2}" --max-args=2 bash -c 'fuzz "$@"' fuzz <<<"$list"
