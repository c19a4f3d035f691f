"""How a method goes on from pass to pass, and what it keeps from solve to solve."""
