"""What is known about a log, as frames, views and a listener."""
