"""Slots of an elastic job that come from a cluster manager: Ray's actors and Spark's tasks offer them."""
