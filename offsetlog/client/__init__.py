"""What a Python program uses: topics, producers, consumers, maintenance."""
