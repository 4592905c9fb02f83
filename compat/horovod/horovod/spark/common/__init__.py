"""What Horovod's estimators share, served by rueda.spark.common."""
