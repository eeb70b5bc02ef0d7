"""The composition root: the only package of the agent that knows all its other parts.

``run`` builds and joins them, ``flush`` carries results to the spool, ``parts`` keeps each running, ``start`` and
``memory`` look after the process, ``check`` looks at the file and the host before any of it. Nothing is imported here:
``check`` must be quick.
"""
