"""Looking after what is stored: maintenance and verification."""
