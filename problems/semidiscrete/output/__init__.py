"""What is shown of a state: pictures, datasets, and quantities over time."""
