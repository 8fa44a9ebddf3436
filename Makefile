# SPDX-License-Identifier: Apache-2.0

# One set of build flags for everything, whatever the environment says: build, vet, test and lint share the
# build cache only when their flags are the same, and any other value compiles some 2,500 packages once more.
export GOFLAGS := -trimpath -buildvcs=false
export CGO_ENABLED := 0

GO ?= go
# Packages compiled at once. Linking the hub takes 2 GB, so more is not faster on a small machine.
JOBS ?= 2

# Processes of the controller suite, each with an API server of its own.
PROCS ?= 4

# End-to-end tests at once: specs of the largest suite, then packages. Their fleets mostly wait, too.
E2E_JOBS ?= 3

TOOLS := $(CURDIR)/bin/tools
CONTROLLER_GEN_VERSION := v0.21.0
GOLANGCI_LINT_VERSION := v2.15.0
BUF_VERSION := 1.75.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_CONNECT_GO_VERSION := v1.21.1
PROTOC_GEN_ES_VERSION := 2.13.0
CONTROLLER_GEN := $(TOOLS)/controller-gen-$(CONTROLLER_GEN_VERSION)
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
BUF_DIR := $(TOOLS)/buf-$(BUF_VERSION)
BUF := $(BUF_DIR)/node_modules/.bin/buf
# buf runs its plugins by their plain names.
PROTOC_GEN_GO := $(TOOLS)/protoc-gen-go-$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
PROTOC_GEN_CONNECT_GO := $(TOOLS)/protoc-gen-connect-go-$(PROTOC_GEN_CONNECT_GO_VERSION)/protoc-gen-connect-go
PROTOC_GEN_ES_DIR := $(TOOLS)/protoc-gen-es-$(PROTOC_GEN_ES_VERSION)
PROTOC_GEN_ES := $(PROTOC_GEN_ES_DIR)/node_modules/.bin/protoc-gen-es

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The embedded API server reports the version of the libraries it is made of; without these it says v0.0.0-master,
# which kubectl and Cluster API refuse.
KUBERNETES_VERSION = $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes)
KUBERNETES_PARTS = $(subst ., ,$(KUBERNETES_VERSION:v%=%))
COMPONENT := k8s.io/component-base/version
LDFLAGS = -s -w -X main.version=$(VERSION) \
	-X $(COMPONENT).gitVersion=$(KUBERNETES_VERSION) \
	-X $(COMPONENT).gitMajor=$(word 1,$(KUBERNETES_PARTS)) \
	-X $(COMPONENT).gitMinor=$(word 2,$(KUBERNETES_PARTS))

BINARIES := $(patsubst cmd/%,%,$(wildcard cmd/ichor cmd/ichor-*))
# What the tests start; they never build anything themselves.
export ICHOR_BINARY ?= $(CURDIR)/bin/ichor
export ICHOR_HUB_BINARY ?= $(CURDIR)/bin/ichor-hub
export ICHOR_SIM_BINARY ?= $(CURDIR)/bin/ichor-sim
export ICHOR_OPENID_BINARY ?= $(CURDIR)/bin/openid
export ICHOR_TALOSCTL_BINARY ?= $(CURDIR)/bin/talosctl
export ICHOR_CAPI_CORE_BINARY ?= $(CURDIR)/bin/capi-core
export ICHOR_KUBE_APISERVER_BINARY ?= $(CURDIR)/bin/kube-apiserver
export ICHOR_CLUSTERCTL_BINARY ?= $(CURDIR)/bin/clusterctl
export ICHOR_HELM_BINARY ?= $(CURDIR)/bin/helm

# End-to-end tests are the packages below a directory named e2e.
E2E_PACKAGES = $(shell $(GO) list ./... | grep -E '/e2e(/|$$)')
UNIT_PACKAGES = $(shell $(GO) list ./... | grep -vE '/e2e(/|$$)|/test/(scale|chaos)(/|$$)|/controllers/operation$$')
# Deep tests start control planes of real etcd and API servers; their names begin with TestDeep, wherever they are.
DEEP_PACKAGES = $(addprefix ./,$(shell grep -rl --include='*_test.go' '^func TestDeep' test hub controllers | xargs -n 1 dirname | sort -u))
BENCH_PACKAGES = $(E2E_PACKAGES) $(shell $(GO) list ./... | grep -E '/test/(scale|deep)(/|$$)')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

##@ Everyday

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z][a-z0-9-]*:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: $(addprefix build-,$(BINARIES)) ## Build bin/ichor, bin/ichor-hub and bin/ichor-sim.

