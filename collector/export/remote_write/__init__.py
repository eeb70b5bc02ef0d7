"""Samples with the time of measuring, sent to Prometheus, VictoriaMetrics and their kind (remote write 1.0).

``samples`` rows into samples (pure) · ``request`` samples into the body of a request, and what an answer means (pure) ·
``post`` the network · ``sender`` the loop: queue, retries, what is dropped · ``write.proto`` the wire.
"""

from collector.export.remote_write.sender import Sender, Statistics

__all__ = ["Sender", "Statistics"]
