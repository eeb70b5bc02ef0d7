"""Tells the Bandwitness agent of this host when a checkpoint begins and ends. One file, copy it wherever you like.

    from bandwitness_mark import checkpoint

    with checkpoint(step=step):
        save(model)

Nothing here waits, raises, prints or keeps a thread: a mark is one datagram to the agent's Unix socket, and where no
agent listens, or its queue is full, it is dropped. What goes wrong in your own code inside the ``with`` goes on to you.
Job, rank and labels are found by themselves under Slurm, Kubernetes and torchrun; what you name goes first.

The socket is /run/bandwitness/mark.sock, or what BANDWITNESS_MARK_SOCKET says; BANDWITNESS_MARK=off switches all off.
Python 3.8 or newer, standard library only. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import inspect
import json
import operator
import os
import re
import socket
import time
from typing import Any, Callable, Mapping

__version__ = "0.1.0"
__all__ = [
    "begin",
    "checkpoint",
    "deepspeed_engine",
    "end",
    "hf_callback",
    "lightning_io",
    "restore",
    "torch_writer",
    "until_done",
    "wrap",
]

DEFAULT_SOCKET = "/run/bandwitness/mark.sock"
MAX_DATAGRAM_BYTES = 4096
MAX_LABELS = 16
MAX_CHARACTERS = 128  # of a job and of a label's value
MAX_WHOLE = (1 << 63) - 1
TRIES = 3  # while the agent's queue is full, giving up the processor in between and never sleeping

# Environment -> label. Those of Slurm are also found by `bandwitness-agent mark`.
SLURM_LABELS = {
    "SLURM_JOB_ID": "slurm_job_id",
    "SLURM_JOB_NAME": "slurm_job_name",
    "SLURM_JOB_PARTITION": "slurm_partition",
    "SLURM_NODEID": "slurm_node_id",
    "SLURM_PROCID": "slurm_proc_id",
}
OTHER_LABELS = {
    "WORLD_SIZE": "world_size",
    "LOCAL_RANK": "local_rank",
    "TORCHELASTIC_RUN_ID": "torch_run_id",
    "TORCHELASTIC_RESTART_COUNT": "torch_restarts",
    "POD_NAME": "k8s_pod",
    "POD_NAMESPACE": "k8s_namespace",
    "NODE_NAME": "k8s_node",
    "JOB_NAME": "k8s_job",
    "JOB_COMPLETION_INDEX": "k8s_index",
}
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
# Files of the downward API (a volume mounted there), and the namespace that every pod is given.
PODINFO = "/etc/podinfo"
NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
POD_JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "batch.kubernetes.io/job-name",
    "job-name",
)
MAX_FILE_BYTES = 65_536


# ---------------------------------------------------------------- saying it


def begin(kind: Any = "checkpoint", job: Any = None, step: Any = None, *ignored: Any, **more: Any) -> bool:
    """Says that something begins; ``more``: ``bytes``, ``rank``, ``labels``. Whether the agent was handed it."""
    return _say("begin", kind, job, step, more)


def end(kind: Any = "checkpoint", job: Any = None, step: Any = None, *ignored: Any, **more: Any) -> bool:
    """Says that it ended; with the same kind, job and step as it began."""
    return _say("end", kind, job, step, more)


class checkpoint:  # noqa: N801 - reads as a word of the trainer's
    """A context manager, and a decorator of functions: begin at the entry, end at the exit, whatever happens between.

    ``bytes`` may be set in between, and is said at the end. An exception is named in the label ``failed``, and goes on.
    """

    kind = "checkpoint"

    def __init__(self, job: Any = None, step: Any = None, *ignored: Any, **more: Any) -> None:
        self.job = job
        self.step = step
        self.bytes = more.pop("bytes", None)
        self._kind = more.pop("kind", self.kind)
        self._more = more

    def __enter__(self) -> checkpoint:
        _say("begin", self._kind, self.job, self.step, self._more)
        return self

    def __exit__(self, error_type: Any, error: Any, traceback: Any) -> None:
        more = dict(self._more, bytes=self.bytes)
        if error_type is not None:
            labels = more.get("labels")
            failed = {"failed": getattr(error_type, "__name__", "yes")}
            more["labels"] = {**failed, **labels} if isinstance(labels, dict) else failed
        _say("end", self._kind, self.job, self.step, more)

    async def __aenter__(self) -> checkpoint:
        return self.__enter__()

    async def __aexit__(self, error_type: Any, error: Any, traceback: Any) -> None:
        self.__exit__(error_type, error, traceback)

    def _again(self) -> checkpoint:
        return type(self)(self.job, self.step, bytes=self.bytes, kind=self._kind, **self._more)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def marked_async(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await function(*args, **kwargs)

            return marked_async

        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return marked


class restore(checkpoint):  # noqa: N801
    """The same for reading one back."""

    kind = "restore"


def _say(phase: str, kind: Any, job: Any, step: Any, more: Mapping[str, Any]) -> bool:
    try:
        environment = os.environ
        if environment.get("BANDWITNESS_MARK", "").lower() in ("off", "0", "no", "false"):
            return False
        data = _datagram(phase, kind, job, step, more)
        return _send(data, environment.get("BANDWITNESS_MARK_SOCKET") or DEFAULT_SOCKET)
    except Exception:  # whatever it is, a trainer must not hear of it
        return False


def _send(data: bytes, path: str) -> bool:
    # A socket for each mark: nothing to share through a fork, to close, or to find stale when the agent starts again.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sender:
        for _ in range(TRIES):
            try:
                sender.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, path)
                return True
            except BlockingIOError:
                os.sched_yield()
    return False


# ---------------------------------------------------------------- what is said


def _datagram(phase: str, kind: Any, job: Any, step: Any, more: Mapping[str, Any]) -> bytes:
    environment = os.environ
    found = _labels(environment)
    rank = _whole(more.get("rank"))
    if rank is None:
        rank = next((number for name in RANK_VARIABLES if (number := _whole(environment.get(name))) is not None), None)
    message: dict[str, Any] = {
        "v": 1,
        "phase": phase,
        "kind": re.sub(r"[^a-z0-9_-]", "_", str(kind).lower())[:32] or "checkpoint",
        "job": _text(_job(environment, found) if job is None else job),
        "step": _whole(step),
        "bytes": _whole(more.get("bytes")),
        "rank": rank if rank is None or rank < 1 << 32 else None,
        "time_ns": time.time_ns(),
        "labels": _joined(more.get("labels"), found),
    }
    data = _encoded(message)
    while len(data) > MAX_DATAGRAM_BYTES and message["labels"]:
        message["labels"].popitem()
        data = _encoded(message)
    return data


def _encoded(message: Mapping[str, Any]) -> bytes:
    present = {name: value for name, value in message.items() if value is not None}
    return json.dumps(present, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _whole(value: Any) -> int | None:
    """An integer from 0, out of whatever counts as one; None otherwise."""
    if value is None or getattr(value, "is_cuda", False):  # reading it would wait for the device
        return None
    try:
        number = int(value) if isinstance(value, str) else operator.index(value)
    except Exception:  # a mark without this figure is better than none
        return None
    return number if 0 <= number <= MAX_WHOLE else None


def _text(value: Any) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in str(value)[:MAX_CHARACTERS])


def _joined(own: Any, found: Mapping[str, str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for source in (own if isinstance(own, dict) else {}, found):
        for name, value in source.items():
            clean = re.sub(r"[^A-Za-z0-9_./-]", "_", str(name))[:64]
            if clean and len(labels) < MAX_LABELS:
                labels.setdefault(clean, _text(value))
    return labels


# ---------------------------------------------------------------- whose it is


def _labels(environment: Mapping[str, str]) -> dict[str, str]:
    named = ((label, environment.get(name)) for name, label in {**SLURM_LABELS, **OTHER_LABELS}.items())
    labels = {label: value for label, value in named if value}
    if environment.get("KUBERNETES_SERVICE_HOST"):
        for label, value in _pod().items():
            labels.setdefault(label, value)
        if environment.get("HOSTNAME"):
            labels.setdefault("k8s_pod", environment["HOSTNAME"])
    return labels


def _job(environment: Mapping[str, str], labels: Mapping[str, str]) -> str:
    run = labels.get("torch_run_id", "")
    return (
        environment.get("BANDWITNESS_JOB")
        or labels.get("slurm_job_id")
        or labels.get("k8s_job")
        or (run if run != "none" else "")
    )


@functools.lru_cache(maxsize=1)
def _pod() -> dict[str, str]:
    """What the downward API's files say, read once."""
    found = {"k8s_pod": _file(f"{PODINFO}/name").strip()}
    found["k8s_namespace"] = (_file(f"{PODINFO}/namespace") or _file(NAMESPACE_FILE)).strip()
    pod_labels = dict(re.findall(r'^([^=\n]+)="(.*)"$', _file(f"{PODINFO}/labels"), re.MULTILINE))
    found["k8s_job"] = next((pod_labels[name] for name in POD_JOB_LABELS if pod_labels.get(name)), "")
    return {name: value for name, value in found.items() if value}


