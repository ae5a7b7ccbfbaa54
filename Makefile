# Everything a person types here. Each command installs what it lacks (as root, with apt) or says in
# one line what to install; all they ask for is Debian or Ubuntu and a Rust toolchain.

CARGO := cargo

.DEFAULT_GOAL := help
.PHONY: help demo test check vm bench fuzz deb rpm

help:
	@echo 'make demo    the main job on this machine, in a minute; as root it is real'
	@echo 'make test    every test: lints, pure, this kernel (root), Debian guests in QEMU (root)'
	@echo 'make check   lints and the pure tests only'
	@echo 'make vm      the Debian guests only'
	@echo 'make bench   the benchmarks'
	@echo 'make fuzz    libFuzzer on the socket and the policy parser; RUNS=10000000 for more'
	@echo 'make deb     a Debian package, target/debian/*.deb'
	@echo 'make rpm     an RPM package, target/generate-rpm/*.rpm'

demo:
	@tests/need.sh cc:gcc
	$(CARGO) build --release --locked
	$(CARGO) run --release --locked --quiet --bin tenantctl -- demo

test:
	@tests/all.sh

check:
	@tests/all.sh lint pure

vm:
	@tests/all.sh vm

bench:
	@tests/need.sh cc:gcc
	$(CARGO) bench --locked

fuzz:
	@fuzz/run.sh $(RUNS)

deb rpm:
	@packaging/build.sh $@
