"""The command line: `dibs` from any shell, script or agent."""
