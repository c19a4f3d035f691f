"""Block methods: many right-hand sides whose residuals span one space."""
