module ichor.maesh.dev/hub/hack/image

go 1.26.5

require (
	github.com/google/go-containerregistry v0.21.7
	github.com/onsi/gomega v1.42.1
	golang.org/x/crypto/x509roots/fallback v0.0.0-20261030153154-30a33513ff6d
)
