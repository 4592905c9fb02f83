"""Finding the hosts of an elastic job. Starting one is the business of `rueda run`."""
