"""The hooks of agent clients, which make coordination automatic."""
