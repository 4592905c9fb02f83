"""Life cycle and topology."""

from rueda.basics import HorovodBasics

__all__ = ["HorovodBasics"]
