"""How a node gets its certificate, and the next one.

``pin`` finds the authority that was named by its fingerprint, ``issue`` asks for a certificate over a key made here,
``files`` keeps both, ``renewing`` has it done again in time. Import from the modules: a running agent needs only the
last.
"""
