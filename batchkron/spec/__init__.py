"""What is asked for, checked once: shapes, dtypes, layouts."""
