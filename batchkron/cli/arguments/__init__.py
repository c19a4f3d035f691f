"""Arguments of the command line: problems, shapes, paths of outputs."""
