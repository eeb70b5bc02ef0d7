"""Takes a statement to where it is to go. Blocking; errors are one kind, with words for the operator."""

import smtplib
import ssl
import urllib.error
import urllib.request
from email.message import EmailMessage

TIMEOUT_S = 20.0
MAX_ANSWER_BYTES = 256 * 1024


class CarryError(Exception):
    """It did not arrive; the message says why."""


def post(url: str, content: bytes, content_type: str) -> bytes:
    """The answer's body.

    Raises:
        CarryError: no connection, an answer other than 2xx, or one that is too large.
    """
    asked = urllib.request.Request(url, content, {"Content-Type": content_type}, method="POST")  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:  # noqa: S310 - http or https, by configuration
            body: bytes = answer.read(MAX_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise CarryError(f"{url} answered {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise CarryError(f"{url}: {getattr(error, 'reason', error)}") from None
    if len(body) > MAX_ANSWER_BYTES:
        raise CarryError(f"{url} answered with more than {MAX_ANSWER_BYTES >> 10} KiB")
    return body


def mail(server: tuple[str, int], *, sender: str, recipient: str, subject: str, text: str, starttls: bool) -> None:
    """Sends one mail.

    Raises:
        CarryError: the server cannot be reached or does not take it.
    """
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, recipient, subject
    message.set_content(text)
    try:
        with smtplib.SMTP(*server, timeout=TIMEOUT_S) as smtp:
            if starttls:
                smtp.starttls(context=ssl.create_default_context())
            smtp.send_message(message)
    except (OSError, smtplib.SMTPException) as error:
        raise CarryError(f"mail to {recipient} by {server[0]}:{server[1]}: {error}") from None
