# The commands of this repository. Each installs the Debian packages that it needs (as root, with apt) or prints one
# line that names them. Required: Debian or Ubuntu, and a Rust toolchain.

CARGO := cargo

STEPS := 100000
SCENARIOS := 10000
STRATEGIES := 1000

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-once check vm compare compare-here selfish foretell figures bench fuzz soak scenarios deb rpm dist pictures

help:
	@echo 'make demo      the main job on this machine; as root on its kernel, otherwise simulated'
	@echo 'make test      pure tests, this kernel (root), one Debian guest in QEMU (root); 18 minutes'
	@echo 'make test-all  the same, lints, packages, every scenario on Debian 12 and 13; 70 minutes'
	@echo 'make check     lints and pure tests'
	@echo 'make vm        every scenario in the Debian guests'
	@echo 'make compare   tenantd beside static settings, an arbiter and systemd-oomd, in the guests; tables'
	@echo 'make compare-here   the same on this kernel, where its hierarchies are legacy ones'
	@echo 'make selfish   what random strategies gain: STRATEGIES=1000 on simulated kernels, ten on this one (legacy, root), SEED=1'
	@echo 'make foretell  how well a replay foretells another policy on this kernel (legacy hierarchies, root), fifteen minutes'
	@echo 'make figures   every row of SPECIFICATION.md that takes no guest and no hours, measured again (root)'
	@echo 'make bench     the benchmarks'
	@echo 'make fuzz      libFuzzer on the socket and the policy parser; RUNS=10000000 for more'
	@echo 'make soak      random administration, STEPS=100000 on simulated kernels and a fiftieth of it on this one (root)'
	@echo 'make scenarios  SCENARIOS=10000 random scenarios with the agent and with plain weights; the first seed is SEED, or the time'
	@echo 'make deb       a Debian package, target/debian/*.deb'
	@echo 'make rpm       an RPM package, target/generate-rpm/*.rpm'
	@echo 'make dist      both, a tarball and their checksums, target/packages/'
	@echo 'make pictures  docs/pictures/ from the simulated demo'

# The profile compiles in a third of the time of `release` (Cargo.toml).
demo:
	@tests/need.sh cc:gcc
	@echo 'building (one to three minutes the first time)'
	@$(CARGO) build --profile demo --locked --bin tenantctl
	@$(CARGO) run --profile demo --locked --quiet --bin tenantctl -- demo

test:
	@tests/all.sh pure kernel core

test-all:
	@tests/all.sh lint pure kernel core package rest newest

# Beside `make test`, for each change: `make test-all` but for second releases of Debian, the newest kernels and the harness itself.
test-once:
	@tests/all.sh lint package once

check:
	@tests/all.sh lint pure

vm:
	@tests/all.sh vm

compare:
	@tests/need.sh cc:gcc qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mke2fs:e2fsprogs python3:python3 strip:binutils
	@tests/vm/compare.sh

compare-here:
	@tests/need.sh cc:gcc python3:python3
	@tests/compare_here.py --out target/compare.jsonl
	@tests/vm/tables.py target/compare.jsonl

selfish:
	@tests/need.sh cc:gcc python3:python3
	TENANTD_STRATEGIES=$(STRATEGIES) TENANTD_SEED=$(or $(SEED),1) $(CARGO) test --locked --test tests -- --nocapture agent::selfish::
	@tests/selfish_here.py --seed $(or $(SEED),1)

foretell:
	@tests/need.sh cc:gcc python3:python3
	@tests/foretell_here.py --seed $(or $(SEED),1)

figures:
	@tests/need.sh cc:gcc valgrind:valgrind python3:python3
	@$(CARGO) build --locked --quiet --profile dist --bins
	@tests/figures.py

bench:
	@tests/need.sh cc:gcc valgrind:valgrind
	$(CARGO) bench --locked --no-fail-fast

fuzz:
	@fuzz/run.sh $(RUNS)

soak:
	@tests/need.sh cc:gcc
	TENANTD_STEPS=$(STEPS) $(CARGO) test --locked --test tests -- --nocapture --test-threads=1 agent::soak::
	TENANTD_STEPS=$$(($(STEPS) / 50)) $(CARGO) test --locked --test tests -- \
	    --include-ignored --nocapture --test-threads=1 kernel::soak::

scenarios:
	@tests/need.sh cc:gcc
	TENANTD_SCENARIOS=$(SCENARIOS) TENANTD_SEED=$(SEED) $(CARGO) test --locked --test tests -- \
	    --nocapture --test-threads=1 agent::scenarios::

deb rpm:
	@packaging/build.sh $@

dist:
	@packaging/build.sh all

pictures:
	@tests/need.sh cc:gcc tmux:tmux chromium:chromium python3:python3
	@$(CARGO) build --profile demo --locked --bin tenantctl
	@docs/pictures/make.py target/demo/tenantctl
