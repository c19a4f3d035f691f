"""Result files of ASGarD."""
