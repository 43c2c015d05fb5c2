"""The MCP server: what agents use dibs through, over standard input and output.

Our own small module, not an SDK: one server runs per agent, and it starts in milliseconds.
"""
