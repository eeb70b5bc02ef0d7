"""What each agent must do, and why."""
