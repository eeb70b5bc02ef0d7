"""What an iperf3 ``error`` text says about how the test ended. Pure.

The exit code says nothing: up to 3.13 a failed client exits with 0 (esnet/iperf#1405). The texts are those of
src/iperf_error.c in 3.0 to 3.20, where ``perror`` texts follow a colon; the first rule that matches wins, so the
errno's own words, which are more exact, come before iperf3's.
"""

import re

from bandwitness.v1 import record_pb2 as pb

_RULES: tuple[tuple[int, str], ...] = (
    (pb.RUN_OUTCOME_BUSY, r"server is busy"),
    (
        pb.RUN_OUTCOME_DNS,
        (
            r"name or service not known|name resolution|no address associated|nodename nor servname"
            r"|non-recoverable failure|unknown host"
        ),
    ),
    (pb.RUN_OUTCOME_PORT_IN_USE, r"address already in use"),
    # --connect-timeout runs out: the errno is that of the connect still under way.
    (pb.RUN_OUTCOME_TIMEOUT, r"timed out|operation now in progress|idle timeout|no progress|resource temporarily"),
    (
        pb.RUN_OUTCOME_UNREACHABLE,
        r"no route to host|(?:network|host|protocol) is unreachable|(?:network|host) is down|destination unreachable",
    ),
    (pb.RUN_OUTCOME_REFUSED, r"connection refused"),
    (
        pb.RUN_OUTCOME_UNSUPPORTED_VERSION,
        r"unrecognized option|invalid option|unknown control message|not implemented yet|not supported by this version",
    ),
    (
        pb.RUN_OUTCOME_BAD_PARAMETERS,
        (
            r"parameter error|unable to set|cannot assign requested address|server only|client only|valid values are"
            r"|too large|too small|bogus value|bad tos|bad format|invalid (?:report interval|burst)|must be between"
            r"|block size invalid|does not support|no sctp support|not correctly|only one test end condition"
            r"|valid only in|cannot be both|must either be|timeout value|^usage:"
        ),
    ),
    (
        pb.RUN_OUTCOME_ABORTED,
        (
            r"has terminated|closed unexpectedly|reset by peer|broken pipe|control (?:message|socket)|stream socket"
            r"|(?:send|receive) (?:cookie|parameters|results)|interrupt|connection aborted|bad file descriptor"
        ),
    ),
)
_COMPILED = tuple((outcome, re.compile(pattern, re.IGNORECASE)) for outcome, pattern in _RULES)
_PREFIX = re.compile(r"^(?:iperf3: )?(?:error - )?")
MAX_DETAIL_CHARS = 400


def classify(error: str) -> int:
    """``RunOutcome`` of an error text; ``RUN_OUTCOME_OTHER`` for one that no rule knows."""
    for outcome, pattern in _COMPILED:
        if pattern.search(error):
            return outcome
    return pb.RUN_OUTCOME_OTHER


def tidy(error: str) -> str:
    """The text without iperf3's own prefixes, on one line, bounded."""
    return _PREFIX.sub("", " ".join(error.split())).rstrip(" :")[:MAX_DETAIL_CHARS]


def plain_error(output: str) -> str | None:
    """The error in output that holds no JSON: ``iperf3: …`` lines, or the usage text. None when there is none."""
    for line in output.splitlines():
        if re.match(r"iperf3?: (?:error - |parameter error - |unrecognized|invalid|option)", line):
            return line
    for line in output.splitlines():
        if line.lower().startswith("usage:"):
            return line
    return None
