"""The backend on the CPU: the compiled core and its threads."""
