"""tf.data service for ranks, served by rueda.tensorflow.data."""
