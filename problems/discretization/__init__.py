"""From a PDE to one-dimensional matrices: basis, quadrature, numerical fluxes, boundary terms.

`checks` looks at the PDE's functions first; `terms` decides on fluxes and assembles each term from
`matrices`, in the `basis` of an axis; `fields` has the modes that depend on the state. `space` is
what all of them share, `parts` what they make.
"""