def _file(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(descriptor, MAX_FILE_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except Exception:  # not there, mostly
        return ""


# ---------------------------------------------------------------- frameworks; none is imported before it is asked for


def wrap(target: Any, name: str, mark: Callable[..., checkpoint]) -> Any:
    """Marks each call of the method ``name`` of one object; gives the object back, the same and of the same type.

    ``mark`` is given the call's arguments and returns a ``checkpoint`` or ``restore``. A call that returns a future
    that is not done goes on until it is.
    """
    try:
        method = getattr(target, name)

        @functools.wraps(method)
        def marked(*args: Any, **kwargs: Any) -> Any:
            try:
                said = mark(*args, **kwargs)
            except Exception:  # whatever the arguments were
                said = checkpoint()
            said.__enter__()
            try:
                result = method(*args, **kwargs)
            except BaseException as error:
                said.__exit__(type(error), error, None)
                raise
            _end_with(result, said)
            return result

        setattr(target, name, marked)
    except Exception:  # no such method, or one that cannot be set
        pass
    return target


def _end_with(result: Any, said: checkpoint) -> None:
    try:
        if not result.done():
            result.add_done_callback(lambda _: said.__exit__(None, None, None))
            return
    except Exception:  # no future
        pass
    said.__exit__(None, None, None)


def until_done(future: Any, job: Any = None, step: Any = None, **more: Any) -> Any:
    """Marks from now until a future is done; gives it back. For ``async_save`` of torch.distributed.checkpoint."""
    said = checkpoint(job, step, **more)
    said.__enter__()
    _end_with(getattr(future, "upload_completion", future), said)
    return future


def torch_writer(writer: Any, job: Any = None, step: Any = None, **more: Any) -> Any:
    """A StorageWriter of torch.distributed.checkpoint that marks while this rank writes:
    ``dcp.save(state, storage_writer=torch_writer(FileSystemWriter(path), step=step))``."""
    return wrap(writer, "write_data", lambda *_, **__: checkpoint(job, step, **more))


def lightning_io(plugin: Any, job: Any = None) -> Any:
    """A CheckpointIO of Lightning that marks each save and load:
    ``Trainer(plugins=[lightning_io(TorchCheckpointIO())])``."""

    def saves(saved: Any = None, *_: Any, **__: Any) -> checkpoint:
        return checkpoint(job, saved.get("global_step") if isinstance(saved, dict) else None)

    wrap(plugin, "save_checkpoint", saves)
    return wrap(plugin, "load_checkpoint", lambda *_, **__: restore(job))


def deepspeed_engine(engine: Any, job: Any = None) -> Any:
    """An engine of DeepSpeed that marks each save and load."""
    wrap(engine, "save_checkpoint", lambda *_, **__: checkpoint(job, getattr(engine, "global_steps", None)))
    return wrap(engine, "load_checkpoint", lambda *_, **__: restore(job))


def hf_callback(job: Any = None) -> Any:
    """A callback for Trainer of Hugging Face transformers: ``Trainer(callbacks=[hf_callback()])``.

    ``on_save`` comes after the save, so the begin is said at the end of the step (or epoch) that is going to save.
    """
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class MarkCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
        open = None

        def _begin(self, state: Any, control: Any) -> None:
            if getattr(control, "should_save", False) and self.open is None:
                self.open = checkpoint(job, getattr(state, "global_step", None))
                self.open.__enter__()

        def _end(self) -> None:
            said, self.open = self.open, None
            if said is not None:
                said.__exit__(None, None, None)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._begin(state, control)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._begin(state, control)

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._end()

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._end()

    return MarkCallback()
