"""From a PDE to one-dimensional matrices: basis, quadrature, numerical fluxes, boundary terms."""
