"""Arguments of the command line: problems, shapes and paths of outputs."""
