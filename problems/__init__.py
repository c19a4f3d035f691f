"""PDEs, their sparse-grid discretizations, the gallery and problem files."""
