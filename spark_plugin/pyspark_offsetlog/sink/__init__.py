"""Writing: tasks that stage rows, and the driver that commits them."""
