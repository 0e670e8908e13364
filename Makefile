# Drover. `make help` lists every target.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The device operators: api/NAME and internal/operators/NAME, with manifests of their own in config/operators/NAME.
# OPERATOR=NAME says which device operator install, run, deploy, docker-build and so on are for; without it, they are for Drover itself.
OPERATORS := deviceconfig ptemplate lolcow
OPERATOR ?=
PROGRAM := $(or $(OPERATOR),drover)-operator
TREE := $(if $(OPERATOR),config/operators/$(OPERATOR),config)
# The operator's image is IMAGE_TAG_BASE:IMAGE_TAG. Drover's other images lie beside it, under their own names. Without a registry they have
# names that resolve nowhere (RFC 2606): a short one would be that of a stranger's image on a public registry.
REGISTRY ?=
IMAGE_TAG_BASE ?= $(or $(REGISTRY),registry.invalid)/drover/$(PROGRAM)
IMAGE_TAG ?= dev
PLATFORMS ?= amd64,arm64
DIST ?= dist
KUBECTL ?= $(shell command -v kubectl || echo bin/kubectl)
NODES ?= 500
MODULES ?=
EVENTS ?= 10000
SEED ?= 1
FUZZTIME ?= 60s
LINKED := github.com/drover-project/drover/internal/shared/version
LDFLAGS := -s -w -X $(LINKED).Version=$(VERSION) $(if $(REGISTRY),-X $(LINKED).Registry=$(REGISTRY))
ALL_BINARIES := $(notdir $(wildcard cmd/*))
BINARIES := $(if $(OPERATOR),$(PROGRAM),$(ALL_BINARIES))
export CGO_ENABLED ?= 0

# Flags of what is compiled to be used once or in tests, as internal/testkit/gobuild has them: neither debug information nor, outside of the standard
# library, inlined calls, which takes a third off the compiler's time. What is released or measured is compiled without them.
QUICK := -trimpath '-gcflags=all=-l -dwarf=false' -gcflags=std=
demo test race bare rows attacks chart chart-install house conformance integration docs-test compare chaos chaos-node e2e e2e-preflight e2e-migrate e2e-operators e2e-skew: \
	export GOFLAGS := $(strip $(GOFLAGS) $(QUICK))

# Tools have modules of their own, and share nothing with Drover but Go's standard library: with the flags that they always had, Go's cache has them.
TOOLFLAGS := GOFLAGS=-trimpath

# For .ci/run, where all steps have the same flags, so that nothing is compiled twice.
.PHONY: quick
quick:
	@echo "$(QUICK)"

##@ Start here
.PHONY: demo
demo: ## Do the main job on an embedded cluster: a Module goes in, every node's kernel gets it (Ctrl-C ends; DEMO_ONCE=1 ends after Ready)
	@echo "demo: compiling what shows how far it is"
	@go run ./hack/demo

.PHONY: test
test: ## Pass the tests: all Go tests, against a real API server, those of what runs beside itself with the race detector (LOAD=4: beside four busy loops)
	@go run ./hack/runtests $(TESTFLAGS)

.PHONY: race
race: ## Pass the tests of what runs beside itself, with the race detector (gcc or clang)
	@go run ./hack/runtests -results "" -concurrent

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*##/ {printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build
.PHONY: build
build: generate manifests ## Generate what is generated, and build the binaries into bin/ (OPERATOR=NAME: that one)
	@$(MAKE) --no-print-directory $(addprefix bin/,$(BINARIES))

.PHONY: $(addprefix bin/,$(ALL_BINARIES))
$(addprefix bin/,$(ALL_BINARIES)): bin/%:
	go build -trimpath -ldflags "$(LDFLAGS)" -o $@ ./cmd/$*

# KMOD says whether the agent's image has kmod's modprobe: require, omit, or auto, which leaves it out, with a note, if it is out of reach.
IMAGES = go run ./images/cmd/drover-images --version $(VERSION) --tag-base $(IMAGE_TAG_BASE) --tag $(IMAGE_TAG) --arch $(PLATFORMS) --binary-dir $(DIST)/bin $(if $(OPERATOR),--only $(PROGRAM))

.PHONY: docker-build
docker-build: ## Build the container images into dist/ (no Docker daemon needed); load one with `docker load -i`
	$(IMAGES) --kmod $(or $(KMOD),auto) --tarball-dir $(DIST) --layout-dir $(DIST)/oci --sbom-dir $(DIST)/sbom

# What goes to a registry, or names images for clusters, needs to know where they are.
.PHONY: registry
registry:
	@$(if $(REGISTRY)$(filter-out file,$(origin IMAGE_TAG_BASE)),:,echo "REGISTRY is not set, so no image has a registry to be in: give \
	REGISTRY=registry.example.com/you, for images such as registry.example.com/you/drover/$(PROGRAM), or IMAGE_TAG_BASE" >&2; exit 1)

.PHONY: docker-push
docker-push: registry ## Build the container images and push them, with SBOM and provenance, to REGISTRY
	$(IMAGES) --kmod $(or $(KMOD),require) --push $(dir $(IMAGE_TAG_BASE)) --sbom-dir $(DIST)/sbom

.PHONY: pin-kmod
pin-kmod: ## Write images/kmod.lock anew: which packages of Debian's are in the agent's image (on Debian)
	go run ./images/cmd/drover-images --pin-kmod

.PHONY: krew
krew: registry ## Make archives of the command line tool, which knows REGISTRY, and the manifest by which krew installs it, in dist/krew (VERSION=v1.2.0)
	go run ./hack/krew --version $(VERSION) --registry "$(REGISTRY)" --out $(DIST)/krew

.PHONY: bundle
bundle: registry ## Make and validate a bundle for the Operator Lifecycle Manager in dist/bundle, and beside it what it cannot hold (VERSION=v1.2.0; PUSH=name; BREAK=definition must fail)
	go run ./hack/bundle --version $(VERSION) --operator-image $(IMAGE_TAG_BASE):$(IMAGE_TAG) --agent-image $(dir $(IMAGE_TAG_BASE))drover-agent:$(IMAGE_TAG) \
		--arch $(PLATFORMS) --out $(DIST)/bundle --rest $(DIST)/drover-nodes.yaml --layout $(DIST)/bundle-oci --push "$(PUSH)"
	@$(TOOLFLAGS) go run -C tools/olm . $(abspath $(DIST))/bundle

.PHONY: vendor
vendor: ## Make vendor/ and tools/vendor/ for offline builds (not committed)
	go mod vendor
	go -C tools mod vendor

##@ Generate
bin/controller-gen: tools/go.mod tools/go.sum
	$(TOOLFLAGS) go build -C tools -o ../$@ sigs.k8s.io/controller-tools/cmd/controller-gen

bin/typecheck: tools/typecheck/main.go tools/go.mod tools/go.sum
	$(TOOLFLAGS) go build -C tools -o ../$@ ./typecheck

bin/golangci-lint: tools/go.mod tools/go.sum
	@echo "building golangci-lint (several minutes the first time)"
	$(TOOLFLAGS) go build -C tools -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: generate
generate: bin/controller-gen ## Generate deep copies and apply configurations
	bin/controller-gen object paths=./api/...
	bin/controller-gen applyconfiguration paths=./api/...

# All packages below a folder but those of which parts of their own are made, such as $(call but,ooto,api).
but = $(patsubst %,paths=./$(2)/%/...,$(filter-out $(1),$(notdir $(patsubst %/,%,$(wildcard $(2)/*/)))))

