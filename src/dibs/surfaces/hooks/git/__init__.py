"""What dibs does in a git repository: commits in turn, and worktrees side by side."""
