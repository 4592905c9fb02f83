"""The checklist of the public interface is complete, and every entry is true."""

import ast
import importlib
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "python"))

import contract_checklist  # noqa: E402 (found beside this file)
import contract_checklist_tensorflow  # noqa: E402

CHECKLIST = {**contract_checklist.CHECKLIST, **contract_checklist_tensorflow.CHECKLIST}


@pytest.mark.parametrize("entry", sorted(CHECKLIST))
def test_every_name_of_the_contract_imports(entry):
    module, name = entry.split(":")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("target", sorted(set(CHECKLIST.values())))
def test_every_test_of_the_checklist_exists(target):
    file, name = target.split("::")
    tree = ast.parse((TESTS / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("module", ["rueda.torch", "horovod.torch", "rueda.tensorflow", "horovod.tensorflow"])
def test_no_exported_name_is_missing_in_the_checklist(module):
    exported = set(importlib.import_module(module).__all__)
    assert exported == {entry.split(":")[1] for entry in CHECKLIST if entry.split(":")[0] == module}