bin/helm: tools/helm/go.mod tools/helm/go.sum
	@echo "building helm (minutes the first time)"
	$(TOOLFLAGS) go build -C tools/helm -o ../../$@ helm.sh/helm/v4/cmd/helm

# What a quantity may look like. Generated CRDs allow any number of digits, also in the exponent, and who reads a quantity counts that out:
# 1E-2147483648 in a Module would keep the operator busy for hours.
QUANTITY := ^(\\+|-)?([0-9]{1,64}(\\.[0-9]{0,64})?|\\.[0-9]{1,64})([KMGTPE]i|[numkMGTPE]|[eE](\\+|-)?[0-9]{1,2})?$$

.PHONY: manifests
manifests: bin/controller-gen ## Generate CRDs and roles, and from them, flags and linked modules the Helm chart and pages of docs/reference
	bin/controller-gen crd $(call but,ooto hub $(OPERATORS),api) output:crd:artifacts:config=config/crd/bases
	bin/controller-gen crd paths=./api/hub/... output:crd:artifacts:config=config/hub
	bin/controller-gen crd paths=./api/ooto/... output:crd:artifacts:config=config/ooto
	bin/controller-gen rbac:roleName=drover-operator,fileName=operator_role.yaml $(call but,ooto hub claims condition,internal/operator/controller) output:rbac:artifacts:config=config/rbac
	bin/controller-gen rbac:roleName=drover-hub,fileName=hub_role.yaml paths=./internal/hub/... paths=./internal/operator/controller/hub/... paths=./internal/operator/controller/moduleimage/... paths=./internal/build/sources/... output:rbac:artifacts:config=config/hub
	bin/controller-gen rbac:roleName=drover-operator-build,fileName=operator_role.yaml paths=./internal/build/sources/... output:rbac:artifacts:config=config/build
	bin/controller-gen rbac:roleName=drover-operator,fileName=operator_role.yaml $(call but,ooto hub claims condition moduleimage preflight,internal/operator/controller) output:rbac:artifacts:config=config/spoke
	bin/controller-gen rbac:roleName=drover-claims,fileName=claims_role.yaml paths=./internal/operator/controller/claims/... output:rbac:artifacts:config=config/spoke
	bin/controller-gen rbac:roleName=drover-operator-ooto,fileName=operator_role.yaml paths=./internal/operator/controller/ooto/... output:rbac:artifacts:config=config/ooto
	bin/controller-gen rbac:roleName=drover-operator-node-condition,fileName=operator_role.yaml paths=./internal/operator/controller/condition/... output:rbac:artifacts:config=config/node-condition
	bin/controller-gen rbac:roleName=drover-agent,fileName=agent_role.yaml paths=./internal/agent/... output:rbac:artifacts:config=config/rbac
	for o in $(notdir $(wildcard $(addprefix api/,$(OPERATORS)))); do \
		bin/controller-gen crd paths=./api/$$o/... output:crd:artifacts:config=config/operators/$$o/crd; done
	grep -rl numkMGTPE config | xargs sed -i 's/pattern: .*numkMGTPE.*/pattern: $(QUANTITY)/'
	for o in $(notdir $(wildcard $(addprefix internal/operators/,$(OPERATORS)))); do \
		bin/controller-gen rbac:roleName=$$o-operator-manager-role,fileName=role.yaml paths=./internal/operators/$$o/... output:rbac:artifacts:config=config/operators/$$o/rbac; done
	go run ./hack/chart
	go run ./hack/reference
	go run ./hack/licences

