import pytest

from agent.probe.iperf3_errors import classify, plain_error, tidy
from bandwitness.v1 import record_pb2 as pb

CONNECT = (
    "unable to connect to server - server may have stopped running or use a different port, firewall issue, etc.: "
)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("unable to connect to server: Connection refused", pb.RUN_OUTCOME_REFUSED),
        (CONNECT + "Connection refused", pb.RUN_OUTCOME_REFUSED),
        (CONNECT + "No route to host", pb.RUN_OUTCOME_UNREACHABLE),
        (CONNECT + "Network is unreachable", pb.RUN_OUTCOME_UNREACHABLE),
        (CONNECT + "Connection timed out", pb.RUN_OUTCOME_TIMEOUT),
        (CONNECT + "Operation now in progress", pb.RUN_OUTCOME_TIMEOUT),
        (CONNECT + "Cannot assign requested address", pb.RUN_OUTCOME_BAD_PARAMETERS),
        ("unable to connect to server: Name or service not known", pb.RUN_OUTCOME_DNS),
        ("unable to connect to server: Temporary failure in name resolution", pb.RUN_OUTCOME_DNS),
        ("the server is busy running a test. try again later", pb.RUN_OUTCOME_BUSY),
        ("error - the server is busy running a test. try again later", pb.RUN_OUTCOME_BUSY),
        ("idle timeout for receiving data", pb.RUN_OUTCOME_TIMEOUT),
        ("unable to write to stream socket: Connection timed out", pb.RUN_OUTCOME_TIMEOUT),
        ("unable to write to stream socket: Connection reset by peer", pb.RUN_OUTCOME_ABORTED),
        ("control socket has closed unexpectedly", pb.RUN_OUTCOME_ABORTED),
        ("interrupt - the client has terminated", pb.RUN_OUTCOME_ABORTED),
        ("error - the server has terminated", pb.RUN_OUTCOME_ABORTED),
        ("unable to receive control message: Connection reset by peer", pb.RUN_OUTCOME_ABORTED),
        ("unable to send control message: Bad file descriptor", pb.RUN_OUTCOME_ABORTED),
        (
            "unable to set TCP_CONGESTION: Supplied congestion control algorithm not supported on this host",
            pb.RUN_OUTCOME_BAD_PARAMETERS,
        ),
        ("unable to set TCP/SCTP MSS: Invalid argument", pb.RUN_OUTCOME_BAD_PARAMETERS),
        ("parameter error - TCP MSS too large (maximum = 9216 bytes)", pb.RUN_OUTCOME_BAD_PARAMETERS),
        ("error - unable to start listener for connections: Address already in use", pb.RUN_OUTCOME_PORT_IN_USE),
        (
            "received an unknown control message (ensure other side is iperf3 and not iperf)",
            pb.RUN_OUTCOME_UNSUPPORTED_VERSION,
        ),
        ("test authorization failed", pb.RUN_OUTCOME_OTHER),
        ("words from a later version", pb.RUN_OUTCOME_OTHER),
        ("", pb.RUN_OUTCOME_OTHER),
    ],
)
def test_each_text_has_its_outcome(error: str, outcome: int) -> None:
    assert classify(error) == outcome


def test_prefixes_and_line_ends_go() -> None:
    assert tidy("iperf3: error - unable to receive parameters from client: \n") == (
        "unable to receive parameters from client"
    )


def test_output_without_an_error_has_none() -> None:
    assert plain_error("all quiet\n") is None
    assert plain_error("iperf3: unrecognized option '--x'\nUsage: iperf3") == "iperf3: unrecognized option '--x'"
    assert plain_error("Usage: iperf3 [-s|-c host]\n") == "Usage: iperf3 [-s|-c host]"
