"""Some eigenvalues and eigenvectors of any operator, and of pencils A - λ B."""