##@ A cluster of yours
bin/kubectl: ; @go run ./hack/devcluster assets >/dev/null

.PHONY: install
install: $(filter bin/kubectl,$(KUBECTL)) ## Install the CRDs into the current cluster (OPERATOR=NAME, as below: those of that device operator)
	$(KUBECTL) apply --server-side -k $(TREE)/crd
	@$(KUBECTL) kustomize $(TREE)/crd | $(KUBECTL) wait --for=condition=Established --timeout=60s -f - >/dev/null
	@# Established comes before what is served is known to everybody.
	@for crd in $$($(KUBECTL) get -k $(TREE)/crd -o name | sed -n 's#^customresourcedefinition[^/]*/##p'); do \
		timeout 60 sh -c "until $(KUBECTL) explain $$crd >/dev/null 2>&1; do sleep 0.2; done" || { echo "$$crd is not served after 60 seconds" >&2; exit 1; }; \
	done

.PHONY: uninstall
uninstall: $(filter bin/kubectl,$(KUBECTL)) ## Remove the CRDs (nothing is unloaded from any kernel)
	$(KUBECTL) delete --ignore-not-found -k $(TREE)/crd

# The images of a copy of config/ are made those of IMAGE_TAG_BASE and IMAGE_TAG.
.PHONY: deploy
deploy: registry $(filter bin/kubectl,$(KUBECTL)) ## Install everything into the current cluster, with the images of REGISTRY and IMAGE_TAG
	@copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; cp -R config "$$copy/"; \
	sed -E -e 's#newName: registry.invalid/drover/$(PROGRAM)$$#newName: $(IMAGE_TAG_BASE)#' \
		-e 's#newName: registry.invalid/drover/#newName: $(dir $(IMAGE_TAG_BASE))#' \
		-e 's#newTag: dev$$#newTag: "$(IMAGE_TAG)"#' $(TREE)/default/kustomization.yaml >"$$copy/$(TREE)/default/kustomization.yaml"; \
	(set -x; $(KUBECTL) apply --server-side -k "$$copy/$(TREE)/default")

