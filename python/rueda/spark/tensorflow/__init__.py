"""TensorFlow in the tasks of Spark: processes that prepare data (`compute_worker`)."""
