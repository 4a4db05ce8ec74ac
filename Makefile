# `make demo` needs Go. `make test` works on a fresh Debian machine with Go: scripts/setup gets the rest.
# With ZKLOCK_REQUIRE=1 whatever stays uncovered is an error.

GO ?= go
export GO

.NOTPARALLEL:
.PHONY: all ci test setup check unit bench bench-quick lab lab-quick lab-test lab-servers servers servers-next integration conformance prove explore simulation mutants chaos soak demo image clean

all: check unit

## what CI runs: the tests and the long proofs
ci: setup
	scripts/prove test chaos

## the tests
test: setup check unit conformance servers-next integration bench-quick lab-quick

## the long proofs, what computes beside what waits: simulation, mutants and chaos
prove:
	scripts/prove chaos

## get what the tests need, where that takes no password
setup:
	scripts/setup

## gofmt, go vet for Linux, macOS and Windows, staticcheck
check:
	scripts/check

## the library, the command and the test server, under the race detector; then the library's behaviour tests
## once more against a real server run as a child process, those aside that ask no server
NO_SERVER = TestVirtual|TestExplore|TestLease_|TestWalk|TestLayers_|TestLink_|TestLockTable_|TestFaultsPage
unit:
	$(GO) test -race -count=1 -timeout 15m ./...
	ZKLOCK_TEST_REAL=1 $(GO) test -race -count=1 -timeout 15m -p 1 -skip '$(NO_SERVER)' . ./internal/frames

## the same against containers, and docker-compose.yml
integration:
	scripts/integration

## the library and the test server on every ZooKeeper that the distribution's suites carry, with the newest Curator and kazoo
servers:
	scripts/setup compiler zookeeper clients
	scripts/servers

## a short form of it on the first that is newer than the installed one
servers-next:
	scripts/servers next

## the test server held against a real one, and against go-zookeeper's, kazoo's and Curator's expectations
conformance:
	scripts/conformance

## zklock beside the other locks on ZooKeeper, on one server: BENCH='-only contend -rounds 3'; some twenty minutes without
BENCH ?= -out results/single.md
bench:
	scripts/setup compiler zookeeper clients
	cd bench && $(GO) run . $(BENCH)

## a short form, for its checks and not for its times
bench-quick:
	cd bench && $(GO) run . -quick

## the locks that people compare, each on its real server, under the same faults: LAB='-only redlock/.*'; less than half an
## hour without
LAB ?= -out results.md
lab: lab-servers
	cd lab && $(GO) run . $(LAB)
lab-servers:
	scripts/setup compiler zookeeper clients lab

## a short form of it, and the checks of the lab itself, with ZooKeeper and Redis alone
lab-quick:
	scripts/setup compiler zookeeper redis
	cd lab && $(GO) test -race -count=1 -timeout 8m -skip 'TestSystems|TestServers' . && $(GO) run . -quick

## all tests of the lab, on all its servers
lab-test: lab-servers
	cd lab && $(GO) test -race -count=1 -timeout 10m .

## every interleaving of a few clients, 25 million states in some minutes; what `go test` explores is a part of it
explore:
	$(GO) test -count=1 -v -timeout 0 -run TestExplore . -explore.all

## every fault at every frame, and six thousand hours of random worlds, in virtual time: make simulation SEEDS=2000
SEEDS ?= 2000
simulation:
	$(GO) test -count=1 -v -timeout 0 -run 'TestVirtual_Frames$$' ./internal/frames -frames.every=1
	$(GO) test -count=1 -v -timeout 0 -run TestVirtual_Simulation ./internal/sim -sim.seeds=$(SEEDS) -sim.calm=20 -sim.jobs=2

## mistakes planted in the library and in the test server, one at a time: the tests named for each must find it
mutants:
	ZKLOCK_MUTANTS=1 $(GO) test -count=1 -v -timeout 0 -run AllCaught ./internal/mutants ./internal/conformance

## a real server behind connections that fail; and a real ensemble on network hosts of its own, cut up, which takes
## Linux and root
chaos:
	scripts/setup chaos
	ZKLOCK_CHAOS=1 $(GO) test -race -count=1 -v -timeout 30m ./internal/lossy
	ZKLOCK_CHAOS=1 $(GO) test -race -count=1 -v -timeout 30m -parallel 2 ./internal/cutup

## the long run of cuts and failovers, and no test else: make soak CUTS=300, or make soak DURATION=1h
CUTS ?= 20
DURATION ?= 0s
soak:
	scripts/setup chaos
	ZKLOCK_CHAOS=1 $(GO) test -race -count=1 -v -timeout 0 -run TestLongRun ./internal/cutup -chaos.cuts=$(CUTS) -chaos.for=$(DURATION)

## the demo, which needs nothing but Go
demo:
	scripts/demo

## a ZooKeeper image of Debian's packages, where the official one cannot be pulled
image:
	scripts/zookeeper-image

clean:
	rm -rf bin
