"""Runs of the command: from the options to the files that are written."""
