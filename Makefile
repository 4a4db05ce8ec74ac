# Three tiers: `make test` for each change, which needs nothing but Go; .ci/run, which adds what make test leaves out, one real
# ZooKeeper, other clients and a container; `make nightly`, everything else. With ZKLOCK_REQUIRE=1 whatever stays uncovered is an error.

GO ?= go
export GO

.NOTPARALLEL:
.PHONY: all test check race real nightly fuzz mutants bench install packages clean

all: check test

## the library, the command and the test server, in the time that CONTRIBUTING.md states. Every package is compiled once, without the race
## detector and with the checks of the library's invariants (internal/invariants), and runs all its tests with -short. The packages whose
## goroutines meet in real time, RACED, are compiled a second time, and their tests in real time, with the examples of every recipe, run
## under the detector, where there is a C compiler. What is left out runs elsewhere:
##
##	the other packages and the command under the detector, and a share     make race SHORT=1, in .ci/run
##	    of the tests in virtual time, which take four times as long
##	tests of the command, zktest and expire on a real ZooKeeper            the same, and make real
##	all worlds, crash loops and scopes of shards; one case in 14 of        .ci/run, without -short
##	    internal/frames, instead of 28; the differences between two APIs
##	50 random worlds of mutexes, 5 of each other recipe, instead of 1      .ci/run
##	every test under the detector, without -short                          make race, in make nightly
##	vet                                                                    make check, in .ci/run
##
## The tests of the command's module mostly wait, and so do those under the detector: they run beside the others. The build compiles for
## both modules what they share.
INVARIANTS := -tags invariants
RACE := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
RACED := . ./internal/link ./internal/mux ./internal/node
SHORT_TEST := -vet=off -count=1 -timeout 30m -short -p 2
LONGEST := ./test ./shards
test: export ZKLOCK_TEST_REAL = 0
test:
	@$(if $(RACE),,echo "no C compiler: the tests run without the race detector")
	$(GO) build $(INVARIANTS) ./...
	{ $(GO) test -C cmd/zklock $(SHORT_TEST) $(INVARIANTS) -parallel 8 ./... \
		$(if $(RACE),&& $(GO) test $(SHORT_TEST) $(RACE) -parallel 8 -skip '^Test(Virtual|Real)_' $(RACED)); } & others=$$!; \
		nice $(GO) test $(SHORT_TEST) $(INVARIANTS) -skip '^TestReal_' $(LONGEST) ./...; \
		library=$$?; wait $$others && exit $$library

## gofmt, go vet for Linux, macOS and Windows, staticcheck, and the sizes in BUDGET
check:
	scripts/check

## all tests under the race detector, without -short, except the explorations, which have one goroutine. With SHORT=1, the tests in real
## time with -short, and a share of those in virtual time, which take four times as long under it
SHARE := ^(Example|Fuzz|Test([^V]|V[^i]|Virtual_(Call|Do|Func|Multi|Run|Semaphore|Simulation$$|Turn)))
RACE_TEST := $(RACE) -vet=off -count=1
race:
ifdef SHORT
	$(GO) test $(RACE_TEST) -short -p 2 -parallel 4 -timeout 30m -run '$(SHARE)' -skip '^Test(Real_|Differential_|Explore|F59|Next_Random|Parity)' $(LONGEST) ./...
	$(GO) test -C cmd/zklock $(RACE_TEST) -short -p 2 -parallel 4 -timeout 30m ./...
else
	$(GO) test $(RACE_TEST) -p 2 -timeout 0 -skip '^TestExplore' $(LONGEST) ./...
	$(GO) test -C cmd/zklock $(RACE_TEST) -p 1 -timeout 0 ./...
endif

## what one real ZooKeeper shows that zktest does not: a third of the faults at frames and a part of the behaviour tests on it; servers that
## the tests start, stop and pause; Curator, kazoo and go-zookeeper's lock in one queue with ours, in each recipe, some of them killed; one
## server in a container; and what has modules of its own: the examples and all of contrib/, without the race detector, because make check
## has compiled their dependencies without it
ON_REAL = ^Test(Acquire|TryAcquire|Hold|Release|ACL|ContainerRoot|Once|Participants|ServerRestart|Connect_Chroot|Real_)
real:
	ZKLOCK_TEST_REAL=1 ZKLOCK_CONFORMANCE=1 $(GO) test $(RACE) -vet=off -p 3 -count=1 -timeout 10m \
		-run '$(ON_REAL)|^TestFrames_RealServer|^TestInterop' ./internal/frames ./test ./internal/conformance ./internal/zkserver ./internal/crash
	scripts/integration -run TestMutex_Container
	scripts/nightly quick

## everything else: the parts are in scripts/nightly. make nightly PART=crash KILLS=2000 runs one of them, with a number of its own
nightly:
	scripts/nightly $(PART)

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

## zklock beside the other locks on ZooKeeper, and etcd's: renews bench/results in less than 20 minutes; REVISION=v1.2.0 has that one
## beside it. `cd bench && go run . -help` lists the flags of a single table
bench:
	scripts/setup compiler zookeeper clients etcd
	scripts/bench $(REVISION)

## the command, its man page, completions, pages and licenses below PREFIX: make install PREFIX=/usr DESTDIR=/tmp/package. With REMOVE=1 it
## deletes them
PREFIX ?= /usr/local
install:
	scripts/install $(if $(REMOVE),--remove) "$(DESTDIR)$(PREFIX)"

## what others will take of a release, made on a copy: modules from a proxy, an archive, the image, files for systemd and Kubernetes
packages:
	scripts/packages

clean:
	rm -rf bin
