"""Helpers of the launcher that others import."""
