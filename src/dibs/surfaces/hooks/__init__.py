"""What makes coordination happen by itself: the hooks of agent clients."""
