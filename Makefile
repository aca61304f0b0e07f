# Every target works on a fresh Debian 12 machine: it installs what it needs (root or sudo).
BUILD := build
DEMO := runs/demo

.PHONY: demo all torch python deb test fast build chaos fuzz bench bench-peers bench-presets asan-ubsan tsan format tidy clean

demo:
	scripts/setup demo
	@test -f $(BUILD)/CMakeCache.txt || cmake --preset release -DTRIREME_TESTS=OFF
	cmake --build $(BUILD) --target trireme
	@rm -rf $(DEMO)
	@echo; echo "== build/trireme train --env CartPole-v1 --algo ppo --target 475 --out $(DEMO)"
	@$(BUILD)/trireme train --env CartPole-v1 --algo ppo --target 475 --out $(DEMO)
	@echo "picture: $(DEMO)/learning_curve.svg"

# The whole program: parameter servers, MPI, MP4 and the examples too; and the library, ready for `cmake --install build`.
all:
	scripts/setup all
	cmake --preset release $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DTRIREME_TESTS=OFF)
	cmake --build $(BUILD) --target trireme trireme_library least_squares

# The executor by libtorch, for --device (docs/devices.md): Debian's libtorch, or the one in a folder, LIBTORCH=/opt/libtorch.
LIBTORCH ?=
torch:
	scripts/setup $(if $(LIBTORCH),demo,torch)
	cmake --preset release $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DTRIREME_TESTS=OFF) -DTRIREME_LIBTORCH=$(abspath $(LIBTORCH))
	cmake --build $(BUILD) --target trireme trireme_torch
	$(BUILD)/trireme devices

# A virtual environment with Gymnasium, for environments gym:NAME; needs PyPI.
python:
	@test -x $(BUILD)/trireme || $(MAKE) demo
	$(BUILD)/trireme setup python

# Debian packages of the program, its plug-ins, the library and its headers, in build/deb.
deb:
	scripts/setup deb
	cmake --preset release $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DTRIREME_TESTS=OFF)
	cmake --build $(BUILD) --target trireme trireme_library
	cd $(BUILD) && cpack
	@ls $(BUILD)/deb/*.deb

build:
	scripts/setup test
	cmake --preset release -DTRIREME_TESTS=ON
	cmake --build $(BUILD)

# As many at a time as there are processors; those that need all of them say so (PROCESSORS, RUN_SERIAL).
test: build
	ctest --test-dir $(BUILD) --output-on-failure -j$$(nproc)

# The tests of one minute.
fast: build
	ctest --test-dir $(BUILD) --output-on-failure -L fast -j4

# Ten minutes of training, on their own and in step, while workers and servers are killed, frozen and cut off. Among the tests there
# is a training of each kind.
chaos: build
	CHAOS_SECONDS=150 REPLAY_CHAOS_SECONDS=300 $(BUILD)/tests/chaos/chaos_test

# Ten minutes of libFuzzer for each target, from the corpus in the tree; it ends at the first finding and says where that is.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= settings checkpoint part_files server client actors replay
fuzz:
	scripts/setup fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz --target fuzzers
	@for target in $(FUZZ_TARGETS); do \
	  echo "== $$target, $(FUZZ_SECONDS) s"; \
	  mkdir -p $(BUILD)/fuzz/corpus/$$target; \
	  TMPDIR=$$([ -w /dev/shm ] && echo /dev/shm || echo /tmp) \
	  $(BUILD)/fuzz/tests/fuzz/fuzz_$$target -max_total_time=$(FUZZ_SECONDS) -timeout=30 -rss_limit_mb=2048 -max_len=8192 \
	    -verbosity=0 -print_final_stats=1 -artifact_prefix=$(BUILD)/fuzz/$$target- $(BUILD)/fuzz/corpus/$$target \
	    tests/fuzz/corpus/$$target || exit 1; \
	done

bench:
	scripts/setup bench
	cmake --preset release -DTRIREME_BENCH=ON
	cmake --build $(BUILD) --target benchmarks
	cmake --preset release -B $(BUILD)/plain -DTRIREME_TESTS=OFF -DTRIREME_PLAIN_COPIES=ON
	cmake --build $(BUILD)/plain --target trireme
	bench/run $(BUILD)

bench-peers:
	scripts/setup bench
	cmake --preset release -DTRIREME_BENCH=ON
	cmake --build $(BUILD) --target trireme hosts_bench
	bench/run-peers $(BUILD)

# Ten seeds of every preset, to the target and to the end.
bench-presets: demo
	scripts/setup presets
	python3 bench/presets.py $(BUILD)/trireme
	python3 bench/presets.py $(BUILD)/trireme --full

# Threads, parsing and everything else of the fast tests under the sanitizers, with what others may have written under the first.
asan-ubsan tsan:
	scripts/setup test
	cmake --preset $@
	cmake --build --preset $@ --target fast_tests $(if $(filter asan%,$@),fuzz_tests)
	ctest --test-dir $(BUILD)/$@ --output-on-failure -L 'fast|patient$(if $(filter asan%,$@),|fuzz)' -j2

format:
	scripts/setup dev
	git ls-files '*.cc' '*.h' | xargs clang-format -i

tidy:
	scripts/setup dev
	cmake --preset release -B $(BUILD)/tidy -DTRIREME_TESTS=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
	git ls-files 'src/*.cc' | grep -v _test.cc | xargs -P $$(nproc) -n 2 clang-tidy -p $(BUILD)/tidy --quiet

clean:
	rm -rf $(BUILD)
