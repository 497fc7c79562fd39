"""Reading: batches, streams, and the tasks that read."""
