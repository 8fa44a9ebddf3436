module ichor.maesh.dev/hub/test/install/helm

go 1.26.5

require helm.sh/helm/v4 v4.3.1

tool helm.sh/helm/v4/cmd/helm
