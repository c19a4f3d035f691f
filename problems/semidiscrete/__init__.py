"""The discretized problem: a system u' = A(t) u + s(t) on a grid."""
