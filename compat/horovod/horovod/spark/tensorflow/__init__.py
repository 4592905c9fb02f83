"""Horovod's data service in the tasks of Spark, served by rueda.spark.tensorflow.compute_worker."""
