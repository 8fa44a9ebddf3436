#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Generates the CustomResourceDefinition of Cluster API's Cluster into the directory $1.
# Only v1beta2, and only this kind: the hub needs no other one, and a cluster with Cluster API keeps its own.
set -euo pipefail

out=$1
: "${CONTROLLER_GEN:?path of controller-gen}"

all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT

"$CONTROLLER_GEN" crd paths=sigs.k8s.io/cluster-api/api/core/v1beta2 output:crd:dir="$all"
mkdir -p "$out"
# The label tells Cluster API which version of the CRD serves its contract v1beta2.
sed 's|^  name: clusters\.cluster\.x-k8s\.io$|  labels:\n    cluster.x-k8s.io/v1beta2: v1beta2\n&|' \
	"$all/cluster.x-k8s.io_clusters.yaml" >"$out/cluster.x-k8s.io_clusters.yaml"
grep -q 'cluster.x-k8s.io/v1beta2: v1beta2' "$out/cluster.x-k8s.io_clusters.yaml"
