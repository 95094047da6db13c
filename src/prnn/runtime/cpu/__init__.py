"""The native engine on the CPU: find the library, compile users' cells, call it."""
