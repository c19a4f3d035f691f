"""The kernel for factors of any size and dtype; results between steps are kept in two buffers."""
