# Three tiers: `make test` for each change, which needs nothing but Go; .ci/run, which adds one real ZooKeeper, other clients and
# a container; `make nightly`, everything else. With ZKLOCK_REQUIRE=1 whatever stays uncovered is an error.

GO ?= go
export GO

.NOTPARALLEL:
.PHONY: all setup test race check real contrib packages install uninstall archives nightly platforms vulnerabilities i386 servers integration conformance explore simulation mutants fuzz command crash chaos soak bench bench-quick lab lab-test seen demo clean

all: check test

## the library, the command and the test server. The goal is four minutes on two quiet processors. What runs in real time runs under the
## race detector, where there is a C compiler. The tests in virtual time, and those of UNRACED, take four times as long under it, so on each
## change the detector has only a share of them, RACED; make race has all. Without it, all of them run, and check the library's invariants
## (internal/invariants). Vet is for make check, and the tests of real servers are for make real.
## The packages named first take longest: begun last, they would keep one processor waiting. The tests of the command's module, and those
## of the library in real time, mostly wait: so they run beside the ones in virtual time, which only compute. The build compiles for both
## modules what they share.
LONGEST := ./test ./shards
RACED := ^(Example|Fuzz|Test([^V]|V[^i]|Virtual_(Call|Do|Func|Multi|Run|Semaphore|Simulation$$|Turn)))
UNRACED := Differential_|Explore|F59|Next_Random|Parity
VIRTUAL = $(sort $(dir $(shell grep -rlE --include='*_test.go' --exclude-dir=contrib --exclude-dir=cmd '^func Test($(UNRACED)|Virtual_)' .)))
INVARIANTS := -tags invariants
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
test:
	@$(if $(RACE),,echo "no C compiler: the tests run without the race detector")
	$(GO) build $(RACE) ./...
	$(GO) test -C cmd/zklock $(RACE) -short -p 2 -parallel 4 -vet=off -count=1 -timeout 30m ./... & command=$$!; \
		$(GO) test $(RACE) -short -p 2 -parallel 4 -vet=off -count=1 -timeout 30m -run '$(RACED)' -skip '^Test($(UNRACED)|Real_)' $(LONGEST) ./... && \
		nice $(GO) test $(INVARIANTS) -short -vet=off -count=1 -timeout 30m -run '^Test($(UNRACED)|Virtual_)' -skip '^TestVirtual_Simulation' ./test ./shards $(VIRTUAL) && \
		$(GO) test $(INVARIANTS) -vet=off -count=1 . ./internal/node ./internal/link ./internal/invariants && \
		nice $(GO) test $(INVARIANTS) -vet=off -count=1 -run 'TestVirtual_Simulation($$|With|Repeats)' ./internal/sim -sim.seeds=50 -sim.jobs=2 && \
		nice $(GO) test $(INVARIANTS) -vet=off -count=1 -timeout 30m -run TestVirtual_SimulationOf ./internal/sim -sim.seeds=5 -sim.jobs=2; \
		library=$$?; wait $$command && exit $$library

## gofmt, go vet for Linux, macOS and Windows, staticcheck, and the sizes in BUDGET
check:
	scripts/check

## all tests under the race detector, without -short, except the explorations, which have one goroutine
race:
	$(GO) test $(RACE) -p 2 -vet=off -count=1 -timeout 0 -skip '^TestExplore' $(LONGEST) ./...
	$(GO) test -C cmd/zklock $(RACE) -p 1 -vet=off -count=1 -timeout 0 ./...

## what one real ZooKeeper shows that zktest does not: a third of the faults at frames and a part of the behaviour tests on it; servers that
## the tests start, stop and pause; Curator, kazoo and go-zookeeper's lock in one queue with ours, in each recipe, some of them killed; one
## server in a container; and what has modules of its own: the examples and all of contrib/, without the race detector, because make check
## has compiled their dependencies without it
ON_REAL = ^Test(Acquire|TryAcquire|Hold|Release|ACL|ContainerRoot|Once|Participants|ServerRestart|Connect_Chroot|Real_)
real:
	ZKLOCK_TEST_REAL=1 ZKLOCK_CONFORMANCE=1 $(GO) test $(RACE) -vet=off -p 3 -count=1 -timeout 10m \
		-run '$(ON_REAL)|^TestFrames_RealServer|^TestInterop' ./internal/frames ./test ./internal/conformance ./internal/zkserver ./internal/crash
	scripts/integration -run TestMutex_Container
	$(MAKE) --no-print-directory contrib RACE=