.PHONY: undeploy
undeploy: $(filter bin/kubectl,$(KUBECTL)) $(if $(OPERATOR),,bin/drover-operator) ## Remove what deploy installed, but no CRD that holds objects; nothing is unloaded
	@KUBECTL=$(KUBECTL) hack/undeploy $(TREE)/default $(if $(OPERATOR),,bin/drover-operator release)

.PHONY: run
run: $(if $(OPERATOR),,registry) bin/$(PROGRAM) ## Run the operator on this machine against the current cluster (ARGS: more of its flags)
	$(if $(OPERATOR),bin/$(PROGRAM) --leader-elect=false,OPERATOR_NAMESPACE=drover-system bin/$(PROGRAM) --agent-image $(dir $(IMAGE_TAG_BASE))drover-agent:$(IMAGE_TAG) --examiner-image $(IMAGE_TAG_BASE):$(IMAGE_TAG) --leader-elect=false) $(ARGS)

##@ Check
.PHONY: lint
lint: bin/golangci-lint ## Run the linters
	bin/golangci-lint run ./...

# Not in tools/: nothing else needs its dependencies.
.PHONY: bin/vulncheck
bin/vulncheck:
	go build -trimpath -o $@ ./hack/vulncheck

.PHONY: vulncheck
vulncheck: bin/vulncheck ## Look for known vulnerabilities in what the programs call, by govulncheck; UNCHECKED: its database is out of reach (GOVULNDB names another)
	@bin/vulncheck

.PHONY: vulncheck-reachable
vulncheck-reachable: bin/vulncheck ## The same, but a database out of reach is only a warning
	@bin/vulncheck || { code=$$?; [ $$code = 75 ] || exit $$code; echo "WARNING: no vulnerability was looked for"; }

.PHONY: workflows
workflows: ## Check the workflows of .github with actionlint, which is fetched
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7

.PHONY: verify
verify: bin/controller-gen bin/typecheck ## Check generated files, go.mod, the offline build and all platforms
	@hack/verify

# Tests that ask other programs have the build tag compare. gcc, kmod and the like are installed where apt-get is.
COMPARED := ./images ./internal/agent/blacklist ./internal/agent/host ./internal/agent/modprobe ./internal/shared/imagefs ./internal/shared/kmod ./internal/shared/kmod/sign ./samples/kmods
.PHONY: compare
compare: ## Compare with kmod, binutils, OpenSSL, sign-file, xz, zstd, and run the sample kernel modules' code under gcc's sanitizers (linux with apt-get; root)
	@hack/compare $(COMPARED)

.PHONY: fuzz
fuzz: ## Feed each parser of foreign bytes with bytes that nobody thought of (FUZZTIME=60s or 1000x for each; ONLY=kmod for some of them)
	@FUZZTIME="$(FUZZTIME)" ONLY="$(ONLY)" go run ./hack/fuzz

.PHONY: bare
bare: ## Run `make demo` and `make test` as README says, in a bare Debian with Go, make, git and certificates alone, not as root (COLD=1: with empty Go caches; linux with apt-get; root)
	@hack/bare

.PHONY: proofs
proofs: ## Run what takes too long for .ci/run, one after another, and go on after a red one (ONLY=dra,web or GROUP=tests,kernel,build,modules,operators,web,fleet; hours; as e2e-kernel)
	@go run ./hack/proofs

.PHONY: chart
chart: bin/helm ## Compare the Helm chart with kustomize for each way of installing, lint it, and try each of its values (BREAK=object must fail)
	@go run ./test/chart

