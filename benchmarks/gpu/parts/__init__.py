"""The parts of the benchmark, a file each: the cells of `--part NAME`."""