## the modules that others import beside the library, and their examples: whatever has a go.mod in contrib/ or examples/. make nightly
## runs them under the race detector, except for the modules whose dependencies take a minute to compile for it
contrib:
	@set -e; for mod in contrib/*/go.mod contrib/*/*/go.mod examples/*/go.mod; do \
		case $$mod in */fencing/* | */rulestest/*) race= ;; *) race=$(RACE) ;; esac; \
		echo "cd $${mod%/go.mod} && $(GO) test $$race -count=1 ./..."; \
		(cd "$${mod%/go.mod}" && $(GO) test $$race -count=1 ./...); \
	done

## what others will take of a release, made on a copy: modules from a proxy, an archive, the image, files for systemd and Kubernetes.
## archives has those of every system, each built twice from nothing
packages:
	scripts/packages
archives:
	scripts/setup docker packages
	ALL=1 scripts/packages

## the command, its man page, completions, pages and licenses below PREFIX: make install PREFIX=/usr DESTDIR=/tmp/package
PREFIX ?= /usr/local
install:
	scripts/install "$(DESTDIR)$(PREFIX)"
uninstall:
	scripts/install --remove "$(DESTDIR)$(PREFIX)"

## everything that takes long, asks for much, or counts on other people's timing. Some four hours; make -k goes on after a failure
nightly: setup test race contrib platforms i386 explore simulation mutants fuzz command crash conformance servers chaos integration bench-quick lab-test lab seen archives

## what test, race and contrib need if nothing may be left out; each other part of nightly asks for its own
setup:
	scripts/setup compiler zookeeper clients kerberos

## the tests linked for macOS and Windows, and what is for Linux alone vetted for 32 bits
platforms:
	scripts/check platforms

## the known vulnerabilities that the code of each module can reach, from vuln.go.dev
vulnerabilities:
	scripts/check vulnerabilities

## the tests where an int has 32 bits, if the kernel runs such programs
i386:
	scripts/i386

## the library and the test server on every ZooKeeper that the distribution's suites carry, with the newest Curator and kazoo; and the
## shards of processes that are killed, and 100,000 locks with a name of their own, on the installed one
servers:
	scripts/setup compiler zookeeper clients kerberos
	scripts/servers
	ZKLOCK_TEST_REAL=1 $(GO) test -count=1 -v -timeout 30m -run '^TestReal' ./shards
	ZKLOCK_TEST_REAL=1 $(GO) test -count=1 -v -timeout 20m -run '^TestNewRoot_ManyNames' ./test -names=100000

## the tests that start ZooKeeper in a container, and the ensemble of docker-compose.yml
integration:
	scripts/setup docker
	scripts/integration

## the test server held against a real one, and against go-zookeeper's, kazoo's and Curator's expectations
conformance:
	scripts/setup compiler zookeeper clients suites
	ZKLOCK_CONFORMANCE=1 $(GO) test $(RACE) -count=1 -v -timeout 60m ./internal/conformance -grants=2000

## every interleaving of a few clients, 242 million states in some thirty minutes; what `go test` explores is a part of it
explore:
	$(GO) test -count=1 -v -timeout 0 -run TestExplore ./internal/queue -explore.all

## every fault at every frame, six thousand hours of random worlds, and 250 worlds of each other recipe, in virtual time, with every case
## of the other tests in virtual time: make simulation SEEDS=2000 WORLDS=250
SEEDS ?= 2000
WORLDS ?= 250
simulation:
	$(GO) test $(INVARIANTS) -count=1 -v -timeout 0 -run 'TestVirtual_Frames$$' ./internal/frames -frames.every=1
	$(GO) test $(INVARIANTS) -count=1 -v -timeout 0 -run TestVirtual_Simulation -skip TestVirtual_SimulationOf ./internal/sim -sim.seeds=$(SEEDS) -sim.calm=20 -sim.jobs=2
	$(GO) test $(INVARIANTS) -count=1 -v -timeout 0 -run TestVirtual_SimulationOf ./internal/sim -sim.seeds=$(WORLDS) -sim.jobs=2
	$(GO) test $(INVARIANTS) -count=1 -v -timeout 0 -run TestVirtual ./test -every
	$(GO) test -count=1 -v -run TestEnsemble_Chaos ./zktest -chaos.seeds=100
	$(GO) test $(INVARIANTS) -count=1 -v -timeout 0 -run 'TestF59_RandomWorlds|TestVirtual_Large|TestNext_Random|TestExplore' ./shards -shards.worlds=1000 -shards.large -shards.cases=1000000

## mistakes planted in the library, the command and the test server, one at a time: the tests named for each must find it, or the
## library's assertions if no test does (with -p 1, go test prints each as it ends). With RANDOM, so many mistakes at random places instead,
## and the first layer of the tests that finds each: make mutants RANDOM=300 SEED=7. It takes minutes for each that the unit tests miss
RANDOM ?= 0
SEED ?= 1
mutants:
ifeq ($(RANDOM),0)
	ZKLOCK_MUTANTS=1 $(GO) test -p 1 -count=1 -v -timeout 0 -run AllCaught ./internal/mutants ./internal/conformance
else
	$(GO) test -count=1 -v -timeout 0 -run TestMutants_Random ./internal/mutants -random=$(RANDOM) -seed=$(SEED)
endif

## random inputs for each fuzz target of each module, some ten minutes: make fuzz FUZZTIME=10m. An input that fails becomes a seed
FUZZTIME ?= 60s
fuzz:
	FUZZTIME=$(FUZZTIME) scripts/fuzz

## the command, round after round: in a terminal beside what plain does, and that nothing outlives the lock: make command ROUNDS=200
ROUNDS ?= 10
command:
	ZKLOCK_ROUNDS=$(ROUNDS) $(GO) test -C cmd/zklock $(RACE) -count=1 -v -timeout 0 -p 1 -run 'TestScenes|TestOutlives' ./internal/command ./internal/supervise
	CGO_ENABLED=0 ZKLOCK_GUARD_KILLS=50 $(GO) test -C cmd/zklock -count=1 -v -run TestGuard_Real ./internal/command
	$(GO) test -C cmd/zklock -count=1 -timeout 0 -run RandomWorlds ./internal/watch -guard.worlds=$(ROUNDS)00

## processes with a session file that are killed while they start, five hundred times, on a real server, and as many random worlds of
## processes with session files and a guard: make crash KILLS=2000
KILLS ?= 500
crash:
	scripts/setup zookeeper
	ZKLOCK_TEST_REAL=1 ZKLOCK_ROUNDS=$(KILLS) $(GO) test -count=1 -v -timeout 0 ./internal/crash -crash.worlds=$(KILLS) -parallel 8

## a real ensemble on network hosts of its own, cut up, and connections that fail: takes Linux and root. soak is its long run and
## no test else: make soak CUTS=300, or make soak DURATION=1h
CUTS ?= 20
DURATION ?= 0s
chaos:
	scripts/setup chaos
	ZKLOCK_CHAOS=1 $(GO) test -race -count=1 -v -timeout 30m -parallel 2 ./internal/cutup
soak:
	scripts/setup chaos
	ZKLOCK_CHAOS=1 $(GO) test -race -count=1 -v -timeout 0 -run TestLongRun ./internal/cutup -chaos.cuts=$(CUTS) -chaos.for=$(DURATION)

## zklock beside the other locks on ZooKeeper, and etcd's: renews bench/results in less than 20 minutes; REVISION=v1.2.0 has that one beside it.
## `cd bench && go run . -help` lists the flags of a single table. bench-quick is for its checks and not for its times
bench:
	scripts/setup compiler zookeeper clients etcd
	scripts/bench $(REVISION)
bench-quick:
	scripts/setup zookeeper clients
	cd bench && $(GO) run . -quick

## the locks that people compare, each on its real server, under the same faults: LAB='-only redlock/.*'; less than 40
## minutes without. lab-test has the lab's own tests, and those of fence's SQL on its PostgreSQL and MariaDB
LAB ?= -out results.md
lab:
	scripts/setup compiler zookeeper clients lab
	-@$(MAKE) --no-print-directory bin/consul
	cd lab && $(GO) run . $(LAB)
lab-test:
	scripts/setup compiler zookeeper clients lab
	-@$(MAKE) --no-print-directory bin/consul
	cd lab && $(GO) test -race -count=1 -timeout 30m .

## what an operator sees of a fault, and after how long: three replicas on a real ensemble, scraped by a real Prometheus. Some five minutes
SEEN ?= -out results.md
seen:
	scripts/setup zookeeper prometheus
	cd lab/seen && $(GO) run . $(SEEN)

## Consul's server, for the lab; without it, the lab says that it is missing
bin/consul: lab/consul/go.mod
	mkdir -p bin
	cd lab/consul && $(GO) build -trimpath -ldflags='-s -w' -o ../../bin/consul github.com/hashicorp/consul
	touch bin/consul

## workers contend for a lock, holders are killed, cut off and stopped, and what was promised is verified; needs only Go
demo:
	mkdir -p bin
	$(GO) build -C cmd/zklock -o ../../bin/zklock
	bin/zklock demo

clean:
	rm -rf bin