.PHONY: chart-install
chart-install: bin/helm ## Install, upgrade and uninstall the Helm chart on a real API server, by the commands of docs/guide/install.md; then undeploy
	@go test -tags helm -count=1 -timeout 30m -run '^(TestInstallUpgradeUninstall|TestUndeploy)$$' ./test/chart

.PHONY: rows
rows: ## Say which requirements are proved, from the results of the last `make test`
	@go run ./hack/rows -results $$(test -f .cache/test.json && echo .cache/test.json)

.PHONY: house
house: ## Say which files, functions, packages and lines of prose are beyond the bounds of CONTRIBUTING.md
	@go run ./hack/house

.PHONY: conformance
conformance: ## Run the numbered conformance cases against the operator and hollow nodes (NUMBERS=33,57 for some of them)
	@go run ./hack/conformance -only "$(NUMBERS)"

# `make test` runs the same tests. This prints a line for each attack, and RESULT. modprobe is a way in where an answer is missing.
.PHONY: attacks
attacks: export ATTACKS_KMOD := required
attacks: ## Try to break in, as each identity, by each way of the table in docs/reference/security.md (BREAK=policy or check must fail; BREAKS=all tries each of them; apt-get)
	@command -v modprobe >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kmod; } >&2
	@go test ./test/attacks -run '$(if $(BREAKS),^TestBreaks$$,^(TestAttacks|TestEveryAnswerAnswers|TestRowsAreWhole|TestChecksStand)$$)' -count=1 -timeout 60m -v | awk '/^RESULT/ {r = $$0; next} {print} END {print r}'

.PHONY: docs-test
docs-test: ## Do what README and docs/guide say, block by block, on hollow nodes, and check the links of all pages (PAGES=ready.md,… for some of them)
	@go run ./test/docs

.PHONY: kmods
kmods: ## Compile the sample kernel modules for Debian's Linux 6.1 and 6.12, every warning an error, and read what came out (as e2e-kernel; no machine is started)
	@go run ./test/vm/kmodcheck

# Kubernetes 1.37 is what all tests use. tools/devcluster has the modules of older releases, from which the same programs are compiled.
.PHONY: integration
integration: export KUBERNETES ?= 1.31
integration: ## Test the controllers and the device operators against the API server of another release (KUBERNETES=1.31, 1.33, 1.34 or 1.36; so do e2e and conformance)
	@go run ./hack/runtests -results "" -packages "./internal/operator/controller/... ./internal/operator/... ./internal/operators/... ./test/api"

##@ On real and hollow nodes
.PHONY: e2e-kernel
e2e-kernel: ## Load real modules into a real kernel on a virtual node (GROUP=main, node for drift, reboots and crashes, disk for power cuts, selinux, versions for older kubelets, dra, or operators; linux/amd64 with apt-get; root)
	@go run ./test/vm/e2e

.PHONY: e2e-install
e2e-install: bin/helm ## Install the Helm chart on a virtual node, load, upgrade and uninstall: the module stays in the kernel (BREAK=unload must fail; as e2e-kernel)
	@GROUP=install go run ./test/vm/e2e

.PHONY: e2e-build e2e-dkms e2e-hub
e2e-hub: ## Have a hub build for two spokes with kernels of their own, by Open Cluster Management's own agent and by kubeconfigs (as e2e-kernel)
	@GROUP=hub go run ./test/vm/e2e

e2e-build: ## Build, sign and push kernel modules on a node, and load them on a virtual one (as e2e-kernel)
	@GROUP=build go run ./test/vm/e2e

e2e-dkms: ## Do so with Debian's packages PKGS="a-dkms b-dkms", each natively, then all from one Dockerfile (as e2e-kernel)
	@GROUP=dkms PKGS="$(PKGS)" go run ./test/vm/e2e

# .ci/run needs no step for it: `make test` runs the same tests. `make proofs` runs it for its summary.
.PHONY: e2e e2e-preflight
e2e: ## Run groups of tests on one fleet of hollow nodes, with one line each (GROUP=lifecycle,rollout,preflight,failures: all of them)
	@go run ./hack/e2e

