"""Checkpoint bursts, out of NIC counters and trainers' marks, in event time.

``octets``: what a NIC counted. ``samples``: counters into rates that can be believed. ``usual``: what is usual for a
NIC. ``detector``: one signal of one NIC, when it opens and ends. ``watch``: one NIC. ``clusters``: many nodes at once.
``joining``: which mark belongs to which cluster burst. ``forecast``: when the next one comes. ``score``: how well
bursts and marks agree. ``calendar``: what was on at a time, for the rules. ``bursts``: all of it, fed by the fold.
"""
