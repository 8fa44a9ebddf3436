#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs a standalone hub and a simulated fleet, imports the fleet into the hub, and says how to go on.
#
#   demo.sh start [--clusters N] [--speed S] [--dir D] [--detach]
#   demo.sh stop [--dir D]
#
# It builds nothing (`make demo` does) and keeps everything in one directory, which goes when the demo stops.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${ICHOR_DEMO_BIN:-$root/bin}
dir=$root/.demo
clusters=3
speed=1
detach=false

start_seconds=60
available_seconds=120

fail() {
	echo "demo: $*" >&2
	exit 1
}

parse() {
	while (($# > 0)); do
		case $1 in
		--clusters | --speed | --dir)
			(($# > 1)) || fail "$1 needs a value"
			printf -v "${1#--}" '%s' "$2"
			shift 2
			;;
		--detach)
			detach=true
			shift
			;;
		*) fail "unknown argument $1" ;;
		esac
	done
	[[ $clusters =~ ^[1-9][0-9]*$ ]] || fail "--clusters: $clusters is not a positive number"
	dir=$(realpath --canonicalize-missing "$dir")
}

# launch NAME COMMAND... starts a process in a session of its own, so that Ctrl-C reaches this script alone, which
# stops the processes in order.
launch() {
	local name=$1
	shift
	setsid "$@" >"$dir/$name.log" 2>&1 </dev/null &
	echo $! >"$dir/$name.pid"
}

# running PID tells whether a process runs; one that only waits for its parent to notice its end does not.
running() {
	local state
	state=$(ps -o stat= -p "$1" 2>/dev/null) && [[ $state != Z* ]]
}

# alive NAME tells whether a process of this demo runs.
alive() {
	[[ -f $dir/$1.pid ]] && running "$(<"$dir/$1.pid")"
}

# await SECONDS NAME CONDITION... waits for a condition, but not for a process that has died.
await() {
	local deadline=$((SECONDS + $1)) name=$2
	shift 2
	until "$@"; do
		alive "$name" || fail "$name ended: $(tail -n 3 "$dir/$name.log")"
		((SECONDS < deadline)) || fail "$name takes too long, see $dir/$name.log"
		sleep 0.2
	done
}

# The link comes last of what the hub prints when it is ready.
hub_ready() { grep -q '^Sign in once' "$dir/hub.log"; }

# free_listen is the usual address of a hub, or any other one where somebody has that.
free_listen() {
	if (exec 3<>/dev/tcp/127.0.0.1/8443) 2>/dev/null; then
		echo 127.0.0.1:0
	else
		echo 127.0.0.1:8443
	fi
}

# serving PATTERN prints what the hub says of where it serves.
serving() { sed -n "s/^Serving: $1\$/\\1/p" "$dir/hub.log"; }

fleet_ready() { grep -q "^ready" "$dir/sim.log"; }

# fleet lists the simulated clusters; each has a directory with the credentials.
fleet() {
	find "$dir/fleet" -mindepth 2 -maxdepth 2 -name talosconfig -printf '%h\n' 2>/dev/null | xargs -r -n 1 basename | sort -V
}

all_available() {
	[[ $("$bin/ichor" cluster list 2>/dev/null | awk '
		NR == 1 { for (i = 1; i <= NF; i++) if ($i == "AVAILABLE") column = i; next }
		column && $column == "True" { available++ }
		END { print available + 0 }') -eq $clusters ]]
}

import_fleet() {
	local cluster
	for cluster in $(fleet); do
		"$bin/ichor" cluster import "$cluster" \
			--from-talosconfig "$dir/fleet/$cluster/talosconfig" --from-kubeconfig "$dir/fleet/$cluster/kubeconfig"
	done
}

start() {
	[[ $(uname -s) == Linux ]] || fail "the simulated fleet needs Linux: every node has an address of its own in 127.0.0.0/8"
	local name
	for name in ichor ichor-hub ichor-sim; do
		[[ -x $bin/$name ]] || fail "$bin/$name is missing: run 'make build'"
	done
	if alive hub || alive sim; then
		fail "a demo runs in $dir already: run 'make demo-stop' first"
	fi
	rm -rf "$dir"
	mkdir -m 0700 -p "$dir"
	trap stop EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM

	echo "Starting a hub and $clusters simulated clusters in $dir"
	launch sim "$bin/ichor-sim" serve --dir "$dir/fleet" --clusters "$clusters" --speed "$speed"
	launch hub "$bin/ichor-hub" serve --standalone --data-dir "$dir/hub" --listen "$(free_listen)"
	await "$start_seconds" hub hub_ready
	ln -s hub/kubeconfig "$dir/kubeconfig"
	# A context of the user's own must not lead elsewhere.
	export KUBECONFIG=$dir/kubeconfig ICHOR_CONFIG=$dir/ichor.yaml
	await "$start_seconds" sim fleet_ready
	import_fleet
	await "$available_seconds" hub all_available
	explain

	if $detach; then
		trap - EXIT
		echo "It runs until: make demo-stop DEMO_ARGS='--dir $dir'"
		return
	fi
	echo "Ctrl-C stops it."
	wait -n || true # One of the two has ended, which neither should.
	fail "a process of the demo ended: $(tail -n 3 "$dir/hub.log" "$dir/sim.log")"
}

explain() {
	local first link url fingerprint
	first=$(fleet | head -n 1)
	url=$(serving '\(https:[^ ]*\) .*')
	fingerprint=$(serving '.*SHA-256 \([0-9A-F:]*\))')
	link=$("$bin/ichor-hub" login-link --data-dir "$dir/hub" | sed 's/.*: https/https/')
	cat <<-END

		Every cluster is available. The hub serves on $url
		with a certificate that signs itself: SHA-256 $fingerprint

		In a browser, sign in within 10 minutes by this link, which works once:

		  $link

		In another terminal:

		  export PATH=$bin:\$PATH ICHOR_CONFIG=$dir/ichor.yaml KUBECONFIG=$dir/kubeconfig

		  ichor cluster list
		  ichor upgrade talos v1.14.1 --cluster $first --follow
		  ichor operation list

		That asks the hub's API server, as its administrator. To ask the hub instead, sign in to it by another link:

		  ichor-hub login-link --data-dir $dir/hub
		  ichor login --fingerprint $fingerprint --link 'LINK'

	END
}

# stop stops what runs, the hub first, and removes the directory.
stop() {
	local name
	for name in hub sim; do
		if alive "$name"; then
			end "$name"
		fi
	done
	rm -rf "$dir"
}

end() {
	local pid
	pid=$(<"$dir/$1.pid")
	kill -TERM "$pid" 2>/dev/null || return 0
	for _ in $(seq 150); do
		running "$pid" || return 0
		sleep 0.1
	done
	kill -KILL "$pid" 2>/dev/null || true
}

command=${1:-}
shift || true
case $command in
start)
	parse "$@"
	start
	;;
stop)
	parse "$@"
	stop
	;;
*) fail "usage: demo.sh start [--clusters N] [--speed S] [--dir D] [--detach] | stop [--dir D]" ;;
esac