e2e-preflight: ## Ask whether Modules are ready for kernels that no node runs: real Jobs' steps, a real registry, one line for each promise
	@GROUP=preflight go run ./hack/e2e

.PHONY: e2e-migrate
e2e-migrate: bin/helm ## Take hollow nodes over from KMM's leftovers, and give them back: no load, no unload, no plugin restarts (BREAK=report must fail)
	@go test -tags migrate ./test/migrate -run '^TestMigrate' -count=1 -timeout 40m -v | awk '/^RESULT/ {r = $$0; next} {print} END {print r}'

# The version before this one: its tag, once there is a release.
.PHONY: e2e-skew
e2e-skew: BASE ?= 014f9a6d4c698ec8c4164efd07e2bc44c26a9b46
e2e-skew: ## Have the version before (BASE, a commit) and this one work together on hollow nodes, operator against agents both ways, with downgrades in the middle (BREAK=unload or field must fail)
	@go run ./test/skew --base $(BASE)

.PHONY: e2e-visit
e2e-visit: NODES = 60
e2e-visit: ## Change three Modules together on NODES hollow nodes in two pools, under a limit that they share, judged by kernels and cordons (BREAK=budget must fail)
	@go run ./test/visit --nodes $(NODES)

.PHONY: e2e-web
e2e-web: ## Look at the LolCow's page in Chromium, started as the operator's Deployment starts it: one boolean for each property (SHOTS=docs/images renews the pictures; apt-get)
	@command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-noto-color-emoji fonts-dejavu-core; } >&2
	@go test -C test/web . >&2 && go run -C test/web .

# The generator's packages are unpacked where no other check looks for pages.
.PHONY: docs-site
docs-site: ## Build the pages into a static site, .cache/site/dist, check its links and that each field, flag, reason and metric is in it, and look at it (SHOTS=folder; npm, chromium)
	@command -v chromium >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-noto-color-emoji fonts-dejavu-core; } >&2
	@command -v npm >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm; } >&2
	@mkdir -p .cache/site-tool && cp -R tools/site/. .cache/site-tool/
	@cmp -s tools/site/package-lock.json .cache/site-tool/node_modules/installed || { npm --prefix .cache/site-tool ci --ignore-scripts --no-audit --no-fund && \
		cp tools/site/package-lock.json .cache/site-tool/node_modules/installed; } >&2
	@go test -C test/web ./site/... >&2 && go run -C test/web ./site

# As e2e: .ci/run needs no step for it.
.PHONY: e2e-operators
e2e-operators: ## Have the device operators make ready what their documents print, each a process under its own role; then with upstream's Module (BREAK=field, role or operator must fail)
	@go test ./test/operators -count=1 -timeout 40m -v | awk '/^RESULT/ {r = $$0; next} {print} END {print r}'

.PHONY: e2e-minikube
e2e-minikube: ## Deploy the LolCow operator into minikube, and read its page (TOOL=kind, or TOOL=current for the cluster that kubectl points to)
	@TOOL=$(or $(TOOL),minikube) KUBECTL=$(KUBECTL) hack/e2e-minikube

.PHONY: bench-agent
bench-agent: ## Measure what the agent costs on a virtual node: memory, idle CPU, load time against modprobe (as e2e-kernel)
	@GROUP=agent go run ./test/vm/e2e

.PHONY: bench-boot
bench-boot: ## Measure boots of a virtual node until a Module is usable: cold, warm, and baked by `drover bake` (BREAK=bake must fail; as e2e-kernel)
	@GROUP=boot go run ./test/vm/e2e

.PHONY: privileges
privileges: ## Take away each thing the agent is allowed on a node, and show what breaks (as e2e-kernel)
	@GROUP=privileges go run ./test/vm/e2e

.PHONY: chaos-node
chaos-node: ## Make EVENTS random things (of one SEED) happen to an agent on a fake kernel, and audit every call to the kernel
	@go test ./internal/agent -run '^TestChaos$$' -count=1 -timeout 20m -v -chaos.events=$(EVENTS) -chaos.seed=$(SEED) -chaos.break=$(BREAK) | awk '/^RESULT/ {r = $$0; next} {print} END {print r}'

