"""What the estimators of all frameworks share."""
