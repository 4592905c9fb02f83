"""Prints the folder CMake finds rueda in: ``cmake -DCMAKE_PREFIX_PATH=$(python -m rueda.cmake_dir) …``."""

from __future__ import annotations

from pathlib import Path


def cmake_dir() -> str:
    """The prefix below which lib/cmake/rueda, include/rueda and lib/librueda.so lie."""
    return str(Path(__file__).resolve().parent)


if __name__ == "__main__":
    print(cmake_dir())
