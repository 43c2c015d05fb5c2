"""The MCP server, independent of the transport: how agents use dibs.

Our own small module, not an SDK: one server runs per agent, and it starts in milliseconds.
"""
