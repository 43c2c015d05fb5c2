"""The MCP server, whatever carries its messages: what agents use dibs through.

Our own small module, not an SDK: one server runs per agent, and it starts in milliseconds.
"""
