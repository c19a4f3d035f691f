"""Output of the command: text, tables and plots."""
