"""What dibs costs, measured beside what it stands on, in the same run."""
