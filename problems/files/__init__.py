"""Problem files."""
