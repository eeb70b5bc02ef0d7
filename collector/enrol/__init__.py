"""Who may speak for a node: tokens, certificates of our own authority, revocation.

Import from its modules: the commands must not wait for what only the running collector needs.
"""