# A Go module of its own, which links kube-apiserver.
.PHONY: sim sim-test sim-mutations memapi-diff
sim: ## Make histories of a simulated cluster happen, and judge them by promises (SEED=1 HISTORIES=200 MINUTES=10 ONLY=promise)
	@go build -C test/sim -o ../../.cache/sim . && cd test/sim && ../../.cache/sim --seed $(SEED) --histories $(or $(HISTORIES),200) --minutes $(or $(MINUTES),0) --only "$(ONLY)"

sim-test: ## Test the simulation itself, and play the histories that are kept
	@go test -C test/sim -vet=off ./disk ./history ./images ./kubelet ./memapi ./memetcd ./mutations ./process ./states ./world # vet would look at all of Kubernetes

sim-mutations: ## Put faults into the product, one at a time: the simulation finds each within its number of histories (ONLY=name, a regular expression)
	@cd test/sim && go run ./mutations --only "$(ONLY)"

memapi-diff: ## Ask the simulation's API server and kube-apiserver the same QUESTIONS (of one SEED): their answers are equal
	@go test -C test/sim ./diff -run '^TestAnswersAsKubeAPIServer$$' -count=1 -timeout 60m -v -questions $(or $(QUESTIONS),5200) -seed $(SEED) | awk '/^RESULT/ {r = $$0; next} {print} END {print r}'

.PHONY: chaos
chaos: ## Upgrade a Module on NODES hollow nodes under operator kills, reboots and API server restarts (of one SEED), and audit every unload from outside
	@go run ./test/chaos --nodes $(NODES) --seed $(SEED)

.PHONY: soak
soak: NODES = 300
soak: MINUTES ?= 10
soak: ## Make storms of all that goes wrong on NODES hollow nodes (300) for MINUTES (10), of one SEED; after each, all becomes well, no call was unasked, nothing grows (BREAK=unload or leak must fail)
	@go run ./test/soak --nodes $(NODES) --minutes $(MINUTES) --seed $(SEED)

.PHONY: alerts
alerts: ## Have a real Prometheus watch the operator: each class of faults fires its alert, and QUIET=5m of upgrades and reboots none (BREAK=rule must fail; apt-get)
	@command -v promtool >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus; } >&2
	@go run ./test/alerts

.PHONY: graph
graph: ## Compare what is loaded for each module of Debian's amd64 and arm64 kernels with modprobe (linux/amd64 with apt-get)
	@go run ./test/vm/graph

.PHONY: bench-resolve
bench-resolve: ## Measure how long it takes to find out what to load for each of 4,023 modules, against modprobe (linux/amd64 with apt-get)
	@go run ./test/bench/resolve

.PHONY: bench-sign
bench-sign: ## Sign all modules of Debian's amd64 kernel, and compare bytes and time with the kernel's sign-file; sign one in an image of 1 GiB (linux/amd64 with apt-get)
	@go run ./test/bench/sign

.PHONY: bench-memory
bench-memory: ## Measure what the operator's caches hold for each of MODULES Modules on each of NODES nodes, and what its process takes there (16 GiB for 5,000 nodes)
	@go run ./test/bench/memory --nodes $(NODES) --modules $(or $(MODULES),20)

.PHONY: bench-hub
bench-hub: ## Measure what each of CLUSTERS simulated clusters costs a hub, and each of five times as many
	@go run ./test/bench/hub --clusters $(or $(CLUSTERS),200)

.PHONY: bench-fleet
bench-fleet: ## Measure a fleet of NODES hollow nodes against a floor in the same run, or several one after the other (NODES=500,2000,5000 MODULES=1,5 SVG=FILE)
	@go run ./test/bench/fleet --nodes $(NODES) --modules $(or $(MODULES),1) --svg "$(SVG)"

.PHONY: bench-upgrade
bench-upgrade: ## Measure a Module's upgrade on NODES hollow nodes against a floor in the same run
	@go run ./test/bench/change --nodes $(NODES) --change upgrade

.PHONY: bench-delete
bench-delete: ## Measure a Module's deletion from NODES hollow nodes against a floor in the same run
	@go run ./test/bench/change --nodes $(NODES) --change delete
