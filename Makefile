# Everything is set up by the targets that need it; `make help` lists them.
# Stamp files remember what was done: .venv/.stamp the Python packages, tests/cluster/libs/.stamp Kafka's jars.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
# The newest Python that the package supports and this machine has; `make PYTHON=/path setup` names another.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
  if $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then command -v $$p; break; fi; done)
PYTEST := $(BIN)/python -m pytest
ARGS ?=

.PHONY: help
help: ## What can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.stamp ## A virtual environment in .venv with everything that is locked

$(VENV)/.stamp: requirements/dev.txt requirements/run.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
	  echo "Python 3.11, 3.12 or 3.13 (with venv) is not on the PATH: install it, or name it: make PYTHON=/path/to/python" >&2; exit 1; fi
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: jars
jars: $(VENV)/.stamp ## Kafka's jars in tests/cluster/libs (JDK 17+ and Maven)
	@$(BIN)/python -m tests.cluster

.PHONY: languages
languages:
	@for tool in go node; do \
	  if ! command -v $$tool >/dev/null; then \
	    if [ "$${CI:-}" = true ]; then echo "$$tool is not on the PATH, and CI=true skips nothing: install it" >&2; exit 1; fi; \
	    echo "$$tool is not on the PATH: its Kafka clients are skipped" >&2; \
	  fi; done

# Tools in Go need a newer one than Debian 12 has; without it they are left out, except where CI=true.
GO := $(shell v=$$(go env GOVERSION 2>/dev/null) && printf 'go1.26\n%s\n' "$$v" | sort --check=quiet --version-sort && echo go)
NO_GO := Go 1.26 or newer is not on the PATH

# Helm, kubeconform, kustomize, kube-score, and the API server's admission, in build/bin; kube-score needs older libraries,
# so it is a module of its own. Building them anew takes minutes: Go's own cache keeps what is built.
KUBERNETES := tests/packaging/kubernetes/tools