.PHONY: $(addprefix build-,$(BINARIES))
$(addprefix build-,$(BINARIES)): build-%:
	$(GO) build -p $(JOBS) -ldflags "$(LDFLAGS)" -o bin/$* ./cmd/$*

# The same program under the name by which kubectl finds it: kubectl ichor.
build: bin/kubectl-ichor
bin/kubectl-ichor: build-ichor
	ln -sf ichor $@

# The page is part of the hub's binary.
build-ichor-hub: build-ui

UI_SOURCES = $(shell find ui/src ui/public -type f) ui/index.html ui/vite.config.ts ui/tsconfig.json ui/scripts/compress.mjs

.PHONY: build-ui
build-ui: ui/dist/index.html ## Build the page into ui/dist, from where the hub embeds it.

ui/dist/index.html: ui/node_modules/.package-lock.json $(UI_SOURCES)
	cd ui && npm run --silent build -- --logLevel warn

ui/node_modules/.package-lock.json: ui/package.json ui/package-lock.json
	cd ui && npm ci --no-audit --no-fund
	touch $@

# The tests' own kubectl; the product needs none.
.PHONY: build-kubectl
build-kubectl:
	$(GO) build -p $(JOBS) -ldflags "$(LDFLAGS)" -o bin/kubectl ./test/kubectl

# The API server and etcd of the deep simulation, in one binary.
.PHONY: build-kube-apiserver
build-kube-apiserver:
	$(GO) build -p $(JOBS) -ldflags "$(LDFLAGS)" -o bin/kube-apiserver ./test/kube-apiserver

# The tests' own identity provider, which the tests of the page sign in with.
.PHONY: build-openid
build-openid:
	$(GO) build -p $(JOBS) -ldflags "$(LDFLAGS)" -o bin/openid ./test/openid/provider

# Talos's own client, for the tests of the simulator. It takes minutes to compile, so it is made once.
.PHONY: build-talosctl
build-talosctl: bin/talosctl

bin/talosctl: test/talosctl/go.mod test/talosctl/go.sum test/talosctl/main.go
	$(GO) -C test/talosctl build -p $(JOBS) -ldflags "-s -w" -o $(CURDIR)/$@ .

# Cluster API's own core controllers, with their definitions and roles beside them, for the tests that run next to them. They have a
# module of their own: what they depend on is none of the product's business.
CAPI_CORE := test/capi/core
.PHONY: build-capi-core
build-capi-core: bin/capi-core

