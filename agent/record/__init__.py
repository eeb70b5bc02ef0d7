"""Results become records, records become sealed batches. Pure but for the random source of the salts.

``columns`` writes the messages of ``record.proto``; ``recorder`` keeps what one run has written and seals it behind
the tips of its chains.
"""

from agent.record.recorder import Author, ChainState, HeaderContext, Recorder, SealedBatch, watermark_ns

__all__ = ["Author", "ChainState", "HeaderContext", "Recorder", "SealedBatch", "watermark_ns"]
