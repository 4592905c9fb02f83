"""Elastic training without any framework: `rueda.torch.elastic` and its kin add states of frameworks.

Imports nothing, because `basics` needs one of its modules; `exports` has what front ends offer.
"""
