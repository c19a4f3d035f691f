"""What the command prints and draws."""
