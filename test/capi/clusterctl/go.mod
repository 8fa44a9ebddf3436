module ichor.maesh.dev/hub/test/capi/clusterctl

go 1.26.5

require (
	sigs.k8s.io/cluster-api v1.14.2
	sigs.k8s.io/cluster-api/api v1.14.2
)

tool sigs.k8s.io/cluster-api/cmd/clusterctl
