"""What a machine can be trusted with: whether its operations repeat themselves bit for bit, and how fast it moves bytes."""
