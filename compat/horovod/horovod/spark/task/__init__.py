"""What a rank can ask about its Spark task."""

from rueda.spark.devices import get_available_devices

__all__ = ["get_available_devices"]
