# Each target installs what it needs: demo little, test and figure all that setup does. See docs/install.md.
VENV := .venv/bin/python
unexport MAKEFLAGS MAKELEVEL MFLAGS

.PHONY: help setup demo test test-all test-matrix bench figure figures fuzz wheel wheels clean
help:
	@echo "make setup   what a Debian 12 machine needs, and .venv with rueda installed"
	@echo "make demo    train Fashion-MNIST with 1 and 2 ranks through rueda run"
	@echo "make test    what a change must pass; the last line is 'N passed, N failed, N skipped'"
	@echo "make test-all   every check there is, before a release"
	@echo "make test-matrix   the front ends' tests over several versions of the frameworks"
	@echo "make bench   measure this machine"
	@echo "make figure  measure and draw docs/scaling.svg, as root on an idle machine: about 20 minutes"
	@echo "make figures draw what rueda simulate predicts (docs/predictions.md): about a quarter of an hour"
	@echo "make fuzz    search for inputs that break a parser (docs/security.md): most of an hour"
	@echo "make wheel   dist/rueda_train-*.whl"
	@echo "make wheels  dist/portable/: wheels for glibc 2.28 on x86_64 and aarch64, and the source distribution"
	@echo "make clean   remove build/ and dist/ (not .venv/)"

setup:
	@tools/setup.sh

demo:
	@tools/setup.sh demo
	@$(VENV) examples/demo/demo.py

test: setup
	@$(VENV) tools/run_tests.py

test-all: setup
	@$(VENV) tools/run_tests.py --thorough

test-matrix: setup
	@$(VENV) tools/test_matrix.py

bench:
	@tools/setup.sh bench
	@$(VENV) bench/run.py

# At a quarter of the usual rate the cores of a small machine are not the limit: docs/bench.md.
figure: setup
	@$(VENV) bench/compare --parts replay --rounds 3 --rate 250mbit --ready even --out build/bench/figure --figure docs/scaling.svg

# What rueda simulate predicts, beside published numbers.
figures: setup
	@for figure in servers scaling buffer host_order beyond fusion merge_scope lines_of_code; do $(VENV) bench/figures/$$figure.py || exit 1; done

# Parsers of foreign bytes under libFuzzer.
fuzz:
	@tools/setup.sh apt
	@python3 tools/fuzz.py

wheel:
	@tools/setup.sh apt
	@python3 tools/build_wheel.py dist

wheels:
	@tools/setup.sh wheels
	@$(VENV) tools/build_wheels.py

clean:
	@rm -rf build dist