bin/capi-core: $(CAPI_CORE)/go.mod $(CAPI_CORE)/go.sum
	$(GO) -C $(CAPI_CORE) build -p $(JOBS) -ldflags "-s -w" -o $(CURDIR)/$@ sigs.k8s.io/cluster-api/core
	rm -rf $@-config && mkdir -p $@-config
	set -e; config=$$($(GO) -C $(CAPI_CORE) list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)/core/config; \
		install -m 644 "$$config"/crd/bases/*.yaml "$$config"/rbac/role.yaml "$$config"/rbac/aggregated_role.yaml $@-config

# Cluster API's own client, for the tests that hand it the provider.
CLUSTERCTL := test/capi/clusterctl
.PHONY: build-clusterctl
build-clusterctl: bin/clusterctl

bin/clusterctl: $(CLUSTERCTL)/go.mod $(CLUSTERCTL)/go.sum
	$(GO) -C $(CLUSTERCTL) build -p $(JOBS) -ldflags "-s -w" -o $(CURDIR)/$@ sigs.k8s.io/cluster-api/cmd/clusterctl

# Helm's own client, for the tests of the chart.
HELM := test/install/helm
.PHONY: build-helm
build-helm: bin/helm

bin/helm: $(HELM)/go.mod $(HELM)/go.sum
	$(GO) -C $(HELM) build -p $(JOBS) -ldflags "-s -w" -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm

.PHONY: demo
demo: build ## Run a hub and a simulated fleet until Ctrl-C (DEMO_ARGS="--clusters N --speed S --dir D --detach").
	./hack/demo.sh start $(DEMO_ARGS)

.PHONY: demo-stop
demo-stop: ## Stop a detached demo (DEMO_ARGS="--dir D").
	./hack/demo.sh stop $(DEMO_ARGS)

.PHONY: clean
clean: ## Remove what was built, but not the Go caches.
	rm -rf bin .cache ui/node_modules
	find ui/dist -mindepth 1 ! -name .keep -delete

##@ Checks

.PHONY: test
test: test-unit test-ui test-e2e test-deep ## Run every test.

.PHONY: test-unit
test-unit: build-ichor-hub ## Run unit tests and controller tests (these start the hub's API server).
	$(GO) test -p $(JOBS) -timeout 30m -skip '^TestDeep' $(UNIT_PACKAGES)
	GOGC=400 $(GO) run github.com/onsi/ginkgo/v2/ginkgo --procs $(PROCS) --timeout 30m ./controllers/operation # Otherwise its API servers spend a fifth of their time on garbage.
	$(GO) -C hack/image test -p $(JOBS) ./...

.PHONY: test-ui
test-ui: build build-openid ## Run the tests of the page: what it computes, then in a browser, then its size.
	cd ui && npm run --silent test
	cd ui && npm run --silent test:browser
	cd ui && npm run --silent size

.PHONY: test-e2e
test-e2e: build build-kubectl build-talosctl build-capi-core build-clusterctl build-helm ## Run the end-to-end tests on the binaries.
	ICHOR_REQUIRE_BINARIES=1 $(GO) run github.com/onsi/ginkgo/v2/ginkgo --procs $(E2E_JOBS) --timeout 40m ./test/e2e # Left out without a word is worse than red.
	ICHOR_REQUIRE_BINARIES=1 $(GO) test -p 1 -count=1 -run '^TestStart$$' ./hub/standalone/e2e # Beside nothing: it is held to seconds.
	ICHOR_REQUIRE_BINARIES=1 $(GO) test -p $(E2E_JOBS) -count=1 -timeout 40m -skip '^TestDeep|^TestStart$$' $(filter-out %/hub/test/e2e,$(E2E_PACKAGES))

.PHONY: test-deep
test-deep: build build-kubectl build-talosctl build-kube-apiserver ## Run the tests on clusters of real etcd and real API servers (DEEP_FLAGS=-short without the longest).
	ICHOR_REQUIRE_BINARIES=1 $(GO) test -p 1 -count=1 -timeout 60m $(DEEP_FLAGS) -run '^TestDeep' $(DEEP_PACKAGES)

# Beyond its own bounds a run hangs. Longer runs need more.
CHAOS_TIMEOUT ?= 20m

.PHONY: test-chaos
test-chaos: build-ichor-hub ## Let operations, faults and kills meet at random (CHAOS_DURATION=2m CHAOS_SEED=N CHAOS_CLUSTERS=5).
	$(GO) test -p 1 -count=1 -timeout $(CHAOS_TIMEOUT) -v ./test/chaos

.PHONY: test-replicas
test-replicas: build-ichor-hub ## Kill the leader of two replicas 20 times (REPLICAS_KILLS=N).
	REPLICAS_KILLS=$(or $(REPLICAS_KILLS),20) $(GO) test -p 1 -count=1 -timeout 60m -v ./test/replicas/...

FUZZTIME ?= 20s

.PHONY: fuzz
fuzz: ## Fuzz what parses bytes from elsewhere, FUZZTIME per function.
	GO=$(GO) JOBS=$(JOBS) FUZZTIME=$(FUZZTIME) ./hack/fuzz.sh

.PHONY: bench
bench: build build-kube-apiserver ## Measure speed and size (docs/benchmarks.md holds the figures).
	$(GO) test -p 1 -timeout 60m -run '^$$' -bench . -benchtime 1x $(BENCH_PACKAGES)

.PHONY: verify
verify: verify-generated verify-proto verify-modules verify-ui lint ## Check generated code, go.mod, style and the rule of imports.

.PHONY: verify-generated
verify-generated: $(CONTROLLER_GEN)
	./hack/verify-generated.sh

# What clients of the last release rely on is in the baseline, which `make proto-baseline` renews with a release.
.PHONY: verify-proto
verify-proto: $(BUF)
	cd proto && $(BUF) lint && $(BUF) breaking --against baseline.binpb

.PHONY: verify-ui
verify-ui: ui/node_modules/.package-lock.json
	cd ui && npm run --silent check

.PHONY: verify-modules
verify-modules:
	$(GO) mod tidy -diff
	$(GO) -C test/talosctl mod tidy -diff
	$(GO) -C $(CAPI_CORE) mod tidy -diff
	$(GO) -C $(CLUSTERCTL) mod tidy -diff
	$(GO) -C $(HELM) mod tidy -diff
	$(GO) -C hack/image mod tidy -diff

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run the linters; they hold the rule of imports, too.
	$(GOLANGCI_LINT) run --concurrency $(JOBS) ./...

##@ Generated code

.PHONY: generate
generate: generate-deepcopy generate-crds generate-rbac generate-proto ## Write deepcopy functions, CRDs, RBAC, the protocol, the chart and docs/reference.
	$(MAKE) --no-print-directory generate-docs generate-chart # They describe, and package, what the others write.

.PHONY: generate-deepcopy
generate-deepcopy: $(CONTROLLER_GEN)
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: generate-crds
generate-crds: $(CONTROLLER_GEN)
	rm -f config/crd/bases/*.yaml # A kind that is gone leaves no file behind.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	CONTROLLER_GEN=$(CONTROLLER_GEN) ./hack/cluster-crd.sh config/crd/cluster-api

.PHONY: generate-rbac
generate-rbac: $(CONTROLLER_GEN)
	$(CONTROLLER_GEN) rbac:roleName=ichor-hub paths=./controllers/... paths=./hub/... output:rbac:artifacts:config=config/rbac

.PHONY: generate-proto
generate-proto: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_CONNECT_GO) $(PROTOC_GEN_ES)
	rm -rf proto/gen ui/src/gen
	cd proto && PATH=$(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_CONNECT_GO)):$(dir $(PROTOC_GEN_ES)):$$PATH $(BUF) generate

.PHONY: generate-docs
generate-docs: $(BUF)
	$(BUF) build proto -o -#format=binpb | $(GO) run -p $(JOBS) ./hack/reference docs/reference /dev/stdin config/crd/bases/*.yaml

.PHONY: generate-chart
generate-chart:
	$(GO) run -p $(JOBS) ./hack/chart config config/chart/ichor-hub/templates/generated

.PHONY: proto-baseline
proto-baseline: $(BUF)
	cd proto && $(BUF) build --exclude-source-info -o baseline.binpb

##@ Releases

# Where the image is, without its tag.
IMAGE ?= ichor.maesh.dev/ichor-hub
RELEASE_DIR ?= $(CURDIR)/bin/release

.PHONY: release-manifests
release-manifests: generate-chart ## Write manifests, the provider for clusterctl and the chart (VERSION=v0.1.0 IMAGE=REGISTRY/NAME RELEASE_DIR=DIR).
	$(GO) run -p $(JOBS) ./hack/release --version $(VERSION) --image $(IMAGE) config $(RELEASE_DIR)

PLATFORMS ?= linux/amd64 linux/arm64
# The same sources give the same image: its time is that of the last commit.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: image
image: $(addprefix image-binary-,$(subst /,-,$(PLATFORMS))) ## Build the image as an OCI layout in bin/image, and what it is made of (PLATFORMS="linux/amd64 linux/arm64").
	$(GO) -C hack/image run -p $(JOBS) . --version $(VERSION) --created $(SOURCE_DATE_EPOCH) --out $(CURDIR)/bin/image --lock $(CURDIR)/ui/package-lock.json \
		$(foreach platform,$(PLATFORMS),$(platform)=$(CURDIR)/bin/$(subst /,-,$(platform))/ichor-hub)

image-binary-%: build-ui
	GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) $(GO) build -p $(JOBS) -ldflags "$(LDFLAGS)" -o bin/$*/ichor-hub ./cmd/ichor-hub

