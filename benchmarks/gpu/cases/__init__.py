"""What is measured: cases, their goals and floors. Data only."""
