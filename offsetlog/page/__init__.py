"""The page: a log in a browser, and the same as JSON. It reads through the client."""
