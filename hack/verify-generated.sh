#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Fails when generated files differ from what `make generate` makes of the sources. It works on a copy of the
# working tree: nothing here changes, and work that is not committed yet is judged like any other.
set -euo pipefail

cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do
		if [[ -e $file ]]; then printf '%s\0' "$file"; fi
	done |
	tar --create --null --files-from=- | tar --extract --directory="$copy"

make --no-print-directory -C "$copy" generate TOOLS="$PWD/bin/tools" >"$copy/.generate.log" 2>&1 || {
	cat "$copy/.generate.log" >&2
	exit 1
}
rm "$copy/.generate.log"

# Files that only the working tree has are ignored ones; all else must be the same.
changes=$(diff --recursive --unified "$PWD" "$copy" | grep -v "^Only in $PWD" || true)
if [[ -n $changes ]]; then
	head -n 200 <<<"$changes"
	echo "Generated files are out of date: run 'make generate' and commit the result." >&2
	exit 1
fi
echo "Generated files are up to date."
