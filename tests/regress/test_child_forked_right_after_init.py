"""A child forked right after init could load no library, because the engine's thread was loading one.

The dynamic linker does not survive a fork in the middle of its work: `import torch._dynamo` failed in the
child with an undefined symbol of libgcc_s, in some seven of a hundred runs. Whatever init loads is loaded
when it returns.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import assert_all_succeed, launch

# The first call of backtrace() loads libgcc_s.
FIRST_CALL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static int calls;
int backtrace(void** frames, int size) {
  if (calls++ == 0) fprintf(stderr, "first by %s\n", syscall(SYS_gettid) == getpid() ? "main" : "another");
  int (*next)(void**, int) = (int (*)(void**, int))dlsym(RTLD_NEXT, "backtrace");
  return next(frames, size);
}
"""


def test_the_thread_that_calls_init_loads_the_unwinder(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    source, shim = tmp_path / "first_call.c", tmp_path / "first_call.so"
    source.write_text(FIRST_CALL)
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(shim)], check=True, timeout=60)
    body = """
import rueda.numpy as hvd
hvd.init()
hvd.barrier()
"""
    finished = launch(2, body, {"LD_PRELOAD": str(shim)})
    assert_all_succeed(finished)
    assert ["first by main" in one.output for one in finished] == [True, True], finished
