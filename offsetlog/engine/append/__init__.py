"""From records to an entry that landed."""
