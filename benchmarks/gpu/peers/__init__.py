"""The peers that are measured in the same run, a file for each."""
