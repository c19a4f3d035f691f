"""From a PDE to one-dimensional matrices: basis, quadrature, fluxes, boundary terms."""