build/bin/.kubernetes: $(wildcard $(KUBERNETES)/go.* $(KUBERNETES)/*/*.go $(KUBERNETES)/score/go.*)
	cd $(KUBERNETES) && GOTOOLCHAIN=local GOBIN=$(CURDIR)/build/bin go install -mod=readonly tool ./admit
	cd $(KUBERNETES)/score && GOTOOLCHAIN=local GOBIN=$(CURDIR)/build/bin go install -mod=readonly tool
	touch $@

.PHONY: chart-tools
chart-tools: languages
	@if [ -n "$(GO)" ]; then $(MAKE) --no-print-directory build/bin/.kubernetes; \
	elif [ "$${CI:-}" = true ]; then echo "$(NO_GO), and CI=true skips nothing: install it" >&2; exit 1; \
	else echo "$(NO_GO): the tests of the Helm chart are skipped" >&2; fi

.PHONY: chart
chart: $(VENV)/.stamp chart-tools ## docker/kubernetes-*.yaml and the sidecar's patch, rendered from the Helm chart
	$(BIN)/python -m tests.packaging.kubernetes.render

.PHONY: chart-package
chart-package: $(VENV)/.stamp chart-tools ## The Helm chart in dist/, the same bytes at each call
	$(BIN)/python -m tests.packaging.kubernetes.package

# Only a wheel of one platform has compiled modules; a checkout has them once they are made, until a source changes.
.PHONY: compiled
compiled: $(VENV)/.stamp ## The data path compiled with mypyc, into proxy/compiled (a C compiler; a minute)
	$(BIN)/python hatch_build.py

.PHONY: check
check: $(VENV)/.stamp workflows ## Lint, format, types, import contracts, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

ACTIONLINT := $(if $(or $(GO),$(filter true,$(CI))),build/bin/actionlint)

build/bin/actionlint: requirements/go/go.mod requirements/go/go.sum
	GOTOOLCHAIN=local go -C requirements/go build -mod=readonly -o $(CURDIR)/$@ github.com/rhysd/actionlint/cmd/actionlint

.PHONY: workflows
workflows: $(VENV)/.stamp $(ACTIONLINT) ## What the host of the repository runs: actionlint, zizmor, shellcheck
	$(if $(ACTIONLINT),$(ACTIONLINT) -shellcheck $(BIN)/shellcheck -pyflakes=,@echo "$(NO_GO): actionlint is skipped" >&2)
	$(BIN)/zizmor --offline --quiet --persona=auditor --strict-collection .github
	$(BIN)/shellcheck .ci/run

.PHONY: format
format: $(VENV)/.stamp ## Let ruff put right what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# With two workers once more: one process must not be told from several. All of them, by hand, in half an hour:
# SLUICE_PROCESS__WORKERS=2 make integration
WITH_WORKERS := $(patsubst %,tests/integration/test_%.py,tls sasl capture quota_api drain relay replication \
  live_config own_things topic_quotas)

# Unit tests first: they say in seconds what the others would say in minutes. Tests that measure what others feel, or rates,
# have the machine to themselves. Tests of sockets and of brokers wait half of the time: what only computes has that time
# and takes none of theirs; `nice` would (tests/beside.py); the oldest Kafka is compared, and seldom timed, beside the
# tests with workers. .github/workflows/ci.yml runs the same parts on a machine each.
.PHONY: test
test: jars languages compiled chart-tools ## Every test: unit, then all that need real brokers, then what is shipped
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory --jobs 2 sockets worlds BESIDE="$(BIN)/python -m tests.beside"
	$(MAKE) --no-print-directory compiled-sockets
	$(MAKE) --no-print-directory test-hostile
	$(MAKE) --no-print-directory --jobs 2 test-brokers test-computing BESIDE="$(BIN)/python -m tests.beside"
	$(MAKE) --no-print-directory --jobs 2 test-workers test-old BESIDE="$(BIN)/python -m tests.beside"

# One after the other, whatever jobs there are.
.PHONY: test-computing
test-computing:
	$(MAKE) --no-print-directory compiled-rules
	$(MAKE) --no-print-directory spark

.PHONY: test-compiled
test-compiled: compiled-rules compiled-sockets ## Unit and property tests, and those of sockets, with the compiled data path

# Nothing but the proxy loads the compiled form: of the unit tests its own, and those of the rules that it runs. Packages
# below what is compiled, and what `offline` and its backtest record, import none of it: their tests say the same in both.
# So do those of the backtest, which the engine judges, and whose first call compiles for 40 s in every process.
INTERPRETED := $(patsubst %,--ignore-glob=tests/%, unit/quotas/definitions unit/quotas/reassignment \
  $(patsubst %,property/test_%, protocol_*.py kafka_client.py sasl_tokens.py quotas_definitions.py quotas_records.py \
  quotas_reassignment.py packet_captures.py drift.py fluid.py runs.py backtest.py))

.PHONY: compiled-rules
compiled-rules: compiled
	$(BESIDE) $(PYTEST) -p tests.compiled --numprocesses 2 --dist worksteal $(INTERPRETED) tests/unit/proxy tests/unit/quotas tests/property $(ARGS)

.PHONY: compiled-sockets
compiled-sockets: compiled
	$(PYTEST) -p tests.compiled --numprocesses 2 --dist loadfile tests/component/proxy/net $(ARGS)

.PHONY: test-hostile
test-hostile: jars ## Every attack in its short form
	$(PYTEST) --doctest-modules --numprocesses 2 --dist loadfile tests/hostile $(ARGS)

# In three processes with three brokers each: these tests wait half of the time. A module stays whole, since what is dear
# in it is set up once. All four kinds in one go, or there would be four ends to wait for.
WAITING := --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: test-brokers
test-brokers: jars languages ## integration, interop, oracle and packaging
	$(PYTEST) $(WAITING) tests/integration tests/interop tests/oracle tests/packaging $(ARGS)

.PHONY: test-workers
test-workers: jars ## Some of tests/integration, with two workers
	SLUICE_PURE=1 SLUICE_PROCESS__WORKERS=2 $(PYTEST) $(WAITING) $(WITH_WORKERS) $(ARGS)

# Records both ways in every form, responses field by field, quotas, and one family's clients; the rest is `make matrix`.
WITH_OLD := $(patsubst %,tests/integration/test_%.py,relay equality request_quota) tests/oracle/test_protocol.py

.PHONY: test-old
test-old: jars ## Some of tests/integration and tests/oracle before the oldest Kafka
	$(BIN)/python -m tests.cluster 3.9
	SLUICE_KAFKA=3.9 $(BESIDE) $(PYTEST) --numprocesses 2 --dist loadfile $(WITH_OLD) $(ARGS)

# Its first call compiles for 20 s, in every process anew while the sources change: no unit test runs it.
COMPILED := quotas/backtest/outcomes.py

.PHONY: unit
unit: $(VENV)/.stamp ## Unit tests and the docstrings' examples: no sockets, no processes, no sleeps; under a minute
	$(PYTEST) --numprocesses 2 --dist worksteal --doctest-modules --ignore $(COMPILED) protocol quotas commandline kafka_client console proxy offline tests/cluster tests/demo tests/outside tests/support tests/fuzz tests/packaging/kubernetes tests/unit $(ARGS)

.PHONY: component
component: sockets worlds ## Parts of the proxy with real sockets, threads and processes; properties; whole worlds in virtual time

.PHONY: sockets
sockets: $(VENV)/.stamp
	$(PYTEST) --numprocesses 2 --dist loadfile tests/component $(ARGS)

.PHONY: worlds
worlds: $(VENV)/.stamp
	$(BESIDE) $(PYTEST) --numprocesses 2 --dist loadfile --doctest-modules $(COMPILED) tests/property tests/simulation $(ARGS)

.PHONY: integration
integration: jars ## The proxy in front of three real brokers
	$(PYTEST) tests/integration $(ARGS)

.PHONY: interop
interop: jars languages ## Seven families of unmodified clients
	$(PYTEST) tests/interop $(ARGS)

.PHONY: refusals
refusals: jars languages ## What each client family makes of refused Produce requests; ARGS=--write: into docs/refusals.md
	@$(BIN)/python -m tests.interop.refusals $(ARGS)

.PHONY: failover
failover: jars languages ## How soon each client works again when a gateway dies; writes docs/how-to/when-a-gateway-dies.md; 20 minutes
	@$(BIN)/python -m tests.interop.failover $(ARGS)

.PHONY: matrix
matrix: jars languages ## The three above before Kafka 3.9 to 4.4 and brokers that are not Apache's; writes docs/brokers.md; hours
	@$(BIN)/python -m tests.matrix $(ARGS)

.PHONY: outside
outside: jars ## Another project's tests, direct and through Sluice: CHECKOUT=DIR of franz-go, librdkafka, kafka-go or rskafka
	@$(BIN)/python -m tests.outside "$(CHECKOUT)" $(ARGS)

.PHONY: oracle
oracle: jars ## Kafka's own classes as judge of bytes and arithmetic
	$(PYTEST) tests/oracle $(ARGS)

.PHONY: spark
spark: $(VENV)/.stamp ## The Spark pipeline on a local session
	$(BESIDE) $(PYTEST) tests/spark $(ARGS)

.PHONY: packaging
packaging: $(VENV)/.stamp chart-tools ## The wheel in a bare environment, container files, documents
	$(PYTEST) tests/packaging $(ARGS)

.PHONY: docs
docs: $(VENV)/.stamp ## The documents as a site, in build/site; its search also works in files
	$(BIN)/zensical build --strict --clean

.PHONY: reference
reference: $(VENV)/.stamp ## Renew docs/command-options.md and docs/v1.schema.json from the code
	@$(BIN)/python -m tests.support.reference

.PHONY: images
images: ## Every image of docker/Dockerfile, and its bill of materials in build/images (docker, podman or buildah)
	@$(PYTHON) -m release.images $(ARGS)

.PHONY: images-check
images-check: jars ## Every image, compiled, on a base of Debian's packages, run before brokers (root, buildah, mmdebstrap)
	IMAGES="proxy fleet capture console offline" COMPILED=1 $(PYTEST) tests/packaging/test_images.py $(ARGS)

.PHONY: hostile
hostile: jars ## Every attack in its long form, half an hour; writes the table in docs/security.md
	$(BIN)/python -m tests.hostile $(ARGS)

.PHONY: demo
demo: jars ## Three brokers, the proxy, three clients with quotas: watch them for half a minute
	@$(BIN)/python -m tests.demo $(ARGS)

.PHONY: console-demo
console-demo: jars ## The console in front of a cluster with five clients in trouble: prints the page's address
	@$(BIN)/python -m tests.demo.console $(ARGS)

.PHONY: bench
bench: jars ## What the proxy costs, beside no proxy and HAProxy; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench $(ARGS)

.PHONY: saturate
saturate: $(VENV)/.stamp ## A full core of the proxy beside HAProxy, before a broker that costs nothing (a C compiler, OpenSSL's headers)
	$(BIN)/python -m tests.bench.saturate $(ARGS)

.PHONY: latency
latency: $(VENV)/.stamp ## How long requests take that are sent when they are due, beside HAProxy and direct; ten minutes
	$(BIN)/python -m tests.bench.latency $(ARGS)

.PHONY: price
price: jars ## What a change costs per request: make price ARGS="--before REV" against the working tree
	$(BIN)/python -m tests.bench.price $(ARGS)

.PHONY: bench-identities
bench-identities: jars ## What SASL, TLS and many quota entities cost; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench --identities $(ARGS)

.PHONY: bench-capture
bench-capture: jars ## What capture costs, beside no capture and HAProxy; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench --capture $(ARGS)

.PHONY: replication
replication: jars ## How well replication is throttled, beside Kafka's own
	$(BIN)/python -m tests.bench.replication $(ARGS)

.PHONY: load
load: jars ## The load test: a synthetic capture replayed, direct and through Sluice; writes docs/benchmarks.md
	@$(BIN)/python -m tests.load $(ARGS)

.PHONY: soak
soak: jars ## Hours of honest and hostile clients, restarts and reloads: make soak ARGS="--minutes 120"
	@$(BIN)/python -m tests.soak $(ARGS)

.PHONY: crowd
crowd: jars ## 10,000 hostile connections of five kinds at once, beside ten honest clients that are measured
	@$(BIN)/python -m tests.soak.crowd $(ARGS)

.PHONY: fleet
fleet: jars ## One quota over members and workers: exactness, faults, cost, quotas in a topic; writes docs/benchmarks.md; 25 minutes
	@$(BIN)/python -m tests.bench.fleet $(ARGS)

.PHONY: capacity
capacity: jars ## A capacity that clients share, on real brokers, with faults, and a reassignment (root, iproute2); writes docs/benchmarks.md; 15 minutes
	@$(BIN)/python -m tests.bench.capacity $(ARGS)

.PHONY: simulate
simulate: setup ## Fleets that share budgets, with faults, in virtual time: 100,000 seeds, four hours; writes docs/benchmarks.md
	@$(BIN)/python -m tests.simulation $(ARGS)

.PHONY: tune-demo
tune-demo: jars ## From traffic to quotas and back: capture, Spark, recommendation, applied, sent again
	@$(BIN)/python -m tests.tune $(ARGS)

.PHONY: week
week: jars ## A week in ten minutes through a real broker: advice of days 1 to 5 in force on days 6 and 7; ARGS=--write: docs/advice.md
	@$(BIN)/python -m tests.tune.week $(ARGS)

.PHONY: evaluate
evaluate: $(VENV)/.stamp ## How good the advice is on days it has not seen, beside other recommenders; writes docs/advice.md
	@$(BIN)/python -m tests.evaluate $(ARGS)

.PHONY: bench-offline
bench-offline: $(VENV)/.stamp ## What the Spark pipeline costs, to 100 million requests; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench.offline $(ARGS)

.PHONY: spark-cluster
spark-cluster: $(VENV)/.stamp ## The Spark pipeline on two and four executors, killed ones, and one large client; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench.cluster $(ARGS)

.PHONY: spark-jars
spark-jars: ## Jars of Spark's Kafka source in build/spark-jars (Maven)
	mvn -q -B -f offline/spark-jars.xml -DoutputDirectory=$(CURDIR)/build/spark-jars dependency:copy-dependencies

.PHONY: reassignment
reassignment: jars ## What reassignments in small batches cost, beside Kafka's all at once; writes docs/benchmarks.md
	$(BIN)/python -m tests.bench.reassignment $(ARGS)

.PHONY: accuracy
accuracy: jars ## How well quotas are kept, beside Kafka's own
	$(BIN)/python -m tests.bench.accuracy $(ARGS)

.PHONY: goodput
goodput: jars ## The part of a throttled consumer's quota that arrives as records
	$(BIN)/python -m tests.bench.goodput $(ARGS)

.PHONY: catch-up
catch-up: jars ## Ten consumers at a log's end beside one that replays
	$(BIN)/python -m tests.bench.catch_up $(ARGS)

# In an environment of its own: Atheris has wheels for few machines (requirements/fuzz.in).
FUZZ := build/fuzz-venv

$(FUZZ)/.stamp: requirements/fuzz.txt
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11, 3.12 or 3.13 (with venv) is not on the PATH" >&2; exit 1; fi
	$(PYTHON) -m venv $(FUZZ)
	$(FUZZ)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	touch $@

.PHONY: fuzz
fuzz: $(FUZZ)/.stamp ## Every reader of foreign bytes under Atheris, 20 s each; ARGS="requests --runs 10000000"
	@$(FUZZ)/bin/python -m tests.fuzz $(ARGS)

# In an environment of its own, with what builds and nothing else: the same locked tools, so the same bytes.
RELEASE := build/release-venv

$(RELEASE)/.stamp: requirements/release.txt
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11, 3.12 or 3.13 (with venv) is not on the PATH" >&2; exit 1; fi
	$(PYTHON) -m venv --clear $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	touch $@

.PHONY: release
release: $(RELEASE)/.stamp ## What is released, in dist/: wheels, sources, SBOMs, checksums, notes; ARGS=--snapshot: as it is now
	@$(RELEASE)/bin/python -m release build $(ARGS)

.PHONY: release-check
release-check: jars ## Install what is in dist/, and nothing else, with each Python of this machine, and use it; ten minutes
	@$(BIN)/python -m release check $(ARGS)

.PHONY: release-sample
release-sample: jars ## Keep what the release in dist/ writes, for tests of later ones (tests/packaging/samples)
	@$(BIN)/python -m release sample

# For every Python that the package supports (`--universal`, from 3.11), in an environment of its own. A locked version
# stays until it no longer fits; `LOCK_ARGS=--upgrade`, or `--upgrade-package NAME`, renews. No header has an index's address.
# Dependabot reads from the header how to lock.
LOCK := UV_CUSTOM_COMPILE_COMMAND="make lock  # uv pip compile --universal --python-version 3.11" \
  build/lock/bin/uv pip compile --quiet --no-config --universal \
  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links $(LOCK_ARGS)

.PHONY: lock
lock: $(VENV)/.stamp ## Renew requirements/*.txt from pyproject.toml and requirements/*.in
	$(BIN)/python -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check uv
	$(LOCK) --output-file requirements/run.txt pyproject.toml
	for name in build release docs dev fuzz tansu; do $(LOCK) --output-file requirements/$$name.txt requirements/$$name.in; done
	for extra in capture fleet offline operator; do \
	  $(LOCK) --extra $$extra --constraint requirements/dev.txt --output-file requirements/$$extra.txt pyproject.toml; done

.PHONY: clean
clean: ## Remove what the targets made
	rm -rf $(VENV) build dist proxy/compiled tests/cluster/libs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