##@ Tools, at exact versions and outside go.mod

.PHONY: tools
tools: $(CONTROLLER_GEN) $(GOLANGCI_LINT) $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_CONNECT_GO) $(PROTOC_GEN_ES) ## Build the generators and linters.

# install-tool PACKAGE VERSION TARGET: `go install` names the binary after the package, the stamp carries the version.
define install-tool
	GOBIN=$(TOOLS) $(GO) install -p $(JOBS) $(1)@$(2)
	mv $(TOOLS)/$(notdir $(1)) $(3)
endef

$(CONTROLLER_GEN):
	$(call install-tool,sigs.k8s.io/controller-tools/cmd/controller-gen,$(CONTROLLER_GEN_VERSION),$@)

$(GOLANGCI_LINT):
	$(call install-tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,$(GOLANGCI_LINT_VERSION),$@)

# buf compiles protocols without the network; npm has it built.
$(BUF):
	npm install --silent --no-save --no-audit --no-fund --prefix $(BUF_DIR) @bufbuild/buf@$(BUF_VERSION)

$(PROTOC_GEN_GO):
	GOBIN=$(@D) $(GO) install -p $(JOBS) google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)

$(PROTOC_GEN_CONNECT_GO):
	GOBIN=$(@D) $(GO) install -p $(JOBS) connectrpc.com/connect/cmd/protoc-gen-connect-go@$(PROTOC_GEN_CONNECT_GO_VERSION)

$(PROTOC_GEN_ES):
	npm install --silent --no-save --no-audit --no-fund --prefix $(PROTOC_GEN_ES_DIR) @bufbuild/protoc-gen-es@$(PROTOC_GEN_ES_VERSION)
