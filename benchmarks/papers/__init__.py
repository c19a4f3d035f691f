"""Tables of the papers on Kronecker-sparse matrices and on the explicit product, measured again."""
