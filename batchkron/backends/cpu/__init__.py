"""The CPU backend: the compiled C++ core and its threads."""
