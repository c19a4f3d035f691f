"""How all parts measure: times, energy, inputs."""
