# Kubeocean. `make help` lists what there is.
#
# Every target works in a fresh clone: it installs or builds what it needs, or says what is missing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Arguments for the program or the tests: `make demo ARGS=--once`, `make test ARGS='-p kubeocean-api'`.
ARGS ?=

# What real nodes need: kubelets, containers, their network.
PACKAGES := containerd runc containernetworking-plugins iproute2 iptables nftables conntrack busybox-static util-linux

# A control plane watches 11 files, a real node 8 and more; several sandboxes run at once in the tests.
WATCHERS := 1024

KUBEOCEAN := target/debug/kubeocean

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 16

.PHONY: demo
demo: prepare build ## Start real clusters and walk through what Kubeocean does (ARGS=--once: exit at the end)
	@$(KUBEOCEAN) demo $(ARGS)

.PHONY: test
test: prepare lint ## Run all tests (ARGS goes to cargo test)
	@$(MAKE) --no-print-directory lab
	cargo test --locked $(ARGS)

.PHONY: build
build: ## Build the binary (target/debug/kubeocean)
	cargo build --locked --bin kubeocean

.PHONY: lab
lab: build ## Build the Kubernetes programs that sandboxes run, once
	@$(KUBEOCEAN) sandbox build

.PHONY: install
install: build kubectl ## Install the CRDs into the cluster of the current kube context
	$(KUBEOCEAN) crds | kubectl apply --server-side -f -

.PHONY: uninstall
uninstall: kubectl unbound ## Remove the CRDs from the cluster of the current kube context
	kubectl delete --ignore-not-found -k config/crd

# Your registry and tag: change `images` in config/manager/kustomization.yaml.
.PHONY: deploy
deploy: kubectl ## Install everything for a computing cluster into the cluster of the current kube context
	kubectl apply --server-side -k config/default

# The CRDs stay, and with them what people wrote. The roles go last: until then the manager may need them.
.PHONY: undeploy
undeploy: kubectl unbound ## Remove everything but the CRDs from the cluster of the current kube context
	@for part in manager network-policies admission rbac; do kubectl delete --ignore-not-found -k config/$$part; done
	@kubectl delete --ignore-not-found -f config/inline/network-policy.yaml -f config/inline/roles.yaml

.PHONY: kubectl
kubectl:
	@command -v kubectl >/dev/null || { echo 'kubectl is missing: install it, or put one into PATH from `kubeocean sandbox build kubectl`' >&2; exit 1; }

# A binding is taken apart by the manager: without it, its finalizer would stay for ever.
.PHONY: unbound
unbound:
	@defined=$$(kubectl get crd clusterbindings.cloud.tencent.com --ignore-not-found -o name); [ -n "$$defined" ] || exit 0; \
	bindings=$$(kubectl get clusterbindings -o name); [ -z "$$bindings" ] || { \
		echo "worker clusters are still bound; delete these first, and wait until they are gone:" $$bindings >&2; exit 1; }

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: lint
lint: ## Check format and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check licenses bans sources; \
	else echo "cargo-deny is not installed: a test checks the licences, nobody the bans"; fi

.PHONY: bench
bench: prepare ## Measure the sandbox, the door to API servers, the syncer, its pods, the proxier and the manager, and print the figures
	@$(MAKE) --no-print-directory lab
	cargo bench --locked --package kubeocean-cluster --bench cluster $(ARGS)
	cargo bench --locked --package kubeocean-testkit --bench testkit $(ARGS)
	cargo bench --locked --package kubeocean-sandbox --bench sandbox $(ARGS)
	cargo bench --locked --package kubeocean --bench syncer $(ARGS)
	cargo bench --locked --package kubeocean --bench pods $(ARGS)
	cargo bench --locked --package kubeocean --bench proxier $(ARGS)
	@$(MAKE) --no-print-directory budgets streams

# Both are tests, with numbers that tests have no time for: 200 bindings at once, and five minutes with nothing to do.
.PHONY: budgets
budgets: prepare ## Hold the manager to its budgets: memory with 200 bindings, no write in 300 s, and print the figures
	@$(MAKE) --no-print-directory lab
	KUBEOCEAN_BINDINGS=200 cargo test --locked --release --package kubeocean --test cli managing::many:: -- --nocapture
	KUBEOCEAN_STEADY_SECONDS=300 cargo test --locked --release --package kubeocean --test cli managing::quiet:: -- --nocapture

