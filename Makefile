.PHONY: test
test:
	cargo test
