# Every target works on a fresh Debian 12 machine: it installs what it needs (root or sudo).
BUILD := build
DEMO := runs/demo

.PHONY: demo all test fast build chaos bench bench-peers bench-presets asan-ubsan tsan format tidy clean

demo:
	scripts/setup demo
	@test -f $(BUILD)/CMakeCache.txt || cmake --preset release -DTRIREME_TESTS=OFF
	cmake --build $(BUILD) --target trireme
	@rm -rf $(DEMO)
	@echo; echo "== build/trireme train --env CartPole-v1 --algo ppo --target 475 --out $(DEMO)"
	@$(BUILD)/trireme train --env CartPole-v1 --algo ppo --target 475 --out $(DEMO)
	@echo "picture: $(DEMO)/learning_curve.svg"

# The whole program: parameter servers, MPI and the examples too.
all:
	scripts/setup all
	cmake --preset release $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DTRIREME_TESTS=OFF)
	cmake --build $(BUILD) --target trireme least_squares

build:
	scripts/setup test
	cmake --preset release -DTRIREME_TESTS=ON
	cmake --build $(BUILD)

test: build
	ctest --test-dir $(BUILD) --output-on-failure

# The tests of one minute.
fast: build
	ctest --test-dir $(BUILD) --output-on-failure -L fast -j2

# Ten minutes of training, on their own and in step, while workers and servers are killed, frozen and cut off. Among the tests there
# is a training of each kind.
chaos: build
	CHAOS_SECONDS=200 $(BUILD)/tests/chaos/chaos_test

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
	cmake --build $(BUILD) --target trireme
	bench/run-peers $(BUILD)

# Ten seeds of every preset, to the target and to the end.
bench-presets: demo
	scripts/setup presets
	python3 bench/presets.py $(BUILD)/trireme
	python3 bench/presets.py $(BUILD)/trireme --full

# Threads, parsing and everything else of the fast tests under the sanitizers.
asan-ubsan tsan:
	scripts/setup test
	cmake --preset $@
	cmake --build --preset $@ --target fast_tests
	ctest --test-dir $(BUILD)/$@ --output-on-failure -L fast -j2

format:
	scripts/setup dev
	git ls-files '*.cc' '*.h' | xargs clang-format -i

tidy:
	scripts/setup dev
	cmake --preset release -DTRIREME_TESTS=ON
	git ls-files 'src/*.cc' | grep -v _test.cc | xargs clang-tidy -p $(BUILD) --quiet

clean:
	rm -rf $(BUILD)
