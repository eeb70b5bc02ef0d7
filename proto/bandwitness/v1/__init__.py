"""Version 1 of the wire format; everything but this file and the .proto files is generated (``proto/generate.sh``)."""
