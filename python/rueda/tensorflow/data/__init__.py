"""tf.data service for ranks: processes that only prepare data, and how training ranks find them."""
