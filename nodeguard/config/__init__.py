"""What people write: rules, overrides and settings, checked whole, with every mistake at its line and column."""