# The test of everything installed, with numbers that tests have no time for.
.PHONY: streams
streams: prepare ## Send 1 GiB through cp and port-forward on virtual nodes, follow a growing log 200 times, and print the figures
	@$(MAKE) --no-print-directory lab
	KUBEOCEAN_STREAM_MIB=1024 KUBEOCEAN_FOLLOWERS=200 cargo test --locked --release --package kubeocean --test cli installed:: -- --nocapture

# Tests as well, with as many pods as people have. A Deployment of a thousand needs more than the three minutes that all else has.
.PHONY: crowds
crowds: prepare ## Run the stories of pods with 1,000 pods, 200 completions, 500 creations under kills, and a cut of two minutes
	@$(MAKE) --no-print-directory lab
	KUBEOCEAN_PODS=1000 KUBEOCEAN_COMPLETIONS=200 KUBEOCEAN_CREATIONS=500 KUBEOCEAN_OUTAGE_SECONDS=120 KUBEOCEAN_LIMIT_SECONDS=900 \
		cargo test --locked --release --package kubeocean --test cli -- --nocapture --test-threads=1 managing::pods:: managing::pods_hurt::

# How many seeds `make soak` runs of each simulation, and from which one on.
SEEDS ?= 20000
FROM ?= 0

.PHONY: soak
soak: ## Run the simulations with many seeds (SEEDS=20000 FROM=0), optimised
	KUBEOCEAN_FIRST_SEED=$(FROM) KUBEOCEAN_SEEDS=$(SEEDS) cargo test --locked --profile soak --package kubeocean-manager --test manager simulated:: -- --nocapture
	KUBEOCEAN_FIRST_SEED=$(FROM) KUBEOCEAN_SEEDS=$(SEEDS) cargo test --locked --profile soak --package kubeocean-syncer --test syncer simulated:: -- --nocapture
	KUBEOCEAN_FIRST_SEED=$(FROM) KUBEOCEAN_SEEDS=$(SEEDS) cargo test --locked --profile soak --package kubeocean-testkit --test testkit sample:: -- --nocapture

.PHONY: run-manager
run-manager: build ## Run a manager here, if no other one leads, on the cluster of the current kube context (ARGS goes to it)
	$(KUBEOCEAN) manager --leader-elect --kubeconfig "$${KUBECONFIG:-$$HOME/.kube/config}" $(ARGS)

.PHONY: coverage
coverage: prepare ## Report which lines the tests reach
	@.ci/coverage $(ARGS)

# As root this prepares the machine; else it says what is missing. In CI missing things are a failure.
.PHONY: prepare
prepare: ## Install what real nodes need: Debian packages, and room for file watchers
	@missing=$$(for package in $(PACKAGES); do dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'install ok installed' || echo $$package; done); \
	watchers=$$(cat /proc/sys/fs/inotify/max_user_instances 2>/dev/null || echo $(WATCHERS)); \
	if [ -z "$$missing" ] && [ "$$watchers" -ge $(WATCHERS) ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "Real nodes are not possible here, or not many of them. To enable them:" >&2; \
		[ -z "$$missing" ] || echo "  sudo apt-get install -y --no-install-recommends" $$missing >&2; \
		[ "$$watchers" -ge $(WATCHERS) ] || echo "  sudo sysctl -w fs.inotify.max_user_instances=$(WATCHERS)" >&2; \
		if [ "$${CI:-}" = true ]; then exit 1; else exit 0; fi; \
	fi; \
	if [ -n "$$missing" ]; then \
		echo "Installing" $$missing; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi; \
	if [ "$$watchers" -lt $(WATCHERS) ]; then \
		echo "Raising fs.inotify.max_user_instances from $$watchers to $(WATCHERS) until the next boot"; \
		echo $(WATCHERS) 2>/dev/null >/proc/sys/fs/inotify/max_user_instances || echo "That is not allowed here: few sandboxes will run at a time" >&2; \
	fi
